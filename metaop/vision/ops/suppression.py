"""Suppression of boxes that others cover: one kernel goes through the boxes by falling score."""

from __future__ import annotations

from typing import Any

import numpy as np

import metaop
from metaop.errors import ShapeError
from metaop.kernels import kernel, lanes
from metaop.tensor.core import Tensor
from metaop.vision.ops.boxes import box_area, check_boxes

# So many boxes are looked at side by side; what lies in earlier blocks is left out.
_BLOCK = 512


@kernel(tasks=1, outputs=lambda corners, areas, groups, is_box, limit: is_box)
def _survivors(corners, areas, groups, is_box, limit, alive):  # type: ignore[no-untyped-def]
    blocks, width = is_box.shape
    for block in range(blocks):
        for lane in lanes(width):
            alive[block, lane] = is_box[block, lane]
    for own in range(blocks):
        for place in range(width):
            if alive[own, place]:
                left = corners[0, own, place]
                top = corners[1, own, place]
                right = corners[2, own, place]
                bottom = corners[3, own, place]
                area = areas[own, place]
                group = groups[own, place]
                for block in range(own, blocks):
                    for lane in lanes(width):
                        if block > own or lane > place:
                            wide = min(right, corners[2, block, lane])
                            wide = wide - max(left, corners[0, block, lane])
                            high = min(bottom, corners[3, block, lane])
                            high = high - max(top, corners[1, block, lane])
                            shared = max(wide, 0.0) * max(high, 0.0)
                            ratio = shared / (area + areas[block, lane] - shared)
                            if ratio > limit and groups[block, lane] == group:
                                alive[block, lane] = False


def nms(boxes: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """The indices of the boxes that stay, by falling score; their number is read.

    Of two boxes (N, 4) whose IoU exceeds the threshold, the one with the lower score (N) goes.
    """
    return _suppressed("nms", boxes, scores, None, iou_threshold)


def batched_nms(boxes: Tensor, scores: Tensor, idxs: Tensor, iou_threshold: float) -> Tensor:
    """As `nms`, where only boxes of the same class `idxs` (N) meet."""
    return _suppressed("batched_nms", boxes, scores, idxs, iou_threshold)


def _suppressed(name: str, boxes: Any, scores: Any, groups: Any | None, threshold: float) -> Tensor:
    check_boxes(name, boxes)
    if boxes.ndim != 2 or scores.shape != boxes.shape[:1]:
        raise ShapeError(
            f"{name}: boxes should be (count, 4) and scores (count,), got {list(boxes.shape)} and "
            f"{list(scores.shape)}"
        )
    with metaop.no_grad():
        order = scores.argsort(descending=True, stable=True)
        if not len(boxes):
            return order
        found = boxes[order]
        found = found.double() if found.dtype.kind == "int" else found.to(found.dtype.compute)
        kinds = metaop.zeros_like(order) if groups is None else groups[order]
        limit = _below(threshold) if found.dtype is metaop.float32 else float(threshold)
        is_box = metaop.ones_like(order, dtype=metaop.bool)
        parts = (found.t(), box_area(found), kinds, is_box)
        stays = _survivors(*map(_in_blocks, parts), limit).flatten()[: len(order)]
        return order[stays]


def _in_blocks(values: Any) -> Any:
    """Rows of values cut into blocks, the last one filled up with zeros."""
    count = values.shape[-1]
    filled = metaop.nn.functional.pad(values, (0, -count % _BLOCK))
    return filled.unflatten(-1, (-1, _BLOCK)).contiguous()


def _below(threshold: float) -> float:
    """The greatest number in single precision that does not exceed the threshold."""
    near = np.float32(threshold)
    return float(near if float(near) <= threshold else np.nextafter(near, np.float32(-np.inf)))
