"""Distances and angles between vectors, and losses based on them."""

from __future__ import annotations

from metaop.elementwise.meta_op import apply, where
from metaop.errors import ShapeError
from metaop.operators.expressions import in_compute_type, in_promoted_type, reduce_loss
from metaop.operators.normalisation import norm
from metaop.reduce.meta_op import reduce_axes
from metaop.reindex.views import broadcast_to, reshape
from metaop.unified_graph.composite import composite
from metaop.unified_graph.node import Node, Shape


@composite
@in_promoted_type
def cosine_similarity(first: Node, second: Node, dim: int, eps: float) -> Node:
    """The cosine of the angle between vectors along `dim`, whose norms are clamped to `eps`."""
    product = first * second
    if not product.ndim:
        return cosine_similarity(reshape(first, (1,)), reshape(second, (1,)), 0, eps)
    dim = dim % product.ndim
    dot = reduce_axes("add", product, [dim])
    return dot / (_size(first, dim, product.shape, eps) * _size(second, dim, product.shape, eps))


def _size(node: Node, dim: int, shape: Shape, eps: float) -> Node:
    size = apply("clamp_min", norm(broadcast_to(node, shape), 2, [dim]), eps)
    return reshape(size, (*shape[:dim], *shape[dim + 1 :]))


@composite
@in_promoted_type
def pairwise_distance(first: Node, second: Node, power: float, eps: float, keepdim: bool) -> Node:
    """The norm of order `power` of `first - second + eps` over the last dimension."""
    return distance(first, second, power, eps, keepdim)


def distance(first: Node, second: Node, power: float, eps: float, keepdim: bool = False) -> Node:
    """The norm of `first - second + eps` over the last dimension."""
    difference = first - second + eps
    size = norm(difference, power, [difference.ndim - 1])
    return size if keepdim else reshape(size, size.shape[:-1])


@composite
@in_compute_type
def cosine_embedding_loss(
    first: Node, second: Node, target: Node, margin: float, reduction: str
) -> Node:
    """1 - cos if the target is 1, max(0, cos - margin) if it is -1."""
    if target.ndim + 1 != first.ndim or first.ndim != second.ndim or first.ndim > 2:
        raise ShapeError(
            f"cosine_embedding_loss: target {list(target.shape)} does not fit inputs "
            f"{list(first.shape)} and {list(second.shape)}",
            fix="inputs are (N, D) and target (N), or (D) and ()",
        )
    last = [first.ndim - 1]
    tiny = 1e-12
    squares = [reduce_axes("add", x * x, last) + tiny for x in (first, second)]
    cosine = reduce_axes("add", first * second, last) / apply("sqrt", squares[0] * squares[1])
    near = where(target.equals(1), 1.0 - cosine, 0)
    far = where(target.equals(-1), apply("clamp_min", cosine - margin, 0), 0)
    return reduce_loss(near + far, reduction)


@composite
@in_compute_type
def triplet_margin_loss(
    anchor: Node,
    positive: Node,
    negative: Node,
    margin: float,
    power: float,
    eps: float,
    swap: bool,
    reduction: str,
) -> Node:
    """max(0, d(anchor, positive) - d(anchor, negative) + margin).

    With `swap`, the negative's distance is the smaller one of those to anchor and positive.
    """
    near = distance(anchor, positive, power, eps)
    far = distance(anchor, negative, power, eps)
    if swap:
        far = apply("minimum", far, distance(positive, negative, power, eps))
    return reduce_loss(apply("clamp_min", near - far + margin, 0), reduction)
