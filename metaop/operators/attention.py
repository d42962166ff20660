"""Scaled dot-product attention: two contractions with a softmax between them."""

from __future__ import annotations

import math
from typing import NamedTuple

from metaop.elementwise.meta_op import apply, cast, where
from metaop.errors import ShapeError
from metaop.operators.dropout import dropout
from metaop.operators.expressions import index_along, stop_gradient
from metaop.operators.linear import require_one_dtype
from metaop.reduce.meta_op import reduce_axes
from metaop.reindex.meta_op import reindex
from metaop.reindex.views import reshape, transpose, unsqueeze
from metaop.unified_graph.access import IndexMap
from metaop.unified_graph.composite import composite
from metaop.unified_graph.dtype import DType
from metaop.unified_graph.node import Node, constant


@composite
def attention(
    query: Node,
    key: Node,
    value: Node,
    mask: Node | None,
    seed: Node | None,
    probability: float,
    causal: bool,
    scale: float | None,
    grouped: bool,
) -> Node:
    """softmax(query key^T * scale + mask) value: (…, L, E), (…, S, E), (…, S, V) -> (…, L, V).

    A boolean mask is true at keys that take part. Rows without any such key give zeros.
    With `grouped`, several query heads (dimension -3) share a key and value head.
    """
    if grouped:
        key, value = _repeated(key, query), _repeated(value, query)
    weights = _weights(query, key, value, mask, seed, probability, causal, scale)
    return _mixed(weights, value)


@composite
def attention_with_weights(
    query: Node,
    key: Node,
    value: Node,
    mask: Node | None,
    seed: Node | None,
    probability: float,
) -> tuple[Node, Node]:
    """`attention` and its weights (…, L, S) after dropout."""
    weights = _weights(query, key, value, mask, seed, probability, False, None)
    return _mixed(weights, value), cast(weights, value.dtype)


@composite
def attention_scores(query: Node, key: Node, scale: float, grouped: bool) -> Node:
    """query key^T * scale in the compute type: (…, L, E), (…, S, E) -> (…, L, S).

    With `grouped`, several query heads (dimension -3) share a key head.
    """
    return _scores(query, _repeated(key, query) if grouped else key, scale)


@composite
def attention_of_scores(
    scores: Node, allowed: Node | None, value: Node, grouped: bool
) -> tuple[Node, ...]:
    """softmax(scores) value, where `allowed`: (…, L, S), (…, S, V) -> (…, L, V).

    Rows without any allowed key give zeros. Further results are the logarithm of the sum of the
    exponentials of each row and its largest score, both (…, L) and -inf for such rows.
    """
    scores = cast(scores, value.dtype.compute)
    if allowed is not None:
        scores = where(allowed, scores, -math.inf)
    weights, total, largest = _softmax(scores, True)
    total, largest = (reshape(x, scores.shape[:-1]) for x in (total, largest))
    empty = total.equals(0)
    logarithm = apply("log", where(empty, 1, total)) + largest
    statistics = [where(empty, -math.inf, x) for x in (logarithm, largest)]
    return _mixed(weights, _repeated(value, scores) if grouped else value), *statistics


@composite
def additive_mask(excluded: Node, dtype: DType) -> Node:
    """The additive form of a mask: -inf where `excluded` is true, else 0."""
    return where(excluded, constant(-math.inf, dtype), 0)


def _weights(
    query: Node,
    key: Node,
    value: Node,
    mask: Node | None,
    seed: Node | None,
    probability: float,
    causal: bool,
    scale: float | None,
) -> Node:
    """The softmax of the masked scores, with dropout, in the compute type: (…, L, S)."""
    require_one_dtype("scaled_dot_product_attention", query=query, key=key, value=value)
    _check(query, key, value)
    if scale is None:
        scale = 1.0 / math.sqrt(query.shape[-1])
    scores = _masked(_scores(query, key, scale), mask, causal)
    weights = _softmax(scores, mask is not None).weights
    return weights if seed is None else dropout(weights, seed, probability, None)


def _scores(query: Node, key: Node, scale: float) -> Node:
    compute = query.dtype.compute
    rows = unsqueeze(cast(query, compute), query.ndim - 1)
    columns = unsqueeze(cast(key, compute), key.ndim - 2)
    product = rows * columns
    return reduce_axes("add", product, [product.ndim - 1]) * scale


def _mixed(weights: Node, value: Node) -> Node:
    """The weighted sums of the values."""
    values = unsqueeze(_swapped(cast(value, weights.dtype)), value.ndim - 2)
    product = unsqueeze(weights, weights.ndim - 1) * values
    return cast(reduce_axes("add", product, [product.ndim - 1]), value.dtype)


def _masked(scores: Node, mask: Node | None, causal: bool) -> Node:
    if causal:
        row, column = scores.ndim - 2, scores.ndim - 1
        allowed = index_along(scores.shape, column) <= index_along(scores.shape, row)
        scores = where(allowed, scores, -math.inf)
    if mask is None:
        return scores
    if mask.dtype.kind == "bool":
        return where(mask, scores, -math.inf)
    return scores + cast(mask, scores.dtype)


class _Softmax(NamedTuple):
    """The weights of rows of scores; the sum of exp(scores - largest) and the largest score.

    Of rows without any key, which only a mask leaves, both are 0.
    """

    weights: Node
    total: Node
    largest: Node


def _softmax(scores: Node, masked: bool) -> _Softmax:
    last = [scores.ndim - 1]
    largest = stop_gradient(reduce_axes("max", scores, last, keepdim=True))
    if masked:
        largest = where(largest.equals(-math.inf), 0, largest)
    powers = apply("exp", scores - largest)
    total = reduce_axes("add", powers, last, keepdim=True)
    divisor = where(total.equals(0), 1, total) if masked else total
    # One division per row; the total is at least 1.
    return _Softmax(powers * apply("reciprocal", divisor), total, largest)


def _repeated(shared: Node, query: Node) -> Node:
    """Each key or value head, repeated for the query heads that share it."""
    heads = query.shape[-3]
    shape = (*shared.shape[:-3], heads, *shared.shape[-2:])
    indices = list(IndexMap.axes(shape))
    indices[-3] = indices[-3] // (heads // shared.shape[-3])
    return reindex(shared, IndexMap(shape, indices))


def _swapped(node: Node) -> Node:
    return transpose(node, node.ndim - 2, node.ndim - 1)


def _check(query: Node, key: Node, value: Node) -> None:
    shapes = [list(node.shape) for node in (query, key, value)]
    if min(map(len, shapes)) < 2 or query.shape[-1] != key.shape[-1]:
        raise ShapeError(
            f"scaled_dot_product_attention: query {shapes[0]} and key {shapes[1]} must have one "
            "last dimension",
            fix="query is (…, L, E), key (…, S, E), value (…, S, V)",
        )
    if key.shape[-2] != value.shape[-2]:
        raise ShapeError(
            f"scaled_dot_product_attention: key {shapes[1]} and value {shapes[2]} must have one "
            "sequence length",
            fix="key is (…, S, E), value (…, S, V)",
        )
