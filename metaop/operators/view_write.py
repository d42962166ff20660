"""Writing through a view: replaces the elements of the base that the view covers."""

from __future__ import annotations

from typing import Any

from metaop.elementwise.meta_op import cast, where
from metaop.errors import InternalError, ShapeError
from metaop.operators.complex_numbers import numbers_of, pairs_of
from metaop.operators.indexing import Target
from metaop.operators.shaping import index
from metaop.reindex.inversion import inverse_map
from metaop.reindex.meta_op import Reindex
from metaop.reindex.reinterpret import as_numbers, as_pairs
from metaop.unified_graph.composite import Composite, composite
from metaop.unified_graph.node import Node, input_node
from metaop.unified_graph.tensor_type import TensorType

ViewSteps = tuple[tuple[Composite, tuple[Any, ...]], ...]

# Steps that reinterpret memory as another type, with their inverses.
_REINTERPRETED = {pairs_of: as_numbers, numbers_of: as_pairs}


def _shown(base: Node, steps: ViewSteps) -> Node:
    for step, attributes in steps:
        base = step(base, *attributes)
    return base


def _known_type(types: tuple[TensorType | None, ...], steps: ViewSteps) -> TensorType | None:
    """The type of the base, where basic indexing alone shows what is written."""
    return types[0] if all(step is index for step, _ in steps) else None


# Whether a view has each element once is provable for some numbers and not for others.
@composite(by_rule=False, known_type=_known_type)
def view_write(base: Node, value: Node, steps: ViewSteps) -> Node:
    """`base` with `value` in place of `steps(base)`.

    The index map of the view is scattered back: affine maps are inverted into guarded reads, so
    writing a slice is one elementwise selection. If a view covers an element several times
    (overlapping windows), the last write remains.
    """
    for position, (step, attributes) in enumerate(steps):
        if step in _REINTERPRETED:
            outer = _shown(base, steps[:position])
            inner = view_write(step(outer, *attributes), value, steps[position + 1 :])
            return view_write(base, _REINTERPRETED[step](inner), steps[:position])
    placeholder = input_node(0, base.shape, base.dtype)
    seen = _shown(placeholder, steps)
    value = cast(value, base.dtype)
    if seen is placeholder:
        return value
    if not (isinstance(seen.op, Reindex) and seen.inputs[0] is placeholder):
        raise InternalError(f"a view that is not one reindex of its base: {seen!r}")
    index_map = seen.op.map
    if index_map.is_guarded:
        raise ShapeError("writing through a padded view", fix="clone the view first")
    target = Target(index_map, base.shape, ())
    if value.size and inverse_map(index_map, base.shape)[1]:
        return target.last(value, base)
    return where(target.touched(), target.reduce("add", value), base)
