"""Losses as modules."""

from __future__ import annotations

import warnings
from typing import Any

from metaop.nn import functional as F
from metaop.nn.module import Module
from metaop.tensor.core import Tensor


def _reduction(reduction: str, size_average: bool | None, reduce: bool | None) -> str:
    """The reduction, from PyTorch's two deprecated arguments if one of them is given."""
    if size_average is None and reduce is None:
        return reduction
    warnings.warn(
        "size_average and reduce args will be deprecated, please use reduction='mean', 'sum' or "
        "'none' instead.",
        stacklevel=4,
    )
    if reduce is False:
        return "none"
    return "sum" if size_average is False else "mean"


class _Loss(Module):
    """A loss with `reduction` "mean", "sum" or "none"."""

    def __init__(
        self,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__()
        self.reduction = _reduction(reduction, size_average, reduce)


class _WeightedLoss(_Loss):
    """A loss with a weight per class (or element), kept as a buffer."""

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.register_buffer("weight", weight)


class L1Loss(_Loss):
    """|input - target|.

    The result is a scalar, or has the shape of the input with `reduction="none"`.

    >>> nn.L1Loss()(metaop.tensor([1.0, -3.0]), metaop.zeros(2)).item()
    2.0
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.l1_loss(input, target, reduction=self.reduction)


class MSELoss(_Loss):
    """(input - target)².

    The result is a scalar, or has the shape of the input with `reduction="none"`.

    >>> nn.MSELoss()(metaop.tensor([1.0, 3.0]), metaop.zeros(2)).item()
    5.0
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.mse_loss(input, target, reduction=self.reduction)


class SmoothL1Loss(_Loss):
    """The squared difference below `beta`, the absolute one above.

    The result is a scalar, or has the shape of the input with `reduction="none"`.

    >>> nn.SmoothL1Loss(reduction="none")(metaop.tensor([1.0, 3.0]), metaop.zeros(2)).tolist()
    [0.5, 2.5]
    """

    def __init__(
        self,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
        beta: float = 1.0,
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.beta = beta

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.smooth_l1_loss(input, target, reduction=self.reduction, beta=self.beta)


class HuberLoss(_Loss):
    """The squared difference below `delta`, `delta` times the absolute one above.

    The result is a scalar, or has the shape of the input with `reduction="none"`.

    >>> loss = nn.HuberLoss(reduction="none", delta=2.0)
    >>> loss(metaop.tensor([1.0, 3.0]), metaop.zeros(2)).tolist()
    [0.5, 4.0]
    """

    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        super().__init__(reduction=reduction)
        self.delta = delta

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.huber_loss(input, target, reduction=self.reduction, delta=self.delta)


class NLLLoss(_WeightedLoss):
    """The negated log-probability of the target class: input (N, C, …), target (N, …).

    The result is a scalar, or has the shape of the target with `reduction="none"`.

    >>> nn.NLLLoss()(metaop.tensor([[-1.0, -2.0]]), metaop.tensor([1])).item()
    2.0
    """

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        ignore_index: int = -100,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(weight, size_average, reduce, reduction)
        self.ignore_index = ignore_index

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.nll_loss(
            input,
            target,
            weight=self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
        )


class NLLLoss2d(NLLLoss):
    """NLLLoss under its older name.

    Like `NLLLoss`: log-probabilities (N, C, H, W) and class indices (N, H, W).

    >>> nn.NLLLoss2d()(metaop.zeros(1, 3, 2, 2), metaop.zeros(1, 2, 2).long()).shape
    metaop.Size([])
    """


class CrossEntropyLoss(_WeightedLoss):
    """Cross entropy of logits (N, C, …) and class indices (N, …) or probabilities (N, C, …).

    The result is a scalar, or has the shape of the class indices with `reduction="none"`.

    >>> loss = nn.CrossEntropyLoss()(metaop.zeros(1, 2), metaop.tensor([1]))
    >>> round(loss.item(), 3)  # the logarithm of 2
    0.693
    """

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        ignore_index: int = -100,
        reduce: bool | None = None,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(weight, size_average, reduce, reduction)
        self.ignore_index = ignore_index
        self.label_smoothing = label_smoothing

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(
            input,
            target,
            weight=self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
        )


class BCELoss(_WeightedLoss):
    """Binary cross entropy of probabilities.

    The result is a scalar, or has the shape of the input with `reduction="none"`. Raises
    ArgumentError for a probability outside [0, 1], when the result is computed.

    >>> nn.BCELoss()(metaop.tensor([1.0, 0.0]), metaop.tensor([1.0, 0.0])).item() == 0
    True
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.binary_cross_entropy(input, target, weight=self.weight, reduction=self.reduction)


class BCEWithLogitsLoss(_Loss):
    """Binary cross entropy of logits; `pos_weight` weights the positive examples.

    The result is a scalar, or has the shape of the input with `reduction="none"`.

    >>> round(nn.BCEWithLogitsLoss()(metaop.zeros(2), metaop.ones(2)).item(), 3)
    0.693
    """

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
        pos_weight: Tensor | None = None,
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.register_buffer("weight", weight)
        self.register_buffer("pos_weight", pos_weight)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(
            input, target, self.weight, pos_weight=self.pos_weight, reduction=self.reduction
        )


class KLDivLoss(_Loss):
    """Kullback-Leibler divergence of log-probabilities `input` from `target`.

    The result is a scalar, or has the shape of the input with `reduction="none"`.
    `reduction="batchmean"` divides the sum by the first size, as the definition does.

    >>> nn.KLDivLoss(reduction="batchmean")(metaop.zeros(1, 1), metaop.ones(1, 1)).item()
    0.0
    """

    def __init__(
        self,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
        log_target: bool = False,
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.log_target = log_target

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.kl_div(input, target, reduction=self.reduction, log_target=self.log_target)


class PoissonNLLLoss(_Loss):
    """Negative log-likelihood of a Poisson distribution; `input` is its (log-)rate.

    Takes rates, or their logarithms with `log_input`, and counts of the same shape. The result is a
    scalar, or of that shape with `reduction="none"`.

    >>> nn.PoissonNLLLoss()(metaop.zeros(3), metaop.ones(3)).item()
    1.0
    """

    def __init__(
        self,
        log_input: bool = True,
        full: bool = False,
        size_average: bool | None = None,
        eps: float = 1e-8,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.log_input = log_input
        self.full = full
        self.eps = eps

    def forward(self, log_input: Tensor, target: Tensor) -> Tensor:
        return F.poisson_nll_loss(
            log_input,
            target,
            log_input=self.log_input,
            full=self.full,
            eps=self.eps,
            reduction=self.reduction,
        )


class GaussianNLLLoss(_Loss):
    """Negative log-likelihood of a normal distribution with mean `input` and variance `var`.

    The result is a scalar, or has the shape of the input with `reduction="none"`.

    >>> nn.GaussianNLLLoss()(metaop.zeros(2), 2 * metaop.ones(2), metaop.ones(2)).item()
    2.0
    """

    def __init__(self, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)
        self.full = full
        self.eps = eps

    def forward(self, input: Tensor, target: Tensor, var: Tensor | float) -> Tensor:
        return F.gaussian_nll_loss(
            input, target, var, full=self.full, eps=self.eps, reduction=self.reduction
        )


class CTCLoss(_Loss):
    """Connectionist temporal classification: unaligned label sequences (Graves et al. 2006).

    Takes log-probabilities (T, N, C), or (T, C), targets (N, S) or concatenated, and the lengths of
    inputs and targets, (N) each. The result is a scalar, or (N) with `reduction="none"`.

    >>> logits = metaop.zeros(4, 1, 2).log_softmax(2)
    >>> loss = nn.CTCLoss()(logits, metaop.tensor([[1]]), [4], [1])
    >>> round(loss.item(), 4)
    0.47
    """

    def __init__(
        self, blank: int = 0, reduction: str = "mean", zero_infinity: bool = False
    ) -> None:
        super().__init__(reduction=reduction)
        self.blank = blank
        self.zero_infinity = zero_infinity

    def forward(
        self, log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any
    ) -> Tensor:
        return F.ctc_loss(
            log_probs,
            targets,
            input_lengths,
            target_lengths,
            self.blank,
            self.reduction,
            self.zero_infinity,
        )
