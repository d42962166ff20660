"""Embeddings: rows of a table looked up by indices, singly or summed in bags."""

from __future__ import annotations

from metaop.elementwise.meta_op import apply, cast, where
from metaop.errors import DTypeError, ShapeError
from metaop.operators.expressions import stop_gradient
from metaop.operators.normalisation import norm
from metaop.reduce.meta_op import reduce_axes, reduce_with_map
from metaop.reindex.views import reshape, take, unsqueeze
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.access import IndexMap
from metaop.unified_graph.composite import composite
from metaop.unified_graph.index_expr import lookup
from metaop.unified_graph.node import Node, constant, index_node


@composite
def embedding(indices: Node, weight: Node, padding: int | None, scale_by_frequency: bool) -> Node:
    """Rows of `weight` (V, E) at `indices` (…): (…, E).

    The row `padding` gets no gradient. With `scale_by_frequency`, the gradient of a row is divided
    by the number of its uses.
    """
    indices = _checked_indices("embedding", indices, weight)
    rows = take(weight, 0, indices)
    if padding is not None:
        rows = where(unsqueeze(indices, indices.ndim).equals(padding), stop_gradient(rows), rows)
    if scale_by_frequency:
        share = 1.0 / cast(_uses(indices, weight.shape[0]), rows.dtype)
        scale = unsqueeze(take(share, 0, indices), indices.ndim)
        # The value does not change, but gradients flow through the scaled part only.
        fixed = stop_gradient(rows)
        rows = fixed + (rows - fixed) * scale
    return rows


def _checked_indices(operator: str, indices: Node, weight: Node) -> Node:
    if indices.dtype not in (dtypes.int64, dtypes.int32):
        raise DTypeError(
            f"{operator}: expected indices of int64 or int32, got {indices.dtype.name}",
            fix="convert them with .long()",
        )
    if weight.ndim != 2:
        raise ShapeError(
            f"{operator}: weight {list(weight.shape)} must be (rows, features)",
            fix="use index_select for tables of other shapes",
        )
    return cast(indices, dtypes.int64)


def _uses(indices: Node, rows: int) -> Node:
    """The number of uses of each row."""
    ones = constant(1, dtypes.int64, indices.shape)
    own = lookup(1, IndexMap.axes(indices.shape), rows)
    return reduce_with_map("add", ones, IndexMap(indices.shape, [own]), (rows,), (indices,))


@composite
def renormalised(weight: Node, indices: Node, limit: float, power: float) -> Node:
    """`weight` with the rows at `indices` scaled down to a norm of `limit` where it is larger."""
    indices = _checked_indices("embedding", indices, weight)
    size = norm(weight, power, [1])
    used = unsqueeze(_uses(indices, weight.shape[0]) > 0, 1)
    return where(used & (size > limit), weight * (limit / (size + 1e-7)), weight)


@composite
def embedding_bag(
    indices: Node,
    weight: Node,
    offsets: Node | None,
    sample_weights: Node | None,
    mode: str,
    padding: int | None,
    bags: int,
) -> Node:
    """Rows of `weight` combined per bag by "sum", "mean" or "max": (bags, E).

    Bags are the rows of two-dimensional indices, or begin at `offsets` in one-dimensional ones.
    Empty bags give zeros; the row `padding` does not count.
    """
    indices = _checked_indices("embedding_bag", indices, weight)
    if offsets is None:
        positions = index_node(IndexMap.axes(indices.shape)[0], indices.shape)
    else:
        begins = unsqueeze(cast(offsets, dtypes.int64), 0)
        place = index_node(IndexMap.axes((indices.size, 1))[0], (indices.size, 1))
        before = cast(begins <= place, dtypes.int64)
        positions = reduce_axes("add", before, [1]) - 1
    flat = reshape(indices, (indices.size,))
    rows = take(weight, 0, flat)
    counts = constant(True, dtypes.bool_, flat.shape) if padding is None else flat.differs(padding)
    if sample_weights is not None:
        rows = rows * reshape(sample_weights, (flat.size, 1))
    bag = reshape(positions, (flat.size,))
    axes = IndexMap.axes(rows.shape)
    own = lookup(1, axes[:1], bags)
    target = IndexMap(rows.shape, [own, axes[1]])
    result = (bags, weight.shape[1])
    members = reduce_with_map(
        "add", cast(counts, rows.dtype), IndexMap(flat.shape, [own]), (bags,), (bag,)
    )
    members = unsqueeze(members, 1)
    if mode == "max":
        low = where(unsqueeze(counts, 1), rows, rows.dtype.lowest)
        largest = reduce_with_map("max", low, target, result, (bag,))
        return where(members > 0, largest, 0)
    kept = where(unsqueeze(counts, 1), rows, 0)
    total = reduce_with_map("add", kept, target, result, (bag,))
    return total if mode == "sum" else total / apply("clamp_min", members, 1)


@composite
def one_hot(indices: Node, classes: int) -> Node:
    """1 at the class of each element, 0 elsewhere: (…) -> (…, classes), int64."""
    axes = IndexMap.axes(indices.shape)
    target = IndexMap(indices.shape, [*axes, lookup(1, axes, classes)])
    ones = constant(1, dtypes.int64, indices.shape)
    return reduce_with_map("add", ones, target, (*indices.shape, classes), (indices,))
