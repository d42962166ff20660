"""One version of a model: its program, its inputs, and how requests are computed together."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from metaop.autograd import no_grad
from metaop.errors import MetaopError
from metaop.export.graph_reader import dtype_named
from metaop.export.program import Program, Size
from metaop.export.structure import matched, put_together
from metaop.serving.datatypes import datatype_of
from metaop.serving.rows import DependentError, Rows, rows_of
from metaop.tensor.core import Tensor, from_array
from metaop.unified_graph.dtype import DType

Arrays = list[np.ndarray]
_KEPT_PROOFS = 1024
# A second number of rows besides the example's: it triggers compilation for any number.
_SECOND_ROWS = (3, 2)


class Fit(NamedTuple):
    """How inputs fit a model: requests with one `key` may be joined; they have `rows` rows."""

    key: Hashable
    rows: int


class Model:
    """A program with a name and a version. All computations run on one thread.

    `counted` is the size along which requests may be joined, or None with a `reason`. The numbers
    of rows in `usual` have their own compiled programs.
    """

    def __init__(self, name: str, version: str, program: Program) -> None:
        self.name, self.version, self.program = name, version, program
        self.inputs = program.inputs
        self.outputs = [
            (name, *_type_of(program, one["node"]))
            for name, one in zip(program.outputs, program.content["outputs"])
        ]
        self._proofs: dict[tuple[int, ...], Rows | None] = {}
        self.usual: dict[int, Program] = {}
        self.counted: Size | None = None
        self.reason = "the program has no named axis"
        example = {size.name: size.example for size in program.sizes}
        reasons = []
        for size in program.sizes:
            try:
                self._example = rows_of(program, size, _without(example, size.name))
            except DependentError as error:
                reasons.append(f"{size.name}: {error}")
            else:
                self.counted, self.reason = size, ""
                return
        self.reason = "; ".join(reasons) or self.reason

    def fit(self, arrays: Sequence[np.ndarray]) -> Fit:
        """The `Fit` of inputs. Raises ShapeError if the program does not accept their shapes."""
        sizes = self.program.sizes_of([array.shape for array in arrays])
        if self.counted is None:
            return Fit(object(), 1)
        rows = sizes.pop(self.counted.name)
        shared = [
            array.tobytes() for array, place in zip(arrays, self._example.inputs) if place is None
        ]
        return Fit((id(self), *sizes.values(), *shared), rows)

    def most_rows(self, most: int) -> int:
        """The number of rows that may be joined, at most `most`."""
        if self.counted is None or self.counted.max is None:
            return most
        return min(most, self.counted.max)

    def run(self, requests: Sequence[Sequence[np.ndarray]]) -> list[Arrays | BaseException]:
        """The outputs of requests with the same `Fit.key`, or the error of each.

        They are batched only if each provably gets the same result as alone.
        """
        rows = self._rows(requests[0]) if len(requests) > 1 else None
        if rows is not None:
            try:
                return list(self._together(requests, rows))
            except (MetaopError, MemoryError):
                pass  # one of them caused it; the others still get their results
        return [self._alone(one) for one in requests]

    def warm_up(self, most: int) -> None:
        """Compiles for powers of two up to `most` rows, and for others, so that requests need not
        wait for it.

        A program that sees a second size is compiled for any size, and later again for one that
        runs often. So each usual number of rows has its own copy of the program. With further sizes
        there would be too many. Raises MetaopError for a program that refuses zeros, its inputs
        here.
        """
        sizes = {size.name: size.example for size in self.program.sizes}
        self._run_zeros(self.program, sizes)
        if self.counted is None:
            return
        name, weights = self.counted.name, self.program.weights
        legal = [one for one in _SECOND_ROWS if self.counted.admits(one) and one != sizes[name]]
        if legal:
            self._run_zeros(self.program, {**sizes, name: legal[0]})
        for count in [1 << k for k in range(self.most_rows(most).bit_length())]:
            if self.counted.admits(count) and len(sizes) == 1:
                copy = Program(self.program.content, weights, self.name)
                self._run_zeros(copy, {name: count})
                self.usual[count] = copy

    def _run_zeros(self, program: Program, sizes: Mapping[str, int]) -> None:
        shapes = [[sizes[n] if isinstance(n, str) else n for n in x.shape] for x in self.inputs]
        arrays = [np.zeros(n, x.dtype.numpy) for n, x in zip(shapes, self.inputs)]
        self.computed(program, arrays)

    def metadata(self) -> dict[str, Any]:
        """The inputs and outputs in the protocol's format; -1 is any size."""
        return {
            "inputs": [_described(one.name, one.dtype, one.shape) for one in self.inputs],
            "outputs": [_described(*one) for one in self.outputs],
        }

    # --- on the thread that computes ------------------------------------------------------------

    def _rows(self, arrays: Sequence[np.ndarray]) -> Rows | None:
        """Where rows are for the sizes of a request; None if they may depend on each other."""
        if self.counted is None:
            return None
        others = _without(
            self.program.sizes_of([array.shape for array in arrays]), self.counted.name
        )
        key = tuple(others.values())
        if key not in self._proofs:
            if len(self._proofs) >= _KEPT_PROOFS:
                self._proofs.clear()
            try:
                self._proofs[key] = rows_of(self.program, self.counted, others)
            except DependentError:
                self._proofs[key] = None
        return self._proofs[key]

    def _together(self, requests: Sequence[Sequence[np.ndarray]], rows: Rows) -> list[Arrays]:
        joined, counts = [], []
        for number, place in enumerate(rows.inputs):
            parts = [one[number] for one in requests]
            if place is None:
                joined.append(parts[0].copy())
                continue
            joined.append(np.concatenate(parts, place.axis))
            counts = [part.shape[place.axis] // place.block for part in parts]
        outputs = self.computed_rows(joined)
        ends = np.cumsum(counts)
        found: list[Arrays] = [[] for _ in requests]
        for output, place in zip(outputs, rows.outputs):
            if place is None:
                parts = [output] * len(requests)
            else:
                parts = np.split(output, ends[:-1] * place.block, place.axis)
            for one, part in zip(found, parts):
                one.append(part)
        return found

    def _alone(self, arrays: Sequence[np.ndarray]) -> Arrays | BaseException:
        try:
            # Results may overwrite an input, but the request owns its body.
            return self.computed_rows([array.copy() for array in arrays])
        except Exception as error:
            return error

    def computed_rows(self, arrays: Arrays) -> Arrays:
        rows = 0
        if self.counted is not None:
            places = zip(arrays, self._example.inputs)
            rows = next(array.shape[place.axis] for array, place in places if place is not None)
        return self.computed(self.usual.get(rows, self.program), arrays)

    def computed(self, program: Program, arrays: Arrays) -> Arrays:
        """The outputs of a program, in memory that is not written again."""
        content = program.content
        with no_grad():
            tensors = [from_array(array, one.dtype) for array, one in zip(arrays, self.inputs)]
            names = [name for name, _ in content["arguments"]]
            values = [put_together(structure, tensors) for _, structure in content["arguments"]]
            result = program(**dict(zip(names, values)))
            found: dict[int, Tensor] = {}
            matched(content["results"], result, found, "result")
            return [found[k].numpy() for k in range(len(self.outputs))]


def _without(sizes: Mapping[str, int], name: str) -> dict[str, int]:
    return {key: value for key, value in sizes.items() if key != name}


def _type_of(program: Program, number: int) -> tuple[DType, Sequence[int | str]]:
    """The dtype and the shape of a node, with names and numbers of sizes in it."""
    node = program.content["nodes"][number]
    if node["op"] == "input":
        given = program.inputs[node["number"]]
        return given.dtype, given.shape
    if node["op"] == "weight":
        kind = list(program.weights.values())[node["number"]].call.type
        return kind.dtype, kind.shape
    return dtype_named(node["dtype"]), node["shape"]


def _described(name: str, dtype: DType, shape: Sequence[int | str]) -> dict[str, Any]:
    sizes = [-1 if isinstance(extent, str) else extent for extent in shape]
    return {"name": name, "datatype": datatype_of(dtype), "shape": sizes}
