"""Losses: elementwise distances reduced to a number, and the likelihood of classes."""

from __future__ import annotations

import math

from metaop.elementwise.meta_op import apply, cast, where
from metaop.errors import DTypeError, ShapeError
from metaop.operators.activations import log_normalised
from metaop.operators.expressions import (
    in_compute_type,
    in_promoted_type,
    index_along,
    reduce_loss,
    stop_gradient,
)
from metaop.reduce.meta_op import reduce_axes
from metaop.reindex.meta_op import reindex
from metaop.reindex.views import broadcast_to, reshape, take, unsqueeze
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.access import IndexMap
from metaop.unified_graph.composite import composite
from metaop.unified_graph.index_expr import lookup
from metaop.unified_graph.node import Node
from metaop.unified_graph.symbolic import as_float


@composite
@in_compute_type
def nll_loss(
    input: Node, target: Node, weight: Node | None, ignore_index: int, reduction: str
) -> Node:
    """The negative log-probability of the target class.

    input (N, C, …) or (C) holds log-probabilities, target (N, …) or () class indices, weight (C)
    scales the classes. "mean" divides by the sum of the weights of the targets not ignored.
    """
    return _weighted(*_likelihood(input, target, weight, ignore_index, "nll_loss"), reduction)


@composite
@in_compute_type
def cross_entropy_of_classes(
    input: Node,
    target: Node,
    weight: Node | None,
    ignore_index: int,
    reduction: str,
    smoothing: float,
) -> Node:
    """`nll_loss` of log_softmax; with smoothing, part of the target is spread over all classes."""
    dim = 0 if input.ndim == 1 else 1
    logarithms = log_normalised(input, dim)
    terms, scale = _likelihood(logarithms, target, weight, ignore_index, "cross_entropy")
    loss = _weighted(terms, scale, reduction)
    if smoothing == 0:
        return loss
    classes = input.shape[dim]
    spread = logarithms if weight is None else logarithms * _per_class(weight, input, dim)
    uniform = -reduce_axes("add", spread, [dim])
    uniform = where(target.equals(ignore_index), 0, uniform)
    uniform = _weighted(uniform, scale, reduction)
    return loss * (1.0 - smoothing) + uniform * (smoothing / classes)


@composite
@in_compute_type
def cross_entropy_of_probabilities(
    input: Node, target: Node, weight: Node | None, reduction: str, smoothing: float
) -> Node:
    """The negative log-probability expected under the target distribution, of input's shape."""
    if input.shape != target.shape:
        raise ShapeError(
            f"cross_entropy: probabilities {list(target.shape)} do not fit input "
            f"{list(input.shape)}",
            fix="class probabilities have the shape of the input; class indices are integers",
        )
    dim = 0 if input.ndim == 1 else 1
    if smoothing:
        target = target * (1.0 - smoothing) + smoothing / input.shape[dim]
    product = log_normalised(input, dim) * target
    if weight is not None:
        product = product * _per_class(weight, input, dim)
    loss = -reduce_axes("add", product, [dim])
    if reduction == "mean":
        return reduce_axes("add", loss, range(loss.ndim)) / as_float(max(loss.size, 1))
    return reduce_loss(loss, reduction)


def _likelihood(
    input: Node, target: Node, weight: Node | None, ignore_index: int, operator: str
) -> tuple[Node, Node]:
    """The negative weighted elements at the target classes, and the weights; 0 where ignored."""
    dim = 0 if input.ndim == 1 else 1
    expected = (*input.shape[:dim], *input.shape[dim + 1 :])
    if not input.ndim or target.shape != expected:
        raise ShapeError(
            f"{operator}: target {list(target.shape)} does not fit input {list(input.shape)}",
            fix=f"targets are class indices of shape {list(expected)}",
        )
    if target.dtype not in (dtypes.int64, dtypes.uint8):
        raise DTypeError(
            f"{operator}: expected target of int64 or uint8, got {target.dtype.name}",
            fix="convert it with .long()",
        )
    classes = input.shape[dim]
    if weight is not None and weight.shape != (classes,):
        raise ShapeError(
            f"{operator}: weight {list(weight.shape)} does not fit {classes} classes of input "
            f"{list(input.shape)}",
            fix=f"one weight per class: [{classes}]",
        )
    target = cast(target, dtypes.int64)
    counts = target.differs(ignore_index)
    chosen = where(counts, target, 0)
    axes = list(IndexMap.axes(target.shape))
    axes.insert(dim, lookup(1, axes, classes))
    picked = reindex(input, IndexMap(target.shape, axes), 0, (chosen,))
    if weight is None:
        return where(counts, -picked, 0), cast(counts, input.dtype)
    own = take(weight, 0, chosen)
    return where(counts, -picked * own, 0), where(counts, own, 0)


def _weighted(loss: Node, scale: Node, reduction: str) -> Node:
    if reduction != "mean":
        return reduce_loss(loss, reduction)
    dims = range(loss.ndim)
    return reduce_axes("add", loss, dims) / reduce_axes("add", scale, dims)


def _per_class(weight: Node, input: Node, dim: int) -> Node:
    return reshape(weight, (weight.size, *(1 for _ in input.shape[dim + 1 :])))


@composite
@in_promoted_type
def mse_loss(input: Node, target: Node, weight: Node | None, reduction: str) -> Node:
    """The squared difference."""
    difference = input - target
    return _mean_by_weight(difference * difference, weight, reduction)


@composite
@in_promoted_type
def l1_loss(input: Node, target: Node, weight: Node | None, reduction: str) -> Node:
    """The absolute difference."""
    return _mean_by_weight(apply("abs", input - target), weight, reduction)


@composite
@in_compute_type
def huber_loss(
    input: Node, target: Node, weight: Node | None, reduction: str, delta: float
) -> Node:
    """Half the square of differences below `delta`, linear beyond."""
    distance = apply("abs", input - target)
    loss = where(distance <= delta, distance * distance * 0.5, (distance - 0.5 * delta) * delta)
    # Unlike the other losses, this one divides by the number of elements, not by the weights.
    return reduce_loss(loss if weight is None else loss * weight, reduction)


@composite
@in_promoted_type
def smooth_l1_loss(input: Node, target: Node, reduction: str, beta: float) -> Node:
    """The Huber loss divided by `beta`; the absolute difference if beta is 0."""
    distance = apply("abs", input - target)
    if beta == 0:
        return reduce_loss(distance, reduction)
    loss = where(distance < beta, distance * distance * (0.5 / beta), distance - 0.5 * beta)
    return reduce_loss(loss, reduction)


def _mean_by_weight(loss: Node, weight: Node | None, reduction: str) -> Node:
    if weight is None:
        return reduce_loss(loss, reduction)
    weighted = loss * weight
    if reduction != "mean":
        return reduce_loss(weighted, reduction)
    dims = range(weighted.ndim)
    total = reduce_axes("add", broadcast_to(weight, weighted.shape), dims)
    return reduce_axes("add", weighted, dims) / total


@composite
@in_compute_type
def binary_cross_entropy(input: Node, target: Node, weight: Node | None, reduction: str) -> Node:
    """-(t log(x) + (1 - t) log(1 - x)), each logarithm -100 at least; x and t in 0 … 1."""
    input, target = apply("input_in_unit", input), apply("target_in_unit", target)
    loss = -(target * _bounded_log(input) + (1.0 - target) * _bounded_log(1.0 - input))
    return reduce_loss(loss if weight is None else loss * weight, reduction)


def _bounded_log(node: Node) -> Node:
    # The operand is made positive first: an infinite slope times zero would make the gradient NaN.
    positive = node > 0
    logarithm = apply("clamp_min", apply("log", where(positive, node, 1)), -100)
    return where(positive, logarithm, -100)


@composite
@in_compute_type
def binary_cross_entropy_with_logits(
    input: Node, target: Node, weight: Node | None, positive_weight: Node | None, reduction: str
) -> Node:
    """`binary_cross_entropy` of sigmoid(x), stable for large x; positives may weigh more."""
    logarithm = apply("logsigmoid", input)
    factor = 1.0 - target
    if positive_weight is None:
        loss = factor * input - logarithm
    else:
        scale = (positive_weight - 1.0) * target + 1.0
        loss = factor * input - scale * logarithm
    return reduce_loss(loss if weight is None else loss * weight, reduction)


@composite
@in_promoted_type
def kl_div(input: Node, target: Node, reduction: str, log_target: bool) -> Node:
    """t * (log(t) - x): the divergence of exp(x) from the target distribution."""
    if log_target:
        loss = apply("exp", target) * (target - input)
    else:
        loss = apply("xlogy", target, target) - target * input
    if reduction == "batchmean":
        total = reduce_axes("add", loss, range(loss.ndim))
        return total / as_float(input.shape[0] if input.ndim else 1)
    return reduce_loss(loss, reduction)


@composite
@in_compute_type
def poisson_nll_loss(
    input: Node, target: Node, log_input: bool, full: bool, eps: float, reduction: str
) -> Node:
    """The negative log-likelihood of counts under a Poisson distribution of (log-)rate `input`."""
    if log_input:
        loss = apply("exp", input) - target * input
    else:
        loss = input - target * apply("log", input + eps)
    if full:
        safe = where(target > 1, target, 2)
        stirling = safe * apply("log", safe) - safe + apply("log", safe * (2 * math.pi)) * 0.5
        loss = loss + where(target > 1, stirling, 0)
    return reduce_loss(loss, reduction)


@composite
@in_compute_type
def gaussian_nll_loss(
    input: Node, target: Node, variance: Node, full: bool, eps: float, reduction: str
) -> Node:
    """The negative log-likelihood under a normal distribution of mean `input`; variance >= eps."""
    # As in PyTorch, the clamp has a straight-through gradient: it always reaches the variance.
    safe = variance + stop_gradient(apply("clamp_min", variance, eps) - variance)
    difference = input - target
    loss = (apply("log", safe) + difference * difference / safe) * 0.5
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    return reduce_loss(loss, reduction)


@composite
@in_compute_type
def hinge_embedding_loss(input: Node, target: Node, margin: float, reduction: str) -> Node:
    """x if the target is 1, max(0, margin - x) if it is -1."""
    apart = where(target.differs(1), apply("clamp_min", margin - input, 0), 0)
    near = where(target.differs(-1), input, 0)
    return reduce_loss(apart + near, reduction)


@composite
@in_compute_type
def margin_ranking_loss(
    first: Node, second: Node, target: Node, margin: float, reduction: str
) -> Node:
    """max(0, -t * (x1 - x2) + margin)."""
    return reduce_loss(apply("clamp_min", -target * (first - second) + margin, 0), reduction)


@composite
@in_compute_type
def soft_margin_loss(input: Node, target: Node, reduction: str) -> Node:
    """log(1 + exp(-t * x))."""
    return reduce_loss(apply("softplus", -target * input), reduction)


@composite
@in_compute_type
def multilabel_soft_margin_loss(
    input: Node, target: Node, weight: Node | None, reduction: str
) -> Node:
    """The mean over classes of the binary cross-entropy with logits."""
    positive, negative = apply("logsigmoid", input), apply("logsigmoid", -input)
    loss = -(target * positive + (1.0 - target) * negative)
    if weight is not None:
        loss = loss * weight
    classes = input.shape[-1]
    return reduce_loss(reduce_axes("add", loss, [input.ndim - 1]) / as_float(classes), reduction)


@composite
@in_compute_type
def multi_margin_loss(
    input: Node, target: Node, weight: Node | None, power: int, margin: float, reduction: str
) -> Node:
    """The mean over wrong classes of max(0, margin - x[target] + x[class]) ** power."""
    batched = input if input.ndim == 2 else reshape(input, (1, input.size))
    classes = reshape(target, (batched.shape[0],))
    axes = IndexMap.axes(classes.shape)
    own = lookup(1, axes, batched.shape[1])
    picked = reindex(batched, IndexMap(classes.shape, [*axes, own]), 0, (classes,))
    gap = apply("clamp_min", margin - unsqueeze(picked, 1) + batched, 0)
    gap = gap * gap if power == 2 else gap
    if weight is not None:
        gap = gap * unsqueeze(take(weight, 0, classes), 1)
    wrong = index_along(batched.shape, 1).differs(unsqueeze(classes, 1))
    loss = reduce_axes("add", where(wrong, gap, 0), [1]) / as_float(batched.shape[1])
    return reduce_loss(loss if input.ndim == 2 else reshape(loss, ()), reduction)


@composite
@in_compute_type
def multilabel_margin_loss(input: Node, target: Node, reduction: str) -> Node:
    """The hinge between every target class and every other class; targets end at the first -1."""
    batched = input if input.ndim == 2 else reshape(input, (1, input.size))
    labels = reshape(target, batched.shape)
    batch, classes = batched.shape
    column = index_along((batch, classes), 1)
    ended = reduce_axes("min", where(labels < 0, column, classes), [1], keepdim=True)
    valid = column < ended
    chosen = where(valid, labels, 0)
    # is_target[n, c]: class c is among the labels of sample n.
    place = index_along((batch, classes, classes), 2)
    hit = unsqueeze(chosen, 2).equals(place) & unsqueeze(valid, 2)
    is_target = reduce_axes("or", hit, [1])
    axes = IndexMap.axes(chosen.shape)
    own = lookup(1, axes, classes)
    picked = reindex(batched, IndexMap(chosen.shape, [axes[0], own]), 0, (chosen,))
    gap = apply("clamp_min", 1.0 - unsqueeze(picked, 2) + unsqueeze(batched, 1), 0)
    counts = unsqueeze(valid, 2) & ~unsqueeze(is_target, 1)
    loss = reduce_axes("add", where(counts, gap, 0), [1, 2]) / as_float(classes)
    return reduce_loss(loss if input.ndim == 2 else reshape(loss, ()), reduction)
