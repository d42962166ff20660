"""The sources of a recorded function's leaves: inputs, weights and numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from metaop.errors import ExportError, describe_location
from metaop.export.recorded import Recorded
from metaop.nn.module import Module
from metaop.unified_graph.cut import Subgraph
from metaop.unified_graph.recording import Call
from metaop.unified_graph.tensor_type import CPU


class Weights:
    """The arrays of a program by name: parameters and buffers of a module, constants.

    They are those that the graph reads; the others of the state_dict too if `whole`.
    """

    def __init__(self, model: Any, whole: bool = False) -> None:
        self.arrays: dict[str, np.ndarray] = {}
        self._names: dict[int, str] = {}
        self._known: dict[tuple[int | bytes, Any], int] = {}
        self._parameters: set[str] = set()
        self._buffers: set[str] = set()
        if isinstance(model, Module):
            self._parameters = {name for name, _ in model.named_parameters()}
            self._buffers = set(model.state_dict()) - self._parameters
            state = self._parameters | self._buffers
            for name, tensor in (*model.named_parameters(), *model.named_buffers()):
                if tensor.device is not CPU:
                    raise ExportError(
                        f"{name} is on {tensor.device}",
                        fix='move the module to the CPU: model.to("cpu")',
                    )
                self._names.setdefault(id(tensor.buffer()), name)
                if whole and name in state:
                    self.number(tensor.call)

    @property
    def kinds(self) -> dict[str, list[str]]:
        """The names of the arrays that are parameters, and of those that are saved buffers."""
        groups = {"parameters": self._parameters, "buffers": self._buffers}
        return {
            kind: [name for name in self.arrays if name in group] for kind, group in groups.items()
        }

    def number(self, leaf: Call) -> int:
        """The number of the weight that is the value of a leaf."""
        name = self._names.get(id(leaf.buffer))
        array = leaf.buffer.view(leaf.type.shape, leaf.type.dtype.numpy)
        # The host recreates its constants whenever the function is recorded.
        content = array.tobytes() if name is None else id(leaf.buffer)
        key = content, leaf.type
        if key not in self._known:
            if name is None or name in self.arrays:
                name = f"{name or 'constant'}.{len(self.arrays)}"
            self._known[key] = len(self.arrays)
            self.arrays[name] = array
        return self._known[key]


def sources_of(recorded: Recorded, leaves: Sequence[Call], weights: Weights) -> list[Any]:
    """The record of each leaf in a graph; one of the leaves may be a result.

    Records of Python numbers have the number as `value`.
    """
    inputs = {id(buffer): number for number, buffer in enumerate(recorded.buffers)}
    found: list[Any] = []
    for leaf in leaves:
        if leaf.scalar is not None:
            found.append({"value": leaf.scalar})
        elif id(leaf.buffer) in inputs:
            found.append({"op": "input", "number": inputs[id(leaf.buffer)]})
        else:
            found.append({"op": "weight", "number": weights.number(leaf)})
    return found


def constant_record(value: Any, leaf: Call) -> dict[str, Any]:
    """The record of a Python number."""
    dtype = leaf.type.dtype
    bits = np.asarray(value).astype(dtype.numpy).tobytes().hex()
    return {"op": "constant", "dtype": dtype.name, "shape": [], "bits": bits}


def check_alike(one: Recorded, other: Recorded, sizes: Mapping[str, int]) -> None:
    """Rejects host constants that differ for other sizes, and swapped inputs."""
    first_inputs = {id(buffer): number for number, buffer in enumerate(one.buffers)}
    other_inputs = {id(buffer): number for number, buffer in enumerate(other.buffers)}
    pairs = [*zip(one.subgraph.leaves, other.subgraph.leaves), *zip(one.results, other.results)]
    for first, second in pairs:
        if first.is_pending or second.is_pending:
            continue
        number = first_inputs.get(id(first.buffer))
        if number != other_inputs.get(id(second.buffer)):
            raise ExportError(f"the function uses other inputs for {dict(sizes)}")
        if number is None and first.buffer is not second.buffer and not _is_same(first, second):
            raise ExportError(
                f"a constant of shape {list(first.type.shape)} that the host makes is another one "
                f"for {dict(sizes)}{used_at(one.subgraph, first)}",
                fix="make it with metaop.arange, metaop.full and the like",
            )


def _is_same(first: Call, second: Call) -> bool:
    """Whether two leaves have the same value, bit by bit."""
    if first.type is not second.type:
        return False
    shape, dtype = first.type.shape, first.type.dtype.numpy
    one, other = first.buffer.view(shape, dtype), second.buffer.view(shape, dtype)
    return one.tobytes() == other.tobytes()


def used_at(subgraph: Subgraph, leaf: Call) -> str:
    """Where a leaf is used, for a message."""
    users = [call for call in subgraph.order if leaf in subgraph.inputs_of(call)]
    where = describe_location(users[0].location) if users else ""
    return f" (used at {where})" if where else ""
