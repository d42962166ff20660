"""Losses for detectors."""

from __future__ import annotations

from typing import Any

import numpy as np

import metaop
from metaop.errors import ArgumentError
from metaop.nn import functional as F
from metaop.tensor.core import Tensor


def _reduced(loss: Any, reduction: str) -> Any:
    if reduction == "none":
        return loss
    if reduction == "mean":
        return loss.mean() if loss.numel() else 0.0 * loss.sum()
    if reduction == "sum":
        return loss.sum()
    raise ArgumentError(
        f"Invalid Value for arg 'reduction': '{reduction}'", fix="'none', 'mean', 'sum'"
    )


def sigmoid_focal_loss(
    inputs: Tensor,
    targets: Tensor,
    alpha: float = 0.25,
    gamma: float = 2,
    reduction: str = "none",
) -> Tensor:
    """Binary cross entropy of logits that down-weights easy examples, for targets in {0, 1}.

    Both have one shape. `alpha` in [0, 1] balances positive against negative examples; -1 disables
    that. T. Lin and others, "Focal loss for dense object detection", 2017.

    >>> logits, targets = metaop.tensor([0.0, 3.0]), metaop.tensor([1.0, 1.0])
    >>> metaop.vision.ops.sigmoid_focal_loss(logits, targets)
    tensor([4.3322e-02, 2.7321e-05])
    """
    if not (0 <= alpha <= 1) and alpha != -1:
        raise ArgumentError(
            f"Invalid alpha value: {alpha}. alpha must be in [0,1] or -1 for ignore."
        )
    x: Any = inputs
    y: Any = targets
    probability = x.sigmoid()
    entropy = F.binary_cross_entropy_with_logits(x, y, reduction="none")
    right = probability * y + (1 - probability) * (1 - y)
    loss = entropy * (1 - right) ** gamma
    if alpha >= 0:
        loss = (alpha * y + (1 - alpha) * (1 - y)) * loss
    return _reduced(loss, reduction)


def _pairwise(boxes1: Any, boxes2: Any, eps: float) -> tuple[Any, Any, Any, Any]:
    """Row-wise IoU and union, and width and height of the enclosing box."""
    low = metaop.maximum(boxes1[..., :2], boxes2[..., :2])
    high = metaop.minimum(boxes1[..., 2:], boxes2[..., 2:])
    meet = (high > low).all(-1)
    size = metaop.where(meet[..., None], high - low, 0.0)
    intersection = size[..., 0] * size[..., 1]
    areas = [
        (boxes[..., 2] - boxes[..., 0]) * (boxes[..., 3] - boxes[..., 1])
        for boxes in (boxes1, boxes2)
    ]
    union = areas[0] + areas[1] - intersection
    hull = metaop.maximum(boxes1[..., 2:], boxes2[..., 2:]) - metaop.minimum(
        boxes1[..., :2], boxes2[..., :2]
    )
    return intersection / (union + eps), union, hull[..., 0], hull[..., 1]


def generalized_box_iou_loss(
    boxes1: Tensor, boxes2: Tensor, reduction: str = "none", eps: float = 1e-7
) -> Tensor:
    """1 minus the row-wise generalised IoU of boxes (…, 4).

    >>> a, b = metaop.tensor([[0.0, 0.0, 2.0, 2.0]]), metaop.tensor([[2.0, 2.0, 4.0, 4.0]])
    >>> metaop.vision.ops.generalized_box_iou_loss(a, b)
    tensor([1.5000])
    """
    iou, union, width, height = _pairwise(boxes1, boxes2, eps)
    area = width * height
    return _reduced(1 - (iou - (area - union) / (area + eps)), reduction)


def _apart(boxes1: Any, boxes2: Any, width: Any, height: Any, eps: float) -> Any:
    centres = boxes1[..., :2] + boxes1[..., 2:] - boxes2[..., :2] - boxes2[..., 2:]
    return ((centres / 2) ** 2).sum(-1) / (width**2 + height**2 + eps)


def distance_box_iou_loss(
    boxes1: Tensor, boxes2: Tensor, reduction: str = "none", eps: float = 1e-7
) -> Tensor:
    """1 minus the IoU, plus the relative distance of the centres, for rows of boxes (…, 4).

    >>> a, b = metaop.tensor([[0.0, 0.0, 2.0, 2.0]]), metaop.tensor([[2.0, 2.0, 4.0, 4.0]])
    >>> metaop.vision.ops.distance_box_iou_loss(a, b)
    tensor([1.2500])
    """
    iou, _, width, height = _pairwise(boxes1, boxes2, eps)
    return _reduced(1 - iou + _apart(boxes1, boxes2, width, height, eps), reduction)


def complete_box_iou_loss(
    boxes1: Tensor, boxes2: Tensor, reduction: str = "none", eps: float = 1e-7
) -> Tensor:
    """The distance loss plus a term for the difference of aspect ratios: boxes (…, 4).

    >>> a, b = metaop.tensor([[0.0, 0.0, 2.0, 2.0]]), metaop.tensor([[0.0, 0.0, 2.0, 4.0]])
    >>> metaop.vision.ops.complete_box_iou_loss(a, b)
    tensor([0.5532])
    """
    iou, _, width, height = _pairwise(boxes1, boxes2, eps)
    angles = []
    for boxes in (boxes1, boxes2):
        x1, y1, x2, y2 = boxes.unbind(-1)  # type: ignore[attr-defined]
        angles.append(metaop.atan((x2 - x1) / (y2 - y1)))
    aspect = (4 / np.pi**2) * (angles[1] - angles[0]) ** 2
    with metaop.no_grad():
        weight = aspect / (1 - iou + aspect + eps)
    apart = _apart(boxes1, boxes2, width, height, eps)
    return _reduced(1 - iou + apart + weight * aspect, reduction)
