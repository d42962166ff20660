"""The views: each is one index map."""

from __future__ import annotations

from collections.abc import Sequence

from metaop.elementwise.meta_op import where
from metaop.errors import ShapeError
from metaop.reindex.meta_op import reindex
from metaop.unified_graph import index_expr
from metaop.unified_graph.access import IndexMap, Within
from metaop.unified_graph.index_expr import IndexExpr, constant, lookup
from metaop.unified_graph.node import Node, Scalar, Shape, index_node


def broadcast_to(node: Node, shape: Shape) -> Node:
    """`node` repeated along new leading dimensions and along dimensions of extent 1."""
    if node.shape == tuple(shape):
        return node
    offset = len(shape) - node.ndim
    axes = IndexMap.axes(shape)
    indices = [
        constant(0) if extent == 1 else axes[offset + k] for k, extent in enumerate(node.shape)
    ]
    return reindex(node, IndexMap(shape, indices))


def reshape(node: Node, shape: Shape) -> Node:
    """The same elements in row-major order under another shape of equal size."""
    shape = tuple(shape)
    if node.shape == shape:
        return node
    if node.size == 0:
        return reindex(node, IndexMap(shape, [constant(0)] * node.ndim))
    offset = index_expr.linear_offset(IndexMap.axes(shape), shape)
    return reindex(node, IndexMap(shape, index_expr.unravel(offset, node.shape)))


def permute(node: Node, order: Sequence[int]) -> Node:
    """Dimension `k` of the result is dimension `order[k]` of the input."""
    shape = tuple(node.shape[k] for k in order)
    axes = IndexMap.axes(shape)
    indices: list[IndexExpr] = [constant(0)] * node.ndim
    for position, source in enumerate(order):
        indices[source] = axes[position]
    return reindex(node, IndexMap(shape, indices))


def transpose(node: Node, first: int, second: int) -> Node:
    """Two dimensions exchanged."""
    order = list(range(node.ndim))
    order[first], order[second] = order[second], order[first]
    return permute(node, order)


def unsqueeze(node: Node, dim: int) -> Node:
    """A new dimension of extent 1 before dimension `dim` (non-negative)."""
    return reshape(node, (*node.shape[:dim], 1, *node.shape[dim:]))


def slice_dimension(node: Node, dim: int, start: int, length: int, step: int = 1) -> Node:
    """`length` elements of dimension `dim`: start, start + step, … (any step but 0)."""
    shape = (*node.shape[:dim], length, *node.shape[dim + 1 :])
    indices = list(IndexMap.axes(shape))
    indices[dim] = indices[dim] * step + start
    return reindex(node, IndexMap(shape, indices))


def select(node: Node, dim: int, position: int) -> Node:
    """Element `position` of dimension `dim`, which disappears."""
    shape = (*node.shape[:dim], *node.shape[dim + 1 :])
    indices = list(IndexMap.axes(shape))
    indices.insert(dim, constant(position))
    return reindex(node, IndexMap(shape, indices))


def pad(node: Node, before: Sequence[int], after: Sequence[int], fill: Scalar = 0) -> Node:
    """`fill` around the tensor; negative widths cut elements off."""
    shape = tuple(n + b + a for n, b, a in zip(node.shape, before, after))
    indices = [axis - width for axis, width in zip(IndexMap.axes(shape), before)]
    guards = [Within(index, extent) for index, extent in zip(indices, node.shape)]
    return reindex(node, IndexMap(shape, indices, guards), fill)


def roll(node: Node, shift: int, dim: int) -> Node:
    """Elements moved by `shift` along `dim`, those that fall off coming in at the other end."""
    extent = node.shape[dim]
    if extent == 0:
        return node
    indices = list(IndexMap.axes(node.shape))
    indices[dim] = (indices[dim] - shift % extent) % extent
    return reindex(node, IndexMap(node.shape, indices))


def flip(node: Node, dims: Sequence[int]) -> Node:
    """The order of the elements reversed along every dimension in `dims`."""
    indices = list(IndexMap.axes(node.shape))
    for dim in dims:
        indices[dim] = indices[dim] * -1 + (node.shape[dim] - 1)
    return reindex(node, IndexMap(node.shape, indices))


def windows(
    node: Node,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    fill: Scalar = 0,
    ceil_mode: bool = False,
) -> Node:
    """Sliding windows over the last dimensions: (…, *positions, *kernel), padded with `fill`.

    Window `o`, offset `k` reads element `o*stride + k*dilation - padding`.
    """
    leading = node.ndim - len(kernel)
    extents = node.shape[leading:]
    positions = [
        window_count(n, k, s, p, d, ceil_mode)
        for n, k, s, p, d in zip(extents, kernel, stride, padding, dilation)
    ]
    shape = (*node.shape[:leading], *positions, *kernel)
    axes = IndexMap.axes(shape)
    indices = list(axes[:leading])
    guards = []
    for k, extent in enumerate(extents):
        outer, inner = axes[leading + k], axes[leading + len(kernel) + k]
        index = outer * stride[k] + inner * dilation[k] - padding[k]
        indices.append(index)
        guards.append(Within(index, extent))
    return reindex(node, IndexMap(shape, indices, guards), fill)


def window_count(
    extent: int, kernel: int, stride: int, padding: int, dilation: int, ceil_mode: bool = False
) -> int:
    """How many windows fit; with `ceil_mode` a last partial one that starts inside counts too."""
    last = extent + 2 * padding - dilation * (kernel - 1) - 1
    if ceil_mode:
        beyond = min(stride - 1, dilation * (kernel - 1) - padding)
        last += max(beyond, 0)
    return last // stride + 1


def gather(node: Node, dim: int, index: Node) -> Node:
    """`y[i, j] = node[i, index[i, j]]` for dim 1: PyTorch's gather."""
    axes = IndexMap.axes(index.shape)
    indices = list(axes)
    indices[dim] = lookup(1, axes, node.shape[dim])
    return reindex(node, IndexMap(index.shape, indices), 0, (index,))


def take(node: Node, dim: int, index: Node) -> Node:
    """Rows of dimension `dim` chosen by an index tensor of any shape, put in its place."""
    shape = (*node.shape[:dim], *index.shape, *node.shape[dim + 1 :])
    axes = IndexMap.axes(shape)
    inside = axes[dim : dim + index.ndim]
    chosen = lookup(1, inside, node.shape[dim])
    indices = (*axes[:dim], chosen, *axes[dim + index.ndim :])
    return reindex(node, IndexMap(shape, indices), 0, (index,))


def concatenate(nodes: Sequence[Node], dim: int) -> Node:
    """Tensors of one dtype behind each other along `dim`: guarded reads joined by selection.

    Their other extents are equal; of symbolic ones that becomes a guard.
    """
    for node in nodes[1:]:
        for k, extent in enumerate(nodes[0].shape):
            if k != dim and node.shape[k] != extent:
                raise ShapeError(
                    f"cat: shapes {list(nodes[0].shape)} and {list(node.shape)} differ outside of "
                    f"dimension {dim}"
                )
    total = sum(node.shape[dim] for node in nodes)
    shape = (*nodes[0].shape[:dim], total, *nodes[0].shape[dim + 1 :])
    position = index_expr.axis(dim, total)
    result: Node | None = None
    start = total
    for node in reversed(nodes):
        start -= node.shape[dim]
        if node.shape[dim] == 0:
            continue
        indices = list(IndexMap.axes(shape))
        indices[dim] = position - start
        piece = reindex(node, IndexMap(shape, indices, [Within(indices[dim], node.shape[dim])]))
        if result is None:
            result = piece
        else:
            inside = index_node_below(position, start + node.shape[dim], shape)
            result = where(inside, piece, result)
    return result if result is not None else nodes[0]


def index_node_below(position: IndexExpr, bound: int, shape: Shape) -> Node:
    """The truth of `position < bound` at every point of `shape`."""
    return index_node(position, shape) < bound
