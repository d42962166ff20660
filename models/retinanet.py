"""RetinaNet: a single-stage detector with the focal loss, which down-weights easy examples.

After T. Lin, P. Goyal, R. Girshick, K. He, P. Dollár, "Focal loss for dense object detection",
2017. Names of parameters are torchvision's.

    python -m models.retinanet --steps 800 --out runs/retinanet
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import metaop
from metaop import nn
from metaop.nn import functional as F
from metaop.vision.ops import Conv2dNormActivation, sigmoid_focal_loss

from .detection import (
    BETWEEN,
    AnchorGenerator,
    Batch,
    BoxCoder,
    Detector,
    Features,
    Found,
    ImageTransform,
    Matcher,
    Things,
    clipped,
    highest,
    map_sizes,
    matched,
    overlaps,
    per_place,
    suppressed,
)
from .detection_training import Learned, learn_to_find
from .feature_pyramid import LastLevelP6P7, resnet50_fpn, small_pyramid
from .scenes import CLASSES


def tower(channels: int) -> nn.Sequential:
    """Four 3x3 convolutions, shared by all maps."""
    layers = nn.Sequential(
        *(Conv2dNormActivation(channels, channels, norm_layer=None) for _ in range(4))
    )
    for layer in layers:
        nn.init.normal_(layer[0].weight, std=0.01)
        nn.init.zeros_(layer[0].bias)
    return layers


def last_layer(channels: int, outputs: int, bias: float) -> nn.Conv2d:
    layer = nn.Conv2d(channels, outputs, 3, padding=1)
    nn.init.normal_(layer.weight, std=0.01)
    nn.init.constant_(layer.bias, bias)
    return layer


class ClassificationHead(nn.Module):
    """Feature maps to logits (batch, anchors, classes)."""

    def __init__(self, channels: int, anchors: int, classes: int, prior: float = 0.01) -> None:
        super().__init__()
        self.conv = tower(channels)
        # Initially every class has the probability `prior`, so that the many background anchors do
        # not dominate the loss.
        self.cls_logits = last_layer(channels, anchors * classes, -math.log((1 - prior) / prior))
        self.classes = classes

    def forward(self, maps: Sequence[metaop.Tensor]) -> metaop.Tensor:
        found = [per_place(self.cls_logits(self.conv(value)), self.classes) for value in maps]
        return metaop.cat(found, 1)


class RegressionHead(nn.Module):
    """Feature maps to box codes (batch, anchors, 4)."""

    def __init__(self, channels: int, anchors: int) -> None:
        super().__init__()
        self.conv = tower(channels)
        self.bbox_reg = last_layer(channels, 4 * anchors, 0.0)

    def forward(self, maps: Sequence[metaop.Tensor]) -> metaop.Tensor:
        return metaop.cat([per_place(self.bbox_reg(self.conv(value)), 4) for value in maps], 1)


class RetinaNetHead(nn.Module):
    """Feature maps to logits and box codes of all anchors."""

    def __init__(self, channels: int, anchors: int, classes: int) -> None:
        super().__init__()
        self.classification_head = ClassificationHead(channels, anchors, classes)
        self.regression_head = RegressionHead(channels, anchors)

    def forward(self, maps: Sequence[metaop.Tensor]) -> tuple[metaop.Tensor, metaop.Tensor]:
        return self.classification_head(maps), self.regression_head(maps)


def three_sizes(*sizes: int) -> AnchorGenerator:
    """Anchors of three scales (1, 2^(1/3), 2^(2/3)) and three aspect ratios per map."""
    steps = [tuple(int(size * 2 ** (k / 3)) for k in range(3)) for size in sizes]
    return AnchorGenerator(steps, ((0.5, 1.0, 2.0),) * len(sizes))


class RetinaNet(Detector):
    """A single-stage detector.

    `backbone` returns feature maps with `out_channels` channels. Anchors with an IoU of at least
    `fg_iou_thresh` are positive, those below `bg_iou_thresh` negative, and others are ignored. Of
    each map the `topk_candidates` best boxes above `score_thresh` enter NMS.
    """

    def __init__(
        self,
        backbone: nn.Module,
        num_classes: int,
        min_size: int = 800,
        max_size: int = 1333,
        anchor_generator: AnchorGenerator | None = None,
        score_thresh: float = 0.05,
        nms_thresh: float = 0.5,
        detections_per_img: int = 300,
        fg_iou_thresh: float = 0.5,
        bg_iou_thresh: float = 0.4,
        topk_candidates: int = 1000,
    ) -> None:
        super().__init__(backbone, ImageTransform(min_size, max_size))
        self.anchors = anchor_generator or three_sizes(32, 64, 128, 256, 512)
        self.head = RetinaNetHead(backbone.out_channels, self.anchors.counts()[0], num_classes)
        self.matcher = Matcher(fg_iou_thresh, bg_iou_thresh, allow_low_quality=True)
        self.coder = BoxCoder()
        self.score_thresh, self.nms_thresh = score_thresh, nms_thresh
        self.detections_per_img, self.topk_candidates = detections_per_img, topk_candidates

    def losses(self, features: Features, batch: Batch) -> Things:
        maps = list(features.values())
        logits, codes = self.head(maps)
        anchors = np.concatenate(self.anchors(batch.size, map_sizes(maps)))
        labels, goals, counted, positive = [], [], [], []
        for boxes, classes in zip(batch.boxes, batch.labels):
            matches = self.matcher(overlaps(boxes, anchors))
            is_thing = matches >= 0
            share = np.float32(1 / max(1, is_thing.sum()) / len(batch.boxes))
            labels.append(np.where(is_thing, matched(classes, matches), -1))
            goals.append(self._goals(boxes, anchors, matches))
            counted.append((matches != BETWEEN) * share)
            positive.append(is_thing * share)
        device = logits.device
        label, goal, weight, box_weight = (
            metaop.from_numpy(np.stack(part)).to(device)
            for part in (labels, goals, counted, positive)
        )
        true = label[..., None] == metaop.arange(logits.shape[-1], device=device)
        focal = sigmoid_focal_loss(logits, true.to(logits.dtype)) * weight[..., None]
        apart = F.l1_loss(codes, goal, reduction="none") * box_weight[..., None]
        return {"classification": focal.sum(), "bbox_regression": apart.sum()}

    def _goals(self, boxes: np.ndarray, anchors: np.ndarray, matches: np.ndarray) -> np.ndarray:
        """The box codes (anchors, 4) of matched objects; 0 for unmatched anchors."""
        goals = np.zeros_like(anchors)
        chosen = matches >= 0
        goals[chosen] = self.coder.encode(boxes[matches[chosen]], anchors[chosen])
        return goals

    def find(self, features: Features, batch: Batch) -> list[Found]:
        maps = list(features.values())
        logits, codes = self.head(maps)
        levels = self.anchors(batch.size, map_sizes(maps))
        scores, all_codes = logits.sigmoid().numpy(force=True), codes.numpy(force=True)
        ends = np.cumsum([len(level) for level in levels])[:-1]
        found = []
        for number, size in enumerate(batch.sizes):
            split = (np.split(part[number], ends) for part in (scores, all_codes))
            best = [self._best(*parts) for parts in zip(*split, levels)]
            boxes, values, labels = (np.concatenate(parts) for parts in zip(*best))
            boxes = clipped(boxes, size)
            kept = suppressed(boxes, values, labels, self.nms_thresh, self.detections_per_img)
            found.append({"boxes": boxes[kept], "scores": values[kept], "labels": labels[kept]})
        return found

    def _best(
        self, scores: np.ndarray, codes: np.ndarray, anchors: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Boxes, scores and labels of the candidates of one map."""
        flat = scores.reshape(-1)
        above = np.flatnonzero(flat > self.score_thresh)
        chosen = above[highest(flat[above], self.topk_candidates)]
        places, labels = np.divmod(chosen, scores.shape[1])
        return self.coder.decode(codes[places], anchors[places]), flat[chosen], labels


def retinanet_resnet50_fpn(num_classes: int = 91, **options: Any) -> RetinaNet:
    """On a ResNet-50 with five maps; further `options` are those of `RetinaNet`."""
    return RetinaNet(resnet50_fpn((2, 3, 4), LastLevelP6P7(256, 256)), num_classes, **options)


def small(options: argparse.Namespace) -> RetinaNet:
    # All shapes are about as wide as tall.
    anchors = AnchorGenerator(((10, 14), (18, 22), (26, 30)), ((1.0,),) * 3)
    model = RetinaNet(
        small_pyramid(options.width), len(CLASSES), options.size, options.size, anchors
    )
    # The paper's small initial weights suit wide towers; in narrow ones signals would vanish.
    for head in (model.head.classification_head, model.head.regression_head):
        for layer in head.conv:
            nn.init.kaiming_normal_(layer[0].weight, nonlinearity="relu")
    return model


def main(arguments: Sequence[str] | None = None) -> Learned:
    """Detects shapes in synthetic scenes; returns the losses and the mean average precision."""
    return learn_to_find(small, __doc__, arguments, steps=800)


if __name__ == "__main__":
    main()
