"""The order in which a contraction on a GPU visits the axes of its depth.

Neighbouring steps should be neighbours in memory. The gradient of a convolution by its input visits
all channels before the next offset of the window; its weight has the offsets inside, so that every
element would be read with a sector of its own, once per offset.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from metaop.elementwise.meta_op import Elementwise
from metaop.fusion.inline import map_at
from metaop.fusion.kernel import box_axes
from metaop.fusion.recognise import Contraction
from metaop.reindex.meta_op import Reindex
from metaop.unified_graph import index_expr
from metaop.unified_graph.index_expr import Atom, Axis, IndexExpr
from metaop.unified_graph.node import Node

WARP = 32
# The elements that memory moves at once, and the steps that threads copy side by side.
_SECTOR, _STEPS = 8, 16


def depth_order(contraction: Contraction, shape: Sequence[int]) -> tuple[int, ...]:
    """The axes of the depth, outermost first, in the order that touches the least memory.

    It is the current one, or that of one of the factors in memory.
    """
    depth = contraction.depth
    sides = [(place, axes) for place, axes in _sides(contraction, shape) if place is not None]
    orders = [depth, *(_by_stride(place, depth) for place, _ in sides)]
    return min(orders, key=lambda order: sum(_touched(*one, order, shape) for one in sides))


def spread(contraction: Contraction, shape: Sequence[int]) -> tuple[float, float]:
    """How many times as much as they read warps touch of both factors."""
    found = (
        1.0 if place is None else _touched(place, axes, contraction.depth, shape) * _SECTOR / WARP
        for place, axes in _sides(contraction, shape)
    )
    left, right = (max(one, 1.0) for one in found)
    return left, right


def _sides(
    contraction: Contraction, shape: Sequence[int]
) -> list[tuple[IndexExpr | None, tuple[int, ...]]]:
    """The place in memory of both factors, and the axes that they have for themselves."""
    sides = ((contraction.left, contraction.rows), (contraction.right, contraction.columns))
    return [(_place(factor, shape), axes) for factor, axes in sides]


def _touched(
    place: IndexExpr, outer: Sequence[int], depth: Sequence[int], shape: Sequence[int]
) -> int:
    """The sectors that a warp touches along the depth or across it, whichever is less."""
    lane = np.arange(WARP)
    along = _indices(depth, shape, lane % _STEPS) | _indices(outer, shape, lane // _STEPS)
    across = _indices(outer, shape, lane)
    return min(sectors([place], along), sectors([place], across))


def _indices(
    axes: Sequence[int], shape: Sequence[int], position: np.ndarray
) -> dict[str, np.ndarray]:
    """The indices of joined axes at positions."""
    extents = [shape[k] for k in axes]
    if not axes:
        return {}
    found = np.unravel_index(position % math.prod(extents), extents)
    return {f"i{axis}": index for axis, index in zip(axes, found)}


def sectors(places: Sequence[IndexExpr], lanes: dict[str, np.ndarray]) -> int:
    """The sectors of memory that a warp touches at places, given the indices of its lanes."""

    return sum(np.unique(_evaluated(place, lanes) // _SECTOR).size for place in places)


def _evaluated(place: IndexExpr, lanes: dict[str, np.ndarray]) -> np.ndarray | int:
    """A place for the indices of lanes; others are 0."""

    def value(atom: Atom) -> np.ndarray | int:
        return lanes.get(str(atom.name), 0) if isinstance(atom, Axis) else 0

    return index_expr.evaluate(place, value)


def _by_stride(place: IndexExpr, depth: Sequence[int]) -> tuple[int, ...]:
    """The axes by their distance of neighbours in memory, the largest first."""

    def stride(axis: int) -> int:
        lanes = {f"i{axis}": np.arange(2)}
        return int(np.ptp(_evaluated(place, lanes)))

    return tuple(sorted(depth, key=stride, reverse=True))


def _place(factor: Node, shape: Sequence[int]) -> IndexExpr | None:
    """The offset in the node that a factor views, in the axes of the contraction."""
    at = box_axes(tuple(shape))
    while True:
        op, inputs = factor.op, factor.inputs
        if isinstance(op, Reindex) and not op.map.lookups():
            at, _ = map_at(op.map, at, lambda atom, *_: index_expr.of(atom))
        elif isinstance(op, Reindex):
            return None
        elif not (isinstance(op, Elementwise) and inputs and inputs[0].shape == factor.shape):
            return index_expr.linear_offset(at, factor.shape)
        factor = inputs[0]
