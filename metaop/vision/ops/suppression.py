"""Suppression of boxes that others cover: one kernel goes through the boxes by falling score."""

from __future__ import annotations

from typing import Any

import numpy as np

import metaop
from metaop.errors import ShapeError
from metaop.kernels import kernel, lanes
from metaop.tensor.core import Tensor, from_array
from metaop.vision.ops.boxes import box_area, check_boxes

# So many boxes are looked at side by side; what lies in earlier blocks is left out.
_BLOCK = 128


@kernel(tasks=1, outputs=lambda corners, areas, groups, ends, is_box, limit: is_box)
def _survivors(corners, areas, groups, ends, is_box, limit, alive):  # type: ignore[no-untyped-def]
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
                for block in range(own, min(ends[own, place] + 1, blocks)):
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
    if boxes.device.placement is not None:
        # A kernel cannot be spread over ranks: each has the whole, and computes the same.
        parts = (
            x if x is None else from_array(x._array(), x.dtype) for x in (boxes, scores, groups)
        )
        return _suppressed(name, *parts, threshold).to(device=boxes.device)  # type: ignore
    with metaop.no_grad():
        order = scores.argsort(descending=True, stable=True)
        if not len(boxes):
            return order
        if groups is None:
            return order[_stays(boxes[order], metaop.zeros_like(order), threshold)]
        places = order[groups[order].argsort(stable=True)]
        stays = _stays(boxes[places], groups[places], threshold)
        return order[metaop.zeros_like(stays).scatter(0, places, stays)[order]]


def _stays(boxes: Any, groups: Any, threshold: float) -> Any:
    """Which boxes stay; they come by group, and by falling score in each."""
    boxes = boxes.double() if boxes.dtype.kind == "int" else boxes.to(boxes.dtype.compute)
    limit = _below(threshold) if boxes.dtype is metaop.float32 else float(threshold)
    ends = _last_of_group(groups) // _BLOCK
    is_box = metaop.ones(len(boxes), dtype=metaop.bool, device=boxes.device)
    parts = (boxes.t(), box_area(boxes), groups, ends, is_box)
    return _survivors(*map(_in_blocks, parts), limit).flatten()[: len(boxes)]


def _last_of_group(groups: Any) -> Any:
    """The last place of the group of each element; groups stand side by side."""
    begins = metaop.nn.functional.pad(groups[1:] != groups[:-1], (1, 0))
    number = begins.cumsum(0)
    places = metaop.arange(len(groups), device=groups.device)
    return metaop.zeros_like(places).scatter_reduce(0, number, places, "amax")[number]


def _in_blocks(values: Any) -> Any:
    """Rows of values cut into blocks, the last one filled up with zeros."""
    count = values.shape[-1]
    filled = metaop.nn.functional.pad(values, (0, -count % _BLOCK))
    return filled.unflatten(-1, (-1, _BLOCK)).contiguous()


def _below(threshold: float) -> float:
    """The greatest number in single precision that does not exceed the threshold."""
    near = np.float32(threshold)
    return float(near if float(near) <= threshold else np.nextafter(near, np.float32(-np.inf)))
