"""Sums over channels before those over shifts, for images that many shifts leave.

A transposed convolution, such as the gradient of one without padding by its input, reads an image
through shifts that often leave it: `sum over t, k of A[m, t, k] * B[k, p - t]`, where `B` is zero
outside. Its products can be summed over `k` first, for all elements of `B`, and the shifted sums
over `t` afterwards. Nothing outside `B` is multiplied then, and `B` is not repeated for each shift.
The sums between take memory, so this pays only if many shifts leave the image.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from metaop.fusion.recognise import Contraction, presumed_buffers, sum_of_products
from metaop.reduce.meta_op import Reduce, reduce_axes, reduce_with_map
from metaop.reindex.meta_op import Reindex, reindex
from metaop.unified_graph import index_expr
from metaop.unified_graph.access import IndexMap, Within
from metaop.unified_graph.index_expr import Axis, IndexExpr
from metaop.unified_graph.node import Node
from metaop.unified_graph.rewrite import rebuild
from metaop.unified_graph.symbolic import hint_of, is_symbolic, surely_equal

# Gathering an element for a shift costs about as much as this many multiplications, and storing
# and reading a sum as this many.
_GATHERED, _STORED = 20, 32
# The most memory for the sums between.
_MOST_BYTES = 32 << 20
# What Winograd's method saves at least where it applies: windows of three taps along two axes.
_SAVED, _TAPS = 9 / 4, (3, 3)


class _Shifts(NamedTuple):
    """How a factor is read: its source, and the box axes by their use.

    Dimensions in `places` are read at sums of axes in `positions` and `taps`, each other one at an
    axis, or at 0 if it has only one element.
    """

    source: Node
    reading: IndexMap
    places: tuple[int, ...]
    positions: tuple[int, ...]
    taps: tuple[int, ...]


def sum_before_shift(outputs: Sequence[Node], saves_products: bool = False) -> list[Node]:
    """The outputs, with sums over channels before those over shifts where that saves time.

    Windows of three taps are compared with a method that `saves_products`, if there is one.
    """
    has_buffer = presumed_buffers(outputs)

    def transform(node: Node) -> Node:
        contraction = sum_of_products(node, has_buffer)
        if contraction is None or node.dtype is not node.dtype.compute:
            return node
        for factor, own in (
            (contraction.right, contraction.columns),
            (contraction.left, contraction.rows),
        ):
            shifts = _shifts_of(node, factor, own, contraction.depth)
            if shifts is not None and _pays(node, contraction, shifts, own, saves_products):
                return _in_order(node, contraction, factor, shifts)
        return node

    return rebuild(outputs, transform=transform)


def _shifts_of(
    node: Node, factor: Node, own: Sequence[int], depth: Sequence[int]
) -> _Shifts | None:
    """The shifts of a factor that no other factor shares; None for factors of another form."""
    op, shape = factor.op, node.inputs[0].shape
    if not isinstance(op, Reindex) or op.fill != 0 or op.map.lookups():
        return None
    if not op.map.guards or not all(isinstance(guard, Within) for guard in op.map.guards):
        return None
    source, used = factor.inputs[0], [_axes_of(index) for index in op.map.indices]
    if sum(map(len, used)) != len(set().union(*used)):
        return None
    places = tuple(d for d, axes in enumerate(used) if axes & set(own) and axes & set(depth))
    for dim, index in enumerate(op.map.indices):
        if dim in places:
            continue
        axis = next(iter(used[dim]), None)
        whole = index_expr.constant(0) if axis is None else index_expr.axis(axis, shape[axis])
        extent = 1 if axis is None else shape[axis]
        if index != whole or not surely_equal(source.shape[dim], extent):
            return None
    moved = set().union(*(used[dim] for dim in places))
    guarded = set().union(*(_axes_of(guard.expr) for guard in op.map.guards))
    if not guarded <= moved <= {*own, *depth}:
        return None
    positions, taps = (tuple(k for k in axes if k in moved) for axes in (own, depth))
    is_window = bool(taps) and not is_symbolic(math.prod(shape[k] for k in taps))
    is_sum = positions and is_window and len(taps) < len(depth)
    return _Shifts(source, op.map, places, positions, taps) if is_sum else None


def _pays(
    node: Node,
    contraction: Contraction,
    shifts: _Shifts,
    own: Sequence[int],
    saves_products: bool,
) -> bool:
    """Whether what is multiplied outside of the source costs more than storing sums between."""
    shape = node.inputs[0].shape
    others = contraction.rows if own is contraction.columns else contraction.columns
    rows, positions, taps, depth = (
        hint_of(math.prod(shape[k] for k in axes))
        for axes in (others, shifts.positions, shifts.taps, contraction.depth)
    )
    inside = hint_of(math.prod(shifts.source.shape[dim] for dim in shifts.places))
    stored = inside * taps * rows
    repeats = hint_of(node.size) // (positions * rows)
    if stored * repeats * node.dtype.itemsize > _MOST_BYTES:
        return False
    before, after = (size * depth * (rows + _GATHERED) for size in (positions, inside))
    if saves_products and tuple(shape[k] for k in shifts.taps) == _TAPS:
        before /= _SAVED
    return bool(before > after + stored * _STORED)


def _in_order(node: Node, contraction: Contraction, factor: Node, shifts: _Shifts) -> Node:
    """The sum over the taps of shifted sums over everything else."""
    op, product, source = node.op, node.inputs[0], shifts.source
    assert isinstance(op, Reduce)
    shape, indices = product.shape, shifts.reading.indices
    channels = [k for k in contraction.depth if k not in shifts.taps]
    shared = [k for k in range(len(shape)) if k not in (*shifts.positions, *contraction.depth)]
    # The box of the first sums: shared axes, taps, places in the source, channels.
    inside = {dim: source.shape[dim] for dim in shifts.places}
    outer, inner = (tuple(shape[k] for k in axes) for axes in ((*shared, *shifts.taps), channels))
    box = (*outer, *inside.values(), *inner)
    axes = list(IndexMap.axes(box))
    places = dict(zip(inside, axes[len(outer) :]))
    at = dict(zip((*shared, *shifts.taps), axes))
    at.update(zip(channels, axes[len(outer) + len(inside) :]))
    read = [places.get(dim) or _at(index, at) for dim, index in enumerate(indices)]
    here = [at.get(k, index_expr.constant(0)) for k in range(len(shape))]
    left, right = (
        reindex(source, IndexMap(box, read)) if one is factor else reindex(one, IndexMap(box, here))
        for one in product.inputs
    )
    sums = reduce_axes("add", left * right, range(len(outer) + len(inside), len(box)))
    # The box of the second sums: the old one without channels.
    rest = [k for k in range(len(shape)) if k not in channels]
    box = tuple(shape[k] for k in rest)
    at = dict(zip(rest, IndexMap.axes(box)))
    read = [at[k] for k in (*shared, *shifts.taps)] + [_at(indices[dim], at) for dim in inside]
    guards = [guard._replace(expr=_at(guard.expr, at)) for guard in shifts.reading.guards]
    shifted = reindex(sums, IndexMap(box, read, guards))
    results = IndexMap(box, [_at(index, at) for index in op.map.indices])
    return reduce_with_map("add", shifted, results, node.shape)


def _at(index: IndexExpr, axes: dict[int, IndexExpr]) -> IndexExpr:
    """An index with other axes."""
    return index.substitute(lambda atom: axes[int(atom.name)] if isinstance(atom, Axis) else None)


def _axes_of(index: IndexExpr) -> set[int]:
    """The axes of a map's domain in an index."""
    return {int(atom.name) for atom in index.atoms() if isinstance(atom, Axis)}
