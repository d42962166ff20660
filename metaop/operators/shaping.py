"""Operators that move elements: views, and copies that rearrange."""

from __future__ import annotations

from collections.abc import Sequence

from metaop.elementwise.meta_op import cast, where
from metaop.reindex import views
from metaop.reindex.meta_op import reindex
from metaop.unified_graph import index_expr
from metaop.unified_graph.access import IndexMap, Within
from metaop.unified_graph.composite import composite
from metaop.unified_graph.dtype import DType
from metaop.unified_graph.index_expr import IndexExpr
from metaop.unified_graph.node import Node, Scalar, Shape, index_node

# One item of a basic index: a position, (start, length, step), or None for a new dimension.
BasicItem = int | tuple[int, int, int] | None


@composite
def reshape(source: Node, shape: Shape) -> Node:
    """The elements in row-major order under another shape."""
    return views.reshape(source, shape)


@composite
def permute(source: Node, order: tuple[int, ...]) -> Node:
    """Dimension `k` of the result is dimension `order[k]` of the source."""
    return views.permute(source, order)


@composite
def index(source: Node, items: tuple[BasicItem, ...]) -> Node:
    """Basic indexing; `items` covers every dimension of the source."""
    shape: list[int] = []
    for item in items:
        if item is None:
            shape.append(1)
        elif isinstance(item, tuple):
            shape.append(item[1])
    axes = iter(IndexMap.axes(shape))
    indices: list[IndexExpr] = []
    for item in items:
        if item is None:
            next(axes)
        elif isinstance(item, tuple):
            indices.append(next(axes) * item[2] + item[0])
        else:
            indices.append(index_expr.constant(item))
    return reindex(source, IndexMap(shape, indices))


@composite
def narrow(source: Node, dim: int, start: int, length: int) -> Node:
    """`length` elements of dimension `dim` from `start`."""
    return views.slice_dimension(source, dim, start, length)


@composite
def select(source: Node, dim: int, position: int) -> Node:
    """Element `position` of dimension `dim`, which is removed."""
    return views.select(source, dim, position)


@composite
def diagonal(source: Node, offset: int, first: int, second: int) -> Node:
    """The elements with `index[second] - index[first] == offset`, as a new last dimension."""
    row, column = max(-offset, 0), max(offset, 0)
    length = max(min(source.shape[first] - row, source.shape[second] - column), 0)
    others = [k for k in range(source.ndim) if k not in (first, second)]
    shape = (*(source.shape[k] for k in others), length)
    axes = IndexMap.axes(shape)
    indices = [axes[-1]] * source.ndim
    for position, k in enumerate(others):
        indices[k] = axes[position]
    indices[first] = axes[-1] + row
    indices[second] = axes[-1] + column
    return reindex(source, IndexMap(shape, indices))


@composite
def unfold(source: Node, dim: int, size: int, step: int) -> Node:
    """All windows of `size` elements along `dim`, `step` apart, as a new last dimension."""
    count = (source.shape[dim] - size) // step + 1
    shape = (*source.shape[:dim], count, *source.shape[dim + 1 :], size)
    indices = list(IndexMap.axes(shape))
    indices[dim] = indices[dim] * step + indices.pop()
    return reindex(source, IndexMap(shape, indices))


@composite
def as_strided(source: Node, size: Shape, stride: tuple[int, ...], offset: int) -> Node:
    """Elements of the row-major storage at `offset + sum(stride * index)`."""
    place = index_expr.constant(offset)
    for axis, step in zip(IndexMap.axes(size), stride):
        place = place + axis * step
    flat = views.reshape(source, (source.size,))
    return reindex(flat, IndexMap(size, [place]))


@composite
def repeat(source: Node, counts: tuple[int, ...]) -> Node:
    """The tensor tiled `counts[k]` times along dimension `k`; new dimensions come first."""
    leading = len(counts) - source.ndim
    extents = (1,) * leading + source.shape
    shape = tuple(count * extent for count, extent in zip(counts, extents))
    axes = IndexMap.axes(shape)[leading:]
    indices = [axis % extent if extent else axis * 0 for axis, extent in zip(axes, source.shape)]
    return reindex(source, IndexMap(shape, indices))


@composite
def repeat_interleave(source: Node, count: int, dim: int) -> Node:
    """Every element of dimension `dim` repeated `count` times in a row."""
    shape = (*source.shape[:dim], source.shape[dim] * count, *source.shape[dim + 1 :])
    indices = list(IndexMap.axes(shape))
    indices[dim] = indices[dim] // count if count else indices[dim]
    return reindex(source, IndexMap(shape, indices))


@composite
def flip(source: Node, dims: tuple[int, ...]) -> Node:
    """The elements in reverse order along `dims`."""
    return views.flip(source, dims)


@composite
def roll(source: Node, shifts: tuple[int, ...], dims: tuple[int, ...]) -> Node:
    """The elements shifted along `dims`, wrapping around at the end."""
    for shift, dim in zip(shifts, dims):
        source = views.roll(source, shift, dim)
    return source


@composite(variadic=True)
def concatenate(sources: Sequence[Node], dim: int, dtype: DType) -> Node:
    """The tensors concatenated along `dim`, converted to `dtype`."""
    return views.concatenate([cast(source, dtype) for source in sources], dim)


@composite(variadic=True)
def stack(sources: Sequence[Node], dim: int, dtype: DType) -> Node:
    """Tensors of one shape concatenated along a new dimension `dim`."""
    return views.concatenate([views.unsqueeze(cast(x, dtype), dim) for x in sources], dim)


@composite
def pad(source: Node, before: tuple[int, ...], after: tuple[int, ...], fill: Scalar) -> Node:
    """The tensor surrounded by `fill`; negative widths remove elements."""
    return views.pad(source, before, after, fill)


@composite
def triangle(source: Node, diagonal: int, upper: bool) -> Node:
    """The matrices with zeros below (`upper`) or above diagonal number `diagonal`."""
    axes = IndexMap.axes(source.shape)
    place = index_node(axes[-1] - axes[-2], source.shape)
    kept = place >= diagonal if upper else place <= diagonal
    return where(kept, source, False if source.dtype.kind == "bool" else 0)


@composite
def diagonal_embed(source: Node, offset: int, first: int, second: int) -> Node:
    """Matrices over dimensions `first`, `second` with the last dimension on a diagonal."""
    length = source.shape[-1]
    extent = length + abs(offset)
    shape = list(source.shape[:-1])
    for dim in sorted((first, second)):
        shape.insert(dim, extent)
    axes = IndexMap.axes(shape)
    others = [axes[k] for k in range(len(shape)) if k not in (first, second)]
    position = axes[first] - max(-offset, 0)
    below = index_node(position, tuple(shape))
    inside = (below >= 0) & (below < length)
    inside = inside & index_node(axes[second] - axes[first], tuple(shape)).equals(offset)
    spread = IndexMap(shape, [*others, position], [Within(position, length)])
    return where(inside, reindex(source, spread), False if source.dtype.kind == "bool" else 0)
