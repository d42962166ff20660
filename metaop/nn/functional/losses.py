"""Losses. `reduction` is "mean", "sum" or "none"; size_average and reduce are deprecated."""

from __future__ import annotations

import warnings
from typing import Any

from metaop.errors import ArgumentError, ShapeError
from metaop.nn.functional.arguments import optional, reduction_of
from metaop.nn.functional.linear import linear
from metaop.operators import losses as operators
from metaop.tensor.core import Tensor, wrap
from metaop.tensor.functions.creation import full_like
from metaop.unified_graph.composite import Composite
from metaop.unified_graph.recording import record


def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """The negative log-probability of the target under softmax of the scores `input`.

    input (N, C, …) or (C); target holds class indices, (N, …) or (), or class probabilities of
    input's shape. Targets equal to `ignore_index` are ignored. Raises ArgumentError unless
    `label_smoothing` is between 0 and 1.

    >>> F.cross_entropy(metaop.tensor([[2.0, 0.0], [0.0, 0.0]]), metaop.tensor([0, 1]))
    tensor(0.4100)
    """
    reduction = reduction_of("cross_entropy", reduction, size_average, reduce)
    if not 0.0 <= label_smoothing <= 1.0:
        raise ArgumentError(
            f"cross_entropy: label_smoothing must be between 0.0 and 1.0, got {label_smoothing}",
            fix="it is the fraction of the target spread over all classes",
        )
    calls = (input.call, target.call, optional(weight))
    if target.dtype.kind == "float":
        attributes: tuple[Any, ...] = (reduction, label_smoothing)
        return wrap(record(operators.cross_entropy_of_probabilities, calls, attributes))
    attributes = (ignore_index, reduction, label_smoothing)
    return wrap(record(operators.cross_entropy_of_classes, calls, attributes))


def linear_cross_entropy(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    linear_bias: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    options: Any = None,
) -> Tensor:
    """`cross_entropy` of `linear(input, linear_weight, linear_bias)`.

    The weight is (C, in_features), or (C, d1, …, in_features) for targets (N, d1, …). `options`
    tune PyTorch's kernel and have no effect here. Raises ShapeError unless the input is
    (in_features) or (N, in_features).

    >>> weight = metaop.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> F.linear_cross_entropy(metaop.tensor([[2.0, 0.0]]), weight, metaop.tensor([0]))
    tensor(0.1269)
    """
    classes, *places = linear_weight.shape[:-1]
    if not 1 <= input.ndim <= 2 or (places and input.ndim == 1):
        raise ShapeError(
            f"linear_cross_entropy: input {list(input.shape)} does not fit the weight "
            f"{list(linear_weight.shape)}",
            fix="pass (in_features) or (N, in_features), with positions (N, in_features)",
        )
    flat = linear_weight.reshape(-1, linear_weight.shape[-1])
    logits = linear(input, flat, None if linear_bias is None else linear_bias.flatten())
    return cross_entropy(
        logits.reshape(*input.shape[:-1], classes, *places),
        target,
        weight=weight,
        reduction=reduction,
        ignore_index=-100 if ignore_index is None else ignore_index,
        label_smoothing=label_smoothing,
    )


def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """The negative log-probability of the target class.

    input holds log-probabilities, (N, C, …) or (C), and target class indices, (N, …) or ().
    `weight` (C) weights the classes, also in the mean.

    >>> F.nll_loss(metaop.tensor([[-0.5, -1.5]]), metaop.tensor([1]))
    tensor(1.5000)
    """
    reduction = reduction_of("nll_loss", reduction, size_average, reduce)
    calls = (input.call, target.call, optional(weight))
    return wrap(record(operators.nll_loss, calls, (ignore_index, reduction)))


def _pair(
    operator: Composite,
    input: Tensor,
    target: Tensor,
    others: tuple[Tensor | None, ...],
    attributes: tuple[Any, ...],
) -> Tensor:
    """A loss of two tensors that should have one shape; otherwise warns and broadcasts."""
    if input.call.type.shape != target.call.type.shape:
        warnings.warn(
            f"{operator.name}: target size {list(target.shape)} differs from input size "
            f"{list(input.shape)}; they are broadcast, which is rarely intended",
            stacklevel=3,
        )
    calls = (input.call, target.call, *map(optional, others))
    return wrap(record(operator, calls, attributes))


def mse_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """The squared difference; with `weight`, the mean is weighted.

    Both operands have one shape, which is that of the result with `reduction="none"`.

    >>> F.mse_loss(metaop.tensor([1.0, 2.0]), metaop.tensor([1.0, 5.0]))
    tensor(4.5000)
    """
    reduction = reduction_of("mse_loss", reduction, size_average, reduce)
    return _pair(operators.mse_loss, input, target, (weight,), (reduction,))


def l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """The absolute difference; with `weight`, the mean is weighted.

    Both operands have one shape, which is that of the result with `reduction="none"`.

    >>> F.l1_loss(metaop.tensor([1.0, 2.0]), metaop.tensor([1.0, 5.0]))
    tensor(1.5000)
    """
    reduction = reduction_of("l1_loss", reduction, size_average, reduce)
    return _pair(operators.l1_loss, input, target, (weight,), (reduction,))


def smooth_l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    beta: float = 1.0,
) -> Tensor:
    """The squared difference over 2 * beta below `beta`, the difference minus beta / 2 beyond.

    Both operands have one shape; `huber_loss` is `beta` times as large. From Girshick, "Fast R-CNN"
    (2015).

    >>> F.smooth_l1_loss(metaop.tensor([0.0, 0.0]), metaop.tensor([0.5, 3.0]), reduction="none")
    tensor([0.1250, 2.5000])
    """
    reduction = reduction_of("smooth_l1_loss", reduction, size_average, reduce)
    if beta < 0:
        raise ArgumentError(f"smooth_l1_loss: beta must not be negative, got {beta}", fix="negate")
    return _pair(operators.smooth_l1_loss, input, target, (), (reduction, float(beta)))


def huber_loss(
    input: Tensor,
    target: Tensor,
    reduction: str = "mean",
    delta: float = 1.0,
    weight: Tensor | None = None,
) -> Tensor:
    """Half the squared difference below `delta`, delta times (difference minus delta / 2) beyond.

    Both operands have one shape. From Huber, "Robust estimation of a location parameter" (1964).

    >>> F.huber_loss(metaop.tensor([0.0, 0.0]), metaop.tensor([0.5, 3.0]), reduction="none")
    tensor([0.1250, 2.5000])
    """
    reduction = reduction_of("huber_loss", reduction)
    if delta <= 0:
        raise ArgumentError(f"huber_loss: delta must be positive, got {delta}", fix="use delta > 0")
    return _pair(operators.huber_loss, input, target, (weight,), (reduction, float(delta)))


def binary_cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """-(t log(x) + (1 - t) log(1 - x)) for probabilities x; each logarithm is at least -100.

    Both operands have one shape. Prefer `binary_cross_entropy_with_logits`, which is more accurate.

    >>> F.binary_cross_entropy(metaop.tensor([0.5, 0.9]), metaop.tensor([0.0, 1.0]))
    tensor(0.3993)
    """
    reduction = reduction_of("binary_cross_entropy", reduction, size_average, reduce)
    _same_shape("binary_cross_entropy", input, target)
    return _pair(operators.binary_cross_entropy, input, target, (weight,), (reduction,))


def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """Binary cross-entropy of sigmoid(x), stable for large x; `pos_weight` scales positives.

    Both operands have one shape, with which `weight` and `pos_weight` broadcast.

    >>> F.binary_cross_entropy_with_logits(metaop.tensor([0.0, 1000.0]), metaop.tensor([0.0, 1.0]))
    tensor(0.3466)
    """
    reduction = reduction_of("binary_cross_entropy_with_logits", reduction, size_average, reduce)
    _same_shape("binary_cross_entropy_with_logits", input, target)
    operator = operators.binary_cross_entropy_with_logits
    return _pair(operator, input, target, (weight, pos_weight), (reduction,))


def _same_shape(operator: str, input: Tensor, target: Tensor) -> None:
    if input.shape != target.shape:
        raise ShapeError(
            f"{operator}: target size {list(target.shape)} must be the same as input size "
            f"{list(input.shape)}",
            fix="reshape, unsqueeze or expand the target",
        )


def kl_div(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    log_target: bool = False,
) -> Tensor:
    """t * (log(t) - x) for log-probabilities x; "batchmean" divides by the batch size alone.

    Summed, it is the Kullback-Leibler divergence of `target` from `input`, in nats. With
    `log_target`, the target holds log-probabilities too. Both operands have one shape.

    >>> target = metaop.tensor([[0.5, 0.5]])
    >>> F.kl_div(metaop.tensor([[0.25, 0.75]]).log(), target, reduction="batchmean")
    tensor(0.1438)
    """
    allowed = ("none", "mean", "sum", "batchmean")
    reduction = reduction_of("kl_div", reduction, size_average, reduce, allowed)
    if reduction == "mean":
        warnings.warn(
            "kl_div: reduction 'mean' divides by the batch size and the support size; 'batchmean' "
            "is the divergence by its mathematical definition",
            stacklevel=2,
        )
    calls = (input.call, target.call)
    return wrap(record(operators.kl_div, calls, (reduction, log_target)))


def poisson_nll_loss(
    input: Tensor,
    target: Tensor,
    log_input: bool = True,
    full: bool = False,
    size_average: bool | None = None,
    eps: float = 1e-8,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """exp(x) - t * x, or x - t * log(x + eps) without `log_input`: t counts events at rate exp(x).

    `full` adds Stirling's approximation of log(t!) where t exceeds 1. Both operands have one shape.

    >>> F.poisson_nll_loss(metaop.tensor([0.0, 1.0]), metaop.tensor([2.0, 3.0]))
    tensor(0.3591)
    """
    reduction = reduction_of("poisson_nll_loss", reduction, size_average, reduce)
    calls = (input.call, target.call)
    return wrap(record(operators.poisson_nll_loss, calls, (log_input, full, eps, reduction)))


def gaussian_nll_loss(
    input: Tensor,
    target: Tensor,
    var: Tensor | float,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:
    """The negative log-likelihood of `target` under a normal distribution.

    `input` is its mean, `var` its variance: in the shape of `input`, or without its last dimension,
    or with extent 1 there, or a number. Only with `full` the constant log(2 * pi) / 2 is added.

    >>> F.gaussian_nll_loss(metaop.tensor([0.0]), metaop.tensor([2.0]), metaop.tensor([4.0]))
    tensor(1.1931)
    """
    reduction = reduction_of("gaussian_nll_loss", reduction)
    if not isinstance(var, Tensor):
        var = full_like(input, var)
    call = var.call
    if var.ndim + 1 == input.ndim and tuple(var.shape) == tuple(input.shape)[:-1]:
        call = var.unsqueeze(-1).call  # type: ignore[attr-defined]
    elif var.shape != input.shape and tuple(var.shape) != (*tuple(input.shape)[:-1], 1):
        raise ShapeError(
            f"gaussian_nll_loss: var {list(var.shape)} does not fit input {list(input.shape)}",
            fix="give it input's shape, or extent 1 in the last dimension",
        )
    calls = (input.call, target.call, call)
    return wrap(record(operators.gaussian_nll_loss, calls, (full, eps, reduction)))


def hinge_embedding_loss(
    input: Tensor,
    target: Tensor,
    margin: float = 1.0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """x where the target is 1, max(0, margin - x) where it is -1.

    x is a distance between two items; the target, of the same shape, says whether they are similar.

    >>> distances, alike = metaop.tensor([0.25, 0.25]), metaop.tensor([1.0, -1.0])
    >>> F.hinge_embedding_loss(distances, alike, reduction="none")
    tensor([0.2500, 0.7500])
    """
    reduction = reduction_of("hinge_embedding_loss", reduction, size_average, reduce)
    calls = (input.call, target.detach().call)  # it is only compared, so it has no gradient
    return wrap(record(operators.hinge_embedding_loss, calls, (float(margin), reduction)))


def margin_ranking_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """max(0, -t * (x1 - x2) + margin): x1 should rank higher where t is 1, lower where it is -1.

    All operands have one shape.

    >>> x1, x2 = metaop.tensor([2.0, 2.0]), metaop.tensor([1.0, 1.0])
    >>> F.margin_ranking_loss(x1, x2, metaop.tensor([1.0, -1.0]), reduction="none")
    tensor([0., 1.])
    """
    reduction = reduction_of("margin_ranking_loss", reduction, size_average, reduce)
    calls = (input1.call, input2.call, target.call)
    return wrap(record(operators.margin_ranking_loss, calls, (float(margin), reduction)))


def soft_margin_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """log(1 + exp(-t * x)) for targets 1 and -1 of the input's shape.

    >>> F.soft_margin_loss(metaop.tensor([2.0, 2.0]), metaop.tensor([1.0, -1.0]), reduction="none")
    tensor([0.1269, 2.1269])
    """
    reduction = reduction_of("soft_margin_loss", reduction, size_average, reduce)
    return wrap(record(operators.soft_margin_loss, (input.call, target.call), (reduction,)))


def multilabel_soft_margin_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """The mean over the classes (last dimension) of the binary cross-entropy with logits.

    input and target (1 for the true classes, else 0) have the shape (N, C) or (C).

    >>> F.multilabel_soft_margin_loss(metaop.zeros(1, 3), metaop.tensor([[1.0, 0.0, 1.0]]))
    tensor(0.6931)
    """
    reduction = reduction_of("multilabel_soft_margin_loss", reduction, size_average, reduce)
    calls = (input.call, target.call, optional(weight))
    return wrap(record(operators.multilabel_soft_margin_loss, calls, (reduction,)))


def multi_margin_loss(
    input: Tensor,
    target: Tensor,
    p: int = 1,
    margin: float = 1.0,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """The mean over wrong classes of max(0, margin - x[target] + x[class]) ** p, p 1 or 2.

    input is (N, C) or (C), target holds class indices, (N) or (). The sum over the wrong classes is
    divided by C.

    >>> F.multi_margin_loss(metaop.tensor([[1.0, 0.5, 0.0]]), metaop.tensor([0]))
    tensor(0.1667)
    """
    reduction = reduction_of("multi_margin_loss", reduction, size_average, reduce)
    if p not in (1, 2):
        raise ArgumentError(f"multi_margin_loss: only p == 1 and p == 2, got {p}", fix="use one")
    calls = (input.call, target.call, optional(weight))
    attributes = (p, float(margin), reduction)
    return wrap(record(operators.multi_margin_loss, calls, attributes))


def multilabel_margin_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """The hinge loss between target and other classes; a row of targets ends at its first -1.

    input and target have the shape (N, C) or (C). The sum of max(0, 1 - x[target] + x[other]) over
    all such pairs is divided by C.

    >>> F.multilabel_margin_loss(metaop.tensor([0.1, 0.2, 0.8]), metaop.tensor([2, -1, 0]))
    tensor(0.2333)
    """
    reduction = reduction_of("multilabel_margin_loss", reduction, size_average, reduce)
    return wrap(record(operators.multilabel_margin_loss, (input.call, target.call), (reduction,)))
