"""YOLOX: an anchor-free single-stage detector with dynamic label assignment (SimOTA).

After Z. Ge, S. Liu, F. Wang, Z. Li, J. Sun, "YOLOX: exceeding YOLO series in 2021", 2021. Each
position of three maps predicts one box. SimOTA assigns an object to the few positions near its
centre that already predict it best. The layers are in `yolox_layers`.

    python -m models.yolox --steps 400 --out runs/yolox
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np

import metaop
from metaop import nn
from metaop.nn import functional as F

from .detection import (
    Batch,
    Detector,
    Features,
    Found,
    ImageTransform,
    Size,
    Things,
    clipped,
    map_sizes,
    overlaps,
    suppressed,
)
from .detection_training import Learned, learn_to_find
from .scenes import CLASSES
from .yolox_layers import PAFPN, Head

# The cost of positions outside an object or far from its centre.
FAR = 1e5
# Positions within this many cells of the centre of an object are candidates.
RADIUS = 1.5


def places_of(image: Size, maps: Sequence[Size]) -> tuple[np.ndarray, np.ndarray]:
    """The upper left corner (places, 2) and the stride (places, 1) of every position."""
    corners, strides = [], []
    for height, width in maps:
        stride = image[0] // height
        y, x = np.meshgrid(np.arange(height), np.arange(width), indexing="ij")
        corners.append(np.stack([x, y], -1).reshape(-1, 2) * stride)
        strides.append(np.full((height * width, 1), stride))
    return (np.concatenate(part).astype(np.float32) for part in (corners, strides))  # type: ignore


def assigned(
    cost: np.ndarray, quality: np.ndarray, candidates: np.ndarray, most: int = 10
) -> np.ndarray:
    """SimOTA: the object assigned to each position, or -1.

    `cost` and `quality` (IoU) are (things, places); `candidates` (places,) is a mask. The dynamic k
    of an object is the sum of its `most` largest IoUs. It gets the k positions of lowest cost; a
    position chosen by several objects gets the one of lowest cost.
    """
    chosen = np.zeros(cost.shape, bool)
    for row, overlap, price in zip(chosen, quality, cost):
        allowed = np.flatnonzero(candidates)
        best = np.sort(overlap[allowed])[::-1][:most]
        count = min(max(int(best.sum()), 1), len(allowed))
        row[allowed[np.argsort(price[allowed], kind="stable")[:count]]] = True
    cheapest = np.where(chosen, cost, np.inf).argmin(0)
    return np.where(chosen.any(0), cheapest, -1)


class YOLOX(Detector):
    """An anchor-free single-stage detector; labels start at 1.

    `backbone` returns feature maps with `out_channels` channels; `width` is that of the heads.
    """

    def __init__(
        self,
        backbone: nn.Module,
        num_classes: int,
        width: int,
        size: Size,
        score_thresh: float = 0.01,
        nms_thresh: float = 0.65,
        detections_per_img: int = 100,
    ) -> None:
        super().__init__(backbone, ImageTransform(min(size), max(size), fixed=size))
        self.heads = nn.ModuleList(
            Head(channels, width, num_classes) for channels in backbone.out_channels
        )
        self.score_thresh, self.nms_thresh = score_thresh, nms_thresh
        self.detections_per_img = detections_per_img

    def told(
        self, features: Features, batch: Batch
    ) -> tuple[metaop.Tensor, metaop.Tensor, np.ndarray, np.ndarray]:
        """Boxes (batch, places, 4), logits (objectness, then classes), corners and strides."""
        maps = list(features.values())
        found = metaop.cat([head(value) for head, value in zip(self.heads, maps)], 1)
        corners, strides = places_of(batch.size, map_sizes(maps))
        corner, stride = (metaop.from_numpy(part).to(found.device) for part in (corners, strides))
        centres = found[..., :2] * stride + corner
        half = found[..., 2:4].exp() * stride / 2
        return metaop.cat((centres - half, centres + half), -1), found[..., 4:], corners, strides

    def losses(self, features: Features, batch: Batch) -> Things:
        boxes, logits, corners, strides = self.told(features, batch)
        now, sure = boxes.numpy(force=True), logits.sigmoid().numpy(force=True)
        goals = now.copy()
        classes = np.zeros((*sure.shape[:2], sure.shape[2] - 1), np.float32)
        positive = np.zeros(sure.shape[:2], np.float32)
        for number, (true, labels) in enumerate(zip(batch.boxes, batch.labels)):
            if not len(true):
                continue
            quality = overlaps(true, now[number])
            learned = self._learned(true, labels, quality, sure[number], corners, strides)
            rows = np.flatnonzero(learned >= 0)
            thing = learned[rows]
            positive[number, rows] = 1
            goals[number, rows] = true[thing]
            # The target of the true class is the IoU of the box.
            classes[number, rows, labels[thing] - 1] = quality[thing, rows]
        device, count = boxes.device, max(float(positive.sum()), 1.0)
        goal, kind, thing_there = (
            metaop.from_numpy(part).to(device) for part in (goals, classes, positive)
        )
        apart = (1 - paired_overlap(boxes, goal) ** 2) * thing_there
        entropy = F.binary_cross_entropy_with_logits
        kinds = entropy(logits[..., 1:], kind, reduction="none").sum(-1) * thing_there
        things = entropy(logits[..., 0], thing_there, reduction="none")
        return {
            "loss_boxes": 5 * apart.sum() / count,
            "loss_things": things.sum() / count,
            "loss_classes": kinds.sum() / count,
        }

    def _learned(
        self,
        true: np.ndarray,
        labels: np.ndarray,
        quality: np.ndarray,
        sure: np.ndarray,
        corners: np.ndarray,
        strides: np.ndarray,
    ) -> np.ndarray:
        """The object assigned to each position, or -1."""
        centres = corners + strides / 2
        inside = ((centres > true[:, None, :2]) & (centres < true[:, None, 2:])).all(-1)
        middle = (true[:, :2] + true[:, 2:])[:, None] / 2
        near = (np.abs(centres - middle) < RADIUS * strides).all(-1)
        guess = np.clip(np.sqrt(sure[:, 1:] * sure[:, :1]), 1e-7, 1 - 1e-7)
        wrong = -np.log(1 - guess).sum(1) + np.log(1 - guess).T[labels - 1]
        right = -np.log(guess).T[labels - 1]
        cost = wrong + right - 3 * np.log(quality + 1e-8) + FAR * ~(inside & near)
        return assigned(cost, quality, (inside | near).any(0))

    def find(self, features: Features, batch: Batch) -> list[Found]:
        boxes, logits, _, _ = self.told(features, batch)
        chances = logits.sigmoid().numpy(force=True)
        found = []
        for corners, chance, size in zip(boxes.numpy(force=True), chances, batch.sizes):
            scores = chance[:, 1:] * chance[:, :1]
            place, label = np.nonzero(scores > self.score_thresh)
            here, sure, labels = clipped(corners, size)[place], scores[place, label], label + 1
            kept = suppressed(here, sure, labels, self.nms_thresh, self.detections_per_img)
            found.append({"boxes": here[kept], "scores": sure[kept], "labels": labels[kept]})
        return found


def paired_overlap(first: metaop.Tensor, second: metaop.Tensor) -> metaop.Tensor:
    """Intersection over union of boxes (…, 4), row by row."""
    low = metaop.maximum(first[..., :2], second[..., :2])
    high = metaop.minimum(first[..., 2:], second[..., 2:])
    both = (high - low).clamp(min=0).prod(-1)
    areas = [(boxes[..., 2:] - boxes[..., :2]).prod(-1) for boxes in (first, second)]
    return both / (areas[0] + areas[1] - both + 1e-16)


def yolox_s(num_classes: int = 80) -> YOLOX:
    """The small network of the paper, for images of 640 × 640 pixels."""
    return YOLOX(PAFPN(32, 1), num_classes, 128, (640, 640))


def small(options: argparse.Namespace) -> YOLOX:
    backbone = PAFPN(options.width // 2, 1, stem=1)
    return YOLOX(backbone, len(CLASSES) - 1, 2 * options.width, (options.size, options.size))


def main(arguments: Sequence[str] | None = None) -> Learned:
    """Detects shapes in synthetic scenes; returns the losses and the mean average precision."""
    return learn_to_find(small, __doc__, arguments, steps=400)


if __name__ == "__main__":
    main()
