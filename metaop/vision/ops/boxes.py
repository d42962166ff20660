"""Boxes (x1, y1, x2, y2) with x1 < x2 and y1 < y2: areas, overlaps, conversions, suppression."""

from __future__ import annotations

from typing import Any

import numpy as np

import metaop
from metaop.errors import ArgumentError, ShapeError
from metaop.kernels import kernel, lanes
from metaop.tensor.core import Tensor, from_array

# Boxes are compared in blocks of this size; those suppressed by earlier blocks are skipped.
_BLOCK = 128


def check_boxes(name: str, boxes: Tensor) -> None:
    if boxes.ndim < 1 or boxes.shape[-1] != 4:
        raise ShapeError(
            f"{name}: boxes {list(boxes.shape)} should have a last dimension of 4",
            fix="pass (count, 4)",
        )


def _wide(values: Any) -> Any:
    """Values in a dtype wide enough for their products."""
    if values.dtype.kind == "float":
        return values if values.dtype.itemsize > 2 else values.float()
    return values if values.dtype.itemsize > 4 else values.int()


def box_area(boxes: Tensor) -> Tensor:
    """The areas of boxes (…, 4) with the corners (x1, y1, x2, y2): (…).

    >>> metaop.vision.ops.box_area(metaop.tensor([[0.0, 0.0, 2.0, 3.0]]))
    tensor([6.])
    """
    check_boxes("box_area", boxes)
    x1, y1, x2, y2 = _wide(boxes).unbind(-1)
    return (x2 - x1) * (y2 - y1)


def _intersection_and_union(boxes1: Any, boxes2: Any) -> tuple[Any, Any]:
    low = metaop.maximum(boxes1[..., :, None, :2], boxes2[..., None, :, :2])
    high = metaop.minimum(boxes1[..., :, None, 2:], boxes2[..., None, :, 2:])
    size = _wide(high - low).clamp(min=0)
    intersection = size[..., 0] * size[..., 1]
    areas1: Any = box_area(boxes1)
    areas2: Any = box_area(boxes2)
    return intersection, areas1[..., :, None] + areas2[..., None, :] - intersection


def box_iou(boxes1: Tensor, boxes2: Tensor) -> Tensor:
    """Pairwise intersection over union of boxes (N, 4) and (M, 4): (N, M).

    Boxes are corners (x1, y1, x2, y2).

    >>> a = metaop.tensor([[0.0, 0.0, 2.0, 2.0]])
    >>> metaop.vision.ops.box_iou(a, metaop.tensor([[1.0, 0.0, 3.0, 2.0], [5.0, 5.0, 6.0, 6.0]]))
    tensor([[0.3333, 0.0000]])
    """
    check_boxes("box_iou", boxes1)
    check_boxes("box_iou", boxes2)
    intersection, union = _intersection_and_union(boxes1, boxes2)
    return intersection / union


def _hull(boxes1: Any, boxes2: Any) -> Any:
    """Width and height of the smallest box that encloses each pair of boxes."""
    low = metaop.minimum(boxes1[..., :, None, :2], boxes2[..., None, :, :2])
    high = metaop.maximum(boxes1[..., :, None, 2:], boxes2[..., None, :, 2:])
    return _wide(high - low).clamp(min=0)


def generalized_box_iou(boxes1: Tensor, boxes2: Tensor) -> Tensor:
    """IoU minus the fraction of the enclosing box that neither box covers, (N, M).

    From Rezatofighi et al., "Generalized intersection over union" (2019).

    >>> a = metaop.tensor([[0.0, 0.0, 2.0, 2.0]])
    >>> metaop.vision.ops.generalized_box_iou(a, metaop.tensor([[2.0, 2.0, 4.0, 4.0]]))
    tensor([[-0.5000]])
    """
    check_boxes("generalized_box_iou", boxes1)
    check_boxes("generalized_box_iou", boxes2)
    intersection, union = _intersection_and_union(boxes1, boxes2)
    size = _hull(boxes1, boxes2)
    area = size[..., 0] * size[..., 1]
    return intersection / union - (area - union) / area


def _distance(boxes1: Any, boxes2: Any, eps: float) -> tuple[Any, Any]:
    """IoU, and the squared distance of the centres over the enclosing box's squared diagonal."""
    size = _hull(boxes1, boxes2)
    diagonal = (size**2).sum(-1) + eps
    centre1, centre2 = ((boxes[..., :2] + boxes[..., 2:]) / 2 for boxes in (boxes1, boxes2))
    apart = ((_wide(centre1)[..., :, None, :] - _wide(centre2)[..., None, :, :]) ** 2).sum(-1)
    return box_iou(boxes1, boxes2), apart / diagonal


def distance_box_iou(boxes1: Tensor, boxes2: Tensor, eps: float = 1e-7) -> Tensor:
    """IoU minus the relative distance of the centres, (N, M).

    From Zheng et al., "Distance-IoU loss" (2020).

    >>> a = metaop.tensor([[0.0, 0.0, 2.0, 2.0]])
    >>> metaop.vision.ops.distance_box_iou(a, metaop.tensor([[2.0, 2.0, 4.0, 4.0]]))
    tensor([[-0.2500]])
    """
    iou, apart = _distance(boxes1, boxes2, eps)
    return iou - apart


def complete_box_iou(boxes1: Tensor, boxes2: Tensor, eps: float = 1e-7) -> Tensor:
    """IoU minus terms for the distance of centres and the difference of aspect ratios, (N, M).

    From Zheng et al., "Distance-IoU loss" (2020).

    >>> a = metaop.tensor([[0.0, 0.0, 2.0, 2.0]])
    >>> metaop.vision.ops.complete_box_iou(a, metaop.tensor([[0.0, 0.0, 2.0, 4.0]]))
    tensor([[0.4468]])
    """
    iou, apart = _distance(boxes1, boxes2, eps)
    angles = []
    for boxes in (boxes1, boxes2):
        x1, y1, x2, y2 = _wide(boxes).unbind(-1)
        angles.append(metaop.atan((x2 - x1) / (y2 - y1)))
    difference = angles[0][..., :, None] - angles[1][..., None, :]
    aspect = (4 / np.pi**2) * difference**2
    with metaop.no_grad():
        weight = aspect / (1 - iou + aspect + eps)
    return iou - apart - weight * aspect


_FORMATS = ("xyxy", "xywh", "cxcywh")


def box_convert(boxes: Tensor, in_fmt: str, out_fmt: str) -> Tensor:
    """Converts boxes (…, 4) between "xyxy", "xywh" (corner, size) and "cxcywh" (centre, size).

    Raises ArgumentError for other formats.

    >>> metaop.vision.ops.box_convert(metaop.tensor([[1.0, 2.0, 4.0, 6.0]]), "xyxy", "xywh")
    tensor([[1., 2., 3., 4.]])
    """
    check_boxes("box_convert", boxes)
    if in_fmt not in _FORMATS or out_fmt not in _FORMATS:
        raise ArgumentError(
            f"Unsupported Bounding Box Conversions for given in_fmt {in_fmt} and out_fmt {out_fmt}",
            fix=f"the formats are {', '.join(_FORMATS)}",
        )
    if in_fmt == out_fmt:
        return boxes.clone()  # type: ignore[attr-defined]
    a, b, c, d = boxes.unbind(-1)  # type: ignore[attr-defined]
    if in_fmt == "xywh":
        a, b, c, d = a, b, a + c, b + d
    elif in_fmt == "cxcywh":
        a, b, c, d = a - 0.5 * c, b - 0.5 * d, a + 0.5 * c, b + 0.5 * d
    if out_fmt == "xywh":
        a, b, c, d = a, b, c - a, d - b
    elif out_fmt == "cxcywh":
        a, b, c, d = (a + c) / 2, (b + d) / 2, c - a, d - b
    return metaop.stack((a, b, c, d), -1)


def clip_boxes_to_image(boxes: Tensor, size: tuple[int, int]) -> Tensor:
    """Clips boxes (…, 4) to an image of `size` (height, width).

    >>> metaop.vision.ops.clip_boxes_to_image(metaop.tensor([[-1.0, 2.0, 9.0, 9.0]]), (5, 6))
    tensor([[0., 2., 6., 5.]])
    """
    check_boxes("clip_boxes_to_image", boxes)
    height, width = size
    limits = metaop.tensor([width, height, width, height], dtype=boxes.dtype, device=boxes.device)
    return metaop.minimum(boxes.clamp(min=0), limits)  # type: ignore[attr-defined]


def remove_small_boxes(boxes: Tensor, min_size: float) -> Tensor:
    """The indices of the boxes with both sides at least `min_size`.

    Boxes are (N, 4).

    >>> boxes = metaop.tensor([[0.0, 0.0, 4.0, 4.0], [0.0, 0.0, 9.0, 1.0]])
    >>> metaop.vision.ops.remove_small_boxes(boxes, 2.0)
    tensor([0])
    """
    x1, y1, x2, y2 = boxes.unbind(-1)  # type: ignore[attr-defined]
    return metaop.where((x2 - x1 >= min_size) & (y2 - y1 >= min_size))[0]


def masks_to_boxes(masks: Tensor) -> Tensor:
    """The boxes (N, 4) around the non-zero pixels of masks (N, height, width).

    >>> mask = metaop.zeros(1, 4, 4)
    >>> mask[0, 1:3, 2] = 1
    >>> metaop.vision.ops.masks_to_boxes(mask)
    tensor([[2., 1., 2., 2.]])
    """
    if not len(masks):
        return metaop.zeros(0, 4, device=masks.device)
    held: Any = masks != 0
    if not held.flatten(1).any(1).all():
        raise ArgumentError("masks_to_boxes: a mask has no pixels", fix="remove empty masks")
    ends = []
    for dim in (1, 2):
        touched: Any = held.any(dim).to(metaop.int32)
        first = touched.argmax(1)
        ends.append((first, touched.shape[1] - 1 - touched.flip(1).argmax(1)))
    (left, right), (top, bottom) = ends
    return metaop.stack((left, top, right, bottom), 1).float()  # type: ignore[attr-defined]


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
    """Non-maximum suppression: the indices of the kept boxes, by decreasing score.

    Of two boxes (N, 4) whose IoU exceeds the threshold, the one with the lower score (N) is
    dropped. The number of kept boxes is read, which runs pending work.

    >>> boxes = metaop.tensor([[0.0, 0.0, 2.0, 2.0], [0.0, 0.0, 2.0, 1.9], [5.0, 5.0, 6.0, 6.0]])
    >>> metaop.vision.ops.nms(boxes, metaop.tensor([0.5, 0.9, 0.7]), 0.5)
    tensor([1, 2])
    """
    return _suppressed("nms", boxes, scores, None, iou_threshold)


def batched_nms(boxes: Tensor, scores: Tensor, idxs: Tensor, iou_threshold: float) -> Tensor:
    """`nms` within each class `idxs` (N) separately: boxes (N, 4), scores (N).

    >>> boxes = metaop.tensor([[0.0, 0.0, 2.0, 2.0], [0.0, 0.0, 2.0, 1.9]])
    >>> scores, classes = metaop.tensor([0.5, 0.9]), metaop.tensor([0, 1])
    >>> metaop.vision.ops.batched_nms(boxes, scores, classes, 0.5)
    tensor([1, 0])
    """
    return _suppressed("batched_nms", boxes, scores, idxs, iou_threshold)


def _suppressed(name: str, boxes: Any, scores: Any, groups: Any | None, threshold: float) -> Tensor:
    check_boxes(name, boxes)
    if boxes.ndim != 2 or scores.shape != boxes.shape[:1]:
        raise ShapeError(
            f"{name}: boxes should be (count, 4) and scores (count,), got {list(boxes.shape)} and "
            f"{list(scores.shape)}"
        )
    if boxes.device.placement is not None:
        # This kernel cannot be sharded: every rank has all boxes and computes the same.
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
    """Which boxes are kept; they are sorted by group, then by decreasing score."""
    boxes = boxes.double() if boxes.dtype.kind == "int" else boxes.to(boxes.dtype.compute)
    limit = _below(threshold) if boxes.dtype is metaop.float32 else float(threshold)
    ends = _last_of_group(groups) // _BLOCK
    is_box = metaop.ones(len(boxes), dtype=metaop.bool, device=boxes.device)
    parts = (boxes.t(), box_area(boxes), groups, ends, is_box)
    return _survivors(*map(_in_blocks, parts), limit).flatten()[: len(boxes)]


def _last_of_group(groups: Any) -> Any:
    """The last index of each element's group; groups are contiguous."""
    begins = metaop.nn.functional.pad(groups[1:] != groups[:-1], (1, 0))
    number = begins.cumsum(0)
    places = metaop.arange(len(groups), device=groups.device)
    return metaop.zeros_like(places).scatter_reduce(0, number, places, "amax")[number]


def _in_blocks(values: Any) -> Any:
    """Rows of values split into blocks, the last one padded with zeros."""
    count = values.shape[-1]
    filled = metaop.nn.functional.pad(values, (0, -count % _BLOCK))
    return filled.unflatten(-1, (-1, _BLOCK)).contiguous()


def _below(threshold: float) -> float:
    """The largest float32 that does not exceed the threshold."""
    near = np.float32(threshold)
    return float(near if float(near) <= threshold else np.nextafter(near, np.float32(-np.inf)))
