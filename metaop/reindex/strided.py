"""Reading views where they lie: an affine reindex of computed values is a matter of strides."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from metaop.reindex.meta_op import Reindex
from metaop.unified_graph.access import IndexMap
from metaop.unified_graph.composite import Signature
from metaop.unified_graph.index_expr import Axis, linear_offset
from metaop.unified_graph.node import Input, Shape
from metaop.unified_graph.recording import Call
from metaop.unified_graph.symbolic import NotGeneralError
from metaop.unified_graph.tensor_type import CPU

# Places by the numbers of signatures, which programs that index in loops look up again and again.
_places: dict[int, Sequence[int] | None] = {}
_MOST_PLACES = 4096


def strided_values(call: Call) -> np.ndarray | None:
    """The values of a pending call that views computed ones in host memory, to be looked at only.

    None for every other call: its program has to run.
    """
    place = place_in_source(call)
    if place is None or call.type.size == 0:
        return None
    offset, *strides = place
    source = call.inputs[0]
    dtype = np.dtype(call.type.dtype.numpy)
    stored = source.buffer.view((source.type.size,), dtype)
    steps = [stride * dtype.itemsize for stride in strides]
    return np.ndarray(call.type.shape, dtype, stored, offset * dtype.itemsize, steps)


def place_in_source(call: Call) -> Sequence[int] | None:
    """Where in its computed input in host memory a pending view starts, and its strides there."""
    if call.buffer is not None or call.signature is None or len(call.inputs) != 1:
        return None
    source = call.inputs[0]
    if source.buffer is None or source.type.device is not CPU:
        return None
    number = call.signature.id
    try:
        return _places[number]
    except KeyError:
        if len(_places) >= _MOST_PLACES:
            _places.clear()
        found = _places[number] = _place_of(call.signature)
        return found


def _place_of(signature: Signature) -> Sequence[int] | None:
    """Where the first element of a view lies in its input, and how far neighbours are apart."""
    if signature.rule is not None:
        try:
            return signature.rule.derived_for(_place, signature.numbers)
        except NotGeneralError:
            pass
    return _place(signature)


def _place(signature: Signature) -> list[int] | None:
    view = signature.outputs[0]
    if isinstance(view.op, Input):
        return _steps(IndexMap.identity(view.shape), view.shape)
    if not isinstance(view.op, Reindex) or view.op.map.is_guarded or len(view.inputs) > 1:
        return None
    source = view.inputs[0]
    return _steps(view.op.map, source.shape) if isinstance(source.op, Input) else None


def _steps(index_map: IndexMap, shape: Shape) -> list[int] | None:
    offset = linear_offset(index_map.indices, shape)
    if not all(isinstance(atom, Axis) for atom, _ in offset.terms):
        return None
    steps = {atom.name: factor for atom, factor in offset.terms}  # type: ignore[attr-defined]
    return [offset.constant, *(steps.get(k, 0) for k in range(len(index_map.domain)))]
