"""Losses that separate scores or distances by a margin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from metaop.errors import ArgumentError
from metaop.nn import functional as F
from metaop.nn.distance import PairwiseDistance
from metaop.nn.loss import _Loss, _WeightedLoss
from metaop.tensor.core import Tensor


class _MarginLoss(_Loss):
    """A loss with a margin."""

    def __init__(
        self,
        margin: float = 0.0,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.margin = margin


class HingeEmbeddingLoss(_MarginLoss):
    """Pulls distances to 0 (target 1) or pushes them beyond the margin (target -1).

    The result is a scalar, or has the shape of the input with `reduction="none"`.

    >>> nn.HingeEmbeddingLoss()(metaop.tensor([0.5, 0.25]), metaop.tensor([1, -1])).item()
    0.625
    """

    def __init__(
        self,
        margin: float = 1.0,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(margin, size_average, reduce, reduction)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.hinge_embedding_loss(input, target, margin=self.margin, reduction=self.reduction)


class CosineEmbeddingLoss(_MarginLoss):
    """Pulls cosines to 1 (target 1) or pushes them below the margin (target -1).

    The result is a scalar; with `reduction="none"` it has one loss per sample, in the shape of
    the target.

    >>> x = metaop.ones(1, 2)
    >>> round(nn.CosineEmbeddingLoss()(x, -x, metaop.ones(1)).item(), 2)
    2.0
    """

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        return F.cosine_embedding_loss(
            input1, input2, target, margin=self.margin, reduction=self.reduction
        )


class MarginRankingLoss(_MarginLoss):
    """max(0, margin - target · (input1 - input2)).

    The result is a scalar, or has the shape of the input with `reduction="none"`.

    >>> nn.MarginRankingLoss(1.0)(metaop.ones(1), metaop.zeros(1), -metaop.ones(1)).item()
    2.0
    """

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        return F.margin_ranking_loss(
            input1, input2, target, margin=self.margin, reduction=self.reduction
        )


class SoftMarginLoss(_Loss):
    """log(1 + exp(-target · input)).

    Takes scores and targets of the same shape, the latter -1 or 1. The result is the mean, or of
    that shape with `reduction="none"`.

    >>> round(nn.SoftMarginLoss()(metaop.zeros(3), metaop.ones(3)).item(), 4)
    0.6931
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.soft_margin_loss(input, target, reduction=self.reduction)


class MultiLabelMarginLoss(_Loss):
    """Penalises target classes that are not above every other class by 1.

    Takes scores (N, C) and targets (N, C): class indices before the first -1. The result is a
    scalar, or (N) with `reduction="none"`.

    >>> scores = metaop.tensor([[0.1, 0.2, 0.4, 0.8]])
    >>> round(nn.MultiLabelMarginLoss()(scores, metaop.tensor([[3, 0, -1, 1]])).item(), 4)
    0.85
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.multilabel_margin_loss(input, target, reduction=self.reduction)


class MultiLabelSoftMarginLoss(_WeightedLoss):
    """Binary cross entropy per class, averaged over the classes.

    Takes scores (N, C) and targets of the same shape, 0 or 1. The result is a scalar, or (N) with
    `reduction="none"`.

    >>> loss = nn.MultiLabelSoftMarginLoss()(metaop.zeros(2, 3), metaop.ones(2, 3))
    >>> round(loss.item(), 4)
    0.6931
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.multilabel_soft_margin_loss(
            input, target, weight=self.weight, reduction=self.reduction
        )


class MultiMarginLoss(_WeightedLoss):
    """Penalises a target class that is not above every other class by `margin`.

    Takes scores (N, C) and class indices (N). The result is a scalar, or (N) with
    `reduction="none"`. Raises ArgumentError for a `p` other than 1 and 2.

    >>> nn.MultiMarginLoss()(metaop.tensor([[0.0, 0.5]]), metaop.tensor([1])).item()
    0.25
    """

    def __init__(
        self,
        p: int = 1,
        margin: float = 1.0,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(weight, size_average, reduce, reduction)
        if p not in (1, 2):
            raise ArgumentError(f"MultiMarginLoss: only p == 1 and p == 2 supported, not {p}")
        if weight is not None and weight.ndim != 1:
            raise ArgumentError(
                f"MultiMarginLoss: weight must be 1-dimensional, not {list(weight.shape)}",
                fix="one weight per class",
            )
        self.p = p
        self.margin = margin

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.multi_margin_loss(
            input,
            target,
            p=self.p,
            margin=self.margin,
            weight=self.weight,
            reduction=self.reduction,
        )


class TripletMarginLoss(_Loss):
    """Penalises anchors not nearer to the positive than to the negative by `margin` (p-norm).

    The result is a scalar; with `reduction="none"` it has one loss per sample, in the shape of
    the batch.

    >>> nn.TripletMarginLoss()(metaop.zeros(1, 2), metaop.zeros(1, 2), 9 * metaop.ones(1, 2)).item()
    0.0
    """

    def __init__(
        self,
        margin: float = 1.0,
        p: float = 2.0,
        eps: float = 1e-6,
        swap: bool = False,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        if margin <= 0:
            raise ArgumentError(f"TripletMarginLoss: expected margin to be > 0, got {margin}")
        self.margin = margin
        self.p = p
        self.eps = eps
        self.swap = swap

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        return F.triplet_margin_loss(
            anchor,
            positive,
            negative,
            margin=self.margin,
            p=self.p,
            eps=self.eps,
            swap=self.swap,
            reduction=self.reduction,
        )


class TripletMarginWithDistanceLoss(_Loss):
    """TripletMarginLoss with any distance function of two tensors.

    Takes anchors, positives and negatives (N, *); a distance is (N), by default that of
    `pairwise_distance`. The result is a scalar, or (N) with `reduction="none"`.

    >>> distance = lambda x, y: (x - y).abs().sum(1)
    >>> loss = nn.TripletMarginWithDistanceLoss(distance_function=distance)
    >>> loss(metaop.zeros(2, 3), metaop.ones(2, 3), metaop.zeros(2, 3)).item()
    4.0
    """

    def __init__(
        self,
        *,
        distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
        margin: float = 1.0,
        swap: bool = False,
        reduction: str = "mean",
    ) -> None:
        super().__init__(reduction=reduction)
        if margin <= 0:
            raise ArgumentError(f"expected margin to be greater than 0, got {margin}")
        self.distance_function: Any = distance_function or PairwiseDistance()
        self.margin = margin
        self.swap = swap

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        return F.triplet_margin_with_distance_loss(
            anchor,
            positive,
            negative,
            distance_function=self.distance_function,
            margin=self.margin,
            swap=self.swap,
            reduction=self.reduction,
        )
