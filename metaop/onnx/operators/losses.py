"""Classification losses."""

from __future__ import annotations

from typing import Any

import metaop
from metaop.onnx.operators.indexing import wrapped
from metaop.onnx.operators.shaping import shape_of
from metaop.onnx.table import Node, operator
from metaop.tensor.core import Tensor


@operator("NegativeLogLikelihoodLoss")
def negative_log_likelihood(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> Tensor:
    """The negated log-probabilities (N, C, …) of the classes (N, …), with class weights."""
    classes = target.to(metaop.int64)
    kept: Any = None
    if ignore_index is not None:
        kept = classes != ignore_index
        classes = metaop.where(kept, classes, 0 * classes)
    classes = wrapped(classes, shape_of(x)[1])
    loss = -metaop.gather(x, 1, classes.unsqueeze(1)).squeeze(1)
    own: Any = None if weight is None else weight[classes]
    if kept is not None:
        own = kept.to(x.dtype) if own is None else own * kept.to(x.dtype)
    if own is not None:
        loss = loss * own
    if reduction == "none":
        return loss
    if reduction == "sum":
        return metaop.sum(loss)
    return metaop.mean(loss) if own is None else metaop.sum(loss) / metaop.sum(own)


@operator("SoftmaxCrossEntropyLoss")
def softmax_cross_entropy(
    scores: Tensor,
    labels: Tensor,
    weights: Tensor | None = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
    node: Node,
) -> Any:
    """Cross entropy of logits; the second result is the log-softmax."""
    logarithms = metaop.log_softmax(scores, 1)
    loss = negative_log_likelihood(
        logarithms, labels, weights, ignore_index=ignore_index, reduction=reduction
    )
    return (loss, logarithms) if node.wants(1) else loss
