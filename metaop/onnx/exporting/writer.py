"""The graph that the exporter's rows write to: uniquely named nodes, constants and sizes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from metaop.errors import UnsupportedError
from metaop.onnx.exporting.sizes import Size, Varying
from metaop.onnx.values import element_type
from metaop.unified_graph.dtype import DType


class Writer:
    """The nodes and initializers of a graph under construction.

    `sources` maps each dynamic axis to the input and axis that have its size.
    """

    def __init__(self, version: int, sources: dict[str, tuple[str, int]]) -> None:
        self.version = version
        self.nodes: list[onnx.NodeProto] = []
        self._outermost = self.nodes
        self.initializers: list[onnx.TensorProto] = []
        self._sources = sources
        self._known: dict[Any, str] = {}
        self._names: set[str] = set()

    def name(self, wish: str) -> str:
        """An unused name."""
        found, number = wish, 1
        while found in self._names:
            found, number = f"{wish}_{number}", number + 1
        self._names.add(found)
        return found

    @contextmanager
    def block(self) -> Iterator[list[onnx.NodeProto]]:
        """A graph within the graph: the nodes that are written inside the block."""
        around, self.nodes = self.nodes, []
        try:
            yield self.nodes
        finally:
            self.nodes = around

    def copied(self, name: str) -> str:
        """The same value with a name of its own, as results of a graph must have."""
        return self.node("Identity", name)

    def node(self, operator: str, *inputs: str | None, **attributes: Any) -> str:
        """Adds a node with one result; returns its name."""
        return self.several(operator, 1, *inputs, **attributes)[0]

    def several(
        self, operator: str, count: int, *inputs: str | None, **attributes: Any
    ) -> list[str]:
        """Adds a node with several results; returns their names."""
        for key, value in attributes.items():
            if _is_dynamic(value):
                raise UnsupportedError(
                    f"{operator} of ONNX needs a constant {key}, which here depends on a dynamic "
                    "axis",
                    fix="remove that axis from dynamic_axes",
                )
        outputs = [self.name(operator.lower()) for _ in range(count)]
        names = [one or "" for one in inputs]
        while names and not names[-1]:
            names.pop()
        given = {key: value for key, value in attributes.items() if value is not None}
        node = helper.make_node(operator, names, outputs, outputs[0], **given)
        self.nodes.append(node)
        return outputs

    def array(self, array: np.ndarray, wish: str = "constant") -> str:
        """A constant; equal small ones are shared."""
        array = np.asarray(array)
        key = (array.dtype.str, array.shape, array.tobytes()) if array.size <= 16 else None
        if key is not None and key in self._known and wish == "constant":
            return self._known[key]
        name = self.name(wish)
        self.initializers.append(numpy_helper.from_array(np.array(array, order="C"), name))
        if key is not None and wish == "constant":
            self._known[key] = name
        return name

    def number(self, value: Any, dtype: DType) -> str:
        """A constant with one number."""
        return self.array(np.asarray(value).astype(dtype.numpy))

    def integers(self, values: Sequence[int | Size]) -> str:
        """A list of sizes, as int64: constant, or computed from the dynamic axes."""
        if not _is_dynamic(tuple(values)):
            return self.array(np.array(values, np.int64))
        parts: list[str] = []
        run: list[int] = []
        for value in [*values, None]:
            if isinstance(value, int):
                run.append(value)
                continue
            if run:
                parts.append(self.array(np.array(run, np.int64)))
                run = []
            if value is not None:
                parts.append(self.size(value))
        return parts[0] if len(parts) == 1 else self.node("Concat", *parts, axis=0)

    def size(self, size: int | Size | Varying) -> str:
        """A size as a list of one number."""
        if isinstance(size, Varying):
            raise UnsupportedError("a number depends on a dynamic axis in an unsupported way")
        if isinstance(size, int):
            return self.array(np.array([size], np.int64))
        if size not in self._known:
            # Graphs within the graph share sizes, which therefore stand around all of them.
            around, self.nodes = self.nodes, self._outermost
            self._known[size] = self._computed(size)
            self.nodes = around
        return self._known[size]

    def _computed(self, size: Size) -> str:
        total: str | None = None
        for symbols, factor in size.numerators:
            term = self.size(factor) if factor != 1 or not symbols else None
            for symbol in symbols:
                own = self._symbol(symbol)
                term = own if term is None else self.node("Mul", term, own)
            assert term is not None
            total = term if total is None else self.node("Add", total, term)
        if size.denominator != 1:
            total = self.node("Div", total, self.size(size.denominator))
        assert total is not None
        return total

    def _symbol(self, symbol: str) -> str:
        key = ("symbol", symbol)
        if key not in self._known:
            name, axis = self._sources[symbol]
            shape = self.node("Shape", name)
            place = self.array(np.array([axis], np.int64))
            self._known[key] = self.node("Gather", shape, place, axis=0)
        return self._known[key]

    # --- common operators -------------------------------------------------------------------

    def cast(self, name: str, have: DType, want: DType) -> str:
        """Converts the values to another dtype."""
        return name if have is want else self.node("Cast", name, to=element_type(want))

    def reshape(self, name: str, shape: Sequence[int | Size]) -> str:
        """The values in another shape; one unknown size follows from the others."""
        sizes = list(shape)
        dynamic = [k for k, one in enumerate(sizes) if not isinstance(one, int)]
        rest = math.prod(one for one in sizes if isinstance(one, int))
        if len(dynamic) == 1 and rest:
            sizes[dynamic[0]] = -1
        zero = 1 if any(one == 0 for one in sizes if isinstance(one, int)) else None
        return self.node("Reshape", name, self.integers(sizes), allowzero=zero)

    def squeeze(self, name: str, axes: Sequence[int]) -> str:
        """Removes dimensions of size 1."""
        return self.node("Squeeze", name, self.integers(list(axes))) if axes else name

    def unsqueeze(self, name: str, axes: Sequence[int]) -> str:
        """Adds dimensions of size 1."""
        return self.node("Unsqueeze", name, self.integers(list(axes))) if axes else name

    def reduce(self, operator: str, name: str, axes: Sequence[int], keep: bool) -> str:
        """A reduction over dimensions; most operators took them as attribute before version 18."""
        if not axes:
            return name
        if operator == "ReduceSum" or self.version >= 18:
            return self.node(operator, name, self.integers(list(axes)), keepdims=int(keep))
        return self.node(operator, name, axes=list(axes), keepdims=int(keep))

    def slices(
        self,
        name: str,
        axes: Sequence[int],
        starts: Sequence[int | Size],
        ends: Sequence[int | Size],
        steps: Sequence[int] | None = None,
    ) -> str:
        """Ranges along some dimensions."""
        if not axes:
            return name
        lists = [self.integers(list(one)) for one in (starts, ends, axes)]
        if steps is not None and any(step != 1 for step in steps):
            lists.append(self.integers(list(steps)))
        return self.node("Slice", name, *lists)


def _is_dynamic(value: Any) -> bool:
    if isinstance(value, (Size, Varying)):
        return True
    return isinstance(value, (list, tuple)) and any(map(_is_dynamic, value))
