"""Faster R-CNN: a two-stage detector with a region proposal network.

After S. Ren, K. He, R. Girshick, J. Sun, "Faster R-CNN: towards real-time object detection with
region proposal networks", 2015, on a feature pyramid. Names of parameters are torchvision's.

    python -m models.faster_rcnn --steps 300 --out runs/faster_rcnn
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

import metaop
from metaop import nn
from metaop.nn import functional as F
from metaop.vision.ops import Conv2dNormActivation, MultiScaleRoIAlign

from .detection import (
    BELOW,
    BETWEEN,
    AnchorGenerator,
    Batch,
    BoxCoder,
    Detector,
    Features,
    Found,
    ImageTransform,
    Matcher,
    Size,
    Things,
    balanced_samples,
    clipped,
    highest,
    map_sizes,
    matched,
    overlaps,
    per_place,
    suppressed_in_each,
)
from .detection_training import Learned, learn_to_find
from .feature_pyramid import resnet50_fpn, small_pyramid
from .scenes import CLASSES

# Regions are padded to a multiple of this, so that few programs serve all counts.
STEP = 64


def starts_of(parts: Sequence[np.ndarray]) -> list[int]:
    """The offset of each part in their concatenation."""
    return [0, *np.cumsum([len(part) for part in parts])[:-1].tolist()]


def large_enough(boxes: np.ndarray, least: float) -> np.ndarray:
    return ((boxes[:, 2:] - boxes[:, :2]) >= least).all(1)


class RPNHead(nn.Module):
    """Feature maps to objectness logits (batch, anchors) and box codes (batch, anchors, 4)."""

    def __init__(self, channels: int, anchors: int) -> None:
        super().__init__()
        self.conv = nn.Sequential(Conv2dNormActivation(channels, channels, norm_layer=None))
        self.cls_logits = nn.Conv2d(channels, anchors, 1)
        self.bbox_pred = nn.Conv2d(channels, 4 * anchors, 1)
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d):
                nn.init.normal_(layer.weight, std=0.01)
                nn.init.zeros_(layer.bias)

    def forward(self, maps: Sequence[metaop.Tensor]) -> tuple[metaop.Tensor, metaop.Tensor]:
        seen = [self.conv(value) for value in maps]
        logits = [per_place(self.cls_logits(value), 1) for value in seen]
        codes = [per_place(self.bbox_pred(value), 4) for value in seen]
        return metaop.cat(logits, 1)[..., 0], metaop.cat(codes, 1)


class Proposing(NamedTuple):
    """The settings of proposals; pairs are for training and for evaluation.

    Anchors with an IoU of at least `positive_iou` are positive, those below `negative_iou`
    negative. The loss samples `sample` anchors per image, at most the share `share` of them
    positive. The `candidates` best boxes of each map enter NMS, which keeps `most` proposals.
    """

    positive_iou: float = 0.7
    negative_iou: float = 0.3
    sample: int = 256
    share: float = 0.5
    candidates: tuple[int, int] = (2000, 1000)
    most: tuple[int, int] = (2000, 1000)
    nms: float = 0.7


class RegionProposalNetwork(nn.Module):
    """The RPN: proposes class-agnostic boxes."""

    def __init__(self, channels: int, anchors: AnchorGenerator, options: Proposing) -> None:
        super().__init__()
        self.anchors, self.options = anchors, options
        self.head = RPNHead(channels, anchors.counts()[0])
        self.matcher = Matcher(options.positive_iou, options.negative_iou, allow_low_quality=True)
        self.coder = BoxCoder()

    def forward(self, features: Features, batch: Batch) -> tuple[list[np.ndarray], Things]:
        """The proposals of each image, and the losses in training."""
        maps = list(features.values())
        logits, codes = self.head(maps)
        levels = self.anchors(batch.size, map_sizes(maps))
        scores, moves = logits.numpy(force=True), codes.numpy(force=True)
        candidates = [
            self._candidates(logit, move, levels, size)
            for logit, move, size in zip(scores, moves, batch.sizes)
        ]
        options, use = self.options, int(not self.training)
        kept = suppressed_in_each(candidates, options.nms, options.most[use])
        proposals = [part[0][best] for part, best in zip(candidates, kept)]
        losses = self._losses(logits, codes, levels, batch) if self.training else {}
        return proposals, losses

    def _candidates(
        self, scores: np.ndarray, codes: np.ndarray, levels: Sequence[np.ndarray], size: Size
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The best boxes of each level of an image, their scores, and their levels."""
        options, use = self.options, int(not self.training)
        anchors = np.concatenate(levels)
        chosen, level_of = [], []
        for number, (start, level) in enumerate(zip(starts_of(levels), levels)):
            best = highest(scores[start : start + len(level)], options.candidates[use]) + start
            chosen.append(best)
            level_of.append(np.full(len(best), number))
        place, group = np.concatenate(chosen), np.concatenate(level_of)
        boxes = clipped(self.coder.decode(codes[place], anchors[place]), size)
        kept = large_enough(boxes, 1e-3)
        return boxes[kept], scores[place[kept]], group[kept]

    def _losses(
        self,
        logits: metaop.Tensor,
        codes: metaop.Tensor,
        levels: Sequence[np.ndarray],
        batch: Batch,
    ) -> Things:
        anchors, options = np.concatenate(levels), self.options
        labels = np.zeros(logits.shape, np.float32)
        sampled = np.zeros(logits.shape, np.float32)
        goals = np.zeros(codes.shape, np.float32)
        found = [self.matcher(overlaps(boxes, anchors)) for boxes in batch.boxes]
        states = [np.where(one >= 0, 1, np.where(one == BELOW, 0, -1)) for one in found]
        sampled[:] = balanced_samples(states, options.sample, options.share)
        for number, (boxes, matches) in enumerate(zip(batch.boxes, found)):
            chosen = (sampled[number] > 0) & (matches >= 0)
            labels[number, chosen] = 1
            goals[number, chosen] = self.coder.encode(boxes[matches[chosen]], anchors[chosen])
        device, share = logits.device, np.float32(1 / max(sampled.sum(), 1))
        label, goal, weight = (
            metaop.from_numpy(part).to(device) for part in (labels, goals, sampled * share)
        )
        entropy = F.binary_cross_entropy_with_logits(logits, label, reduction="none")
        apart = F.smooth_l1_loss(codes, goal, beta=1 / 9, reduction="none").sum(-1)
        return {
            "loss_objectness": (entropy * weight).sum(),
            "loss_rpn_box_reg": (apart * label * weight).sum(),
        }


class Regions(NamedTuple):
    """Sampled proposals (count, 4) of an image, with the class and the object of each."""

    boxes: np.ndarray
    labels: np.ndarray
    things: np.ndarray


class TwoMLPHead(nn.Module):
    """Two fully connected layers: region features to vectors (count, width)."""

    def __init__(self, in_channels: int, representation_size: int) -> None:
        super().__init__()
        self.fc6 = nn.Linear(in_channels, representation_size)
        self.fc7 = nn.Linear(representation_size, representation_size)

    def forward(self, x: metaop.Tensor) -> metaop.Tensor:
        return F.relu(self.fc7(F.relu(self.fc6(x.flatten(1)))))


class FastRCNNPredictor(nn.Module):
    """Vectors to logits (count, classes) and box codes (count, classes · 4)."""

    def __init__(self, in_channels: int, num_classes: int) -> None:
        super().__init__()
        self.cls_score = nn.Linear(in_channels, num_classes)
        self.bbox_pred = nn.Linear(in_channels, 4 * num_classes)

    def forward(self, x: metaop.Tensor) -> tuple[metaop.Tensor, metaop.Tensor]:
        return self.cls_score(x), self.bbox_pred(x)


class Looking(NamedTuple):
    """The settings of the second stage.

    Proposals with an IoU of at least `iou` are positive. The loss samples `sample` proposals per
    image, at most the share `share` of them positive. Detections have at least the probability
    `score`; NMS with the threshold `nms` keeps at most `most` per image.
    """

    score: float = 0.05
    nms: float = 0.5
    most: int = 100
    iou: float = 0.5
    sample: int = 512
    share: float = 0.25


class RoIHeads(nn.Module):
    """The second stage: classifies proposals and refines their boxes."""

    def __init__(
        self,
        box_roi_pool: MultiScaleRoIAlign,
        box_head: nn.Module,
        box_predictor: nn.Module,
        options: Looking,
    ) -> None:
        super().__init__()
        self.box_roi_pool = box_roi_pool
        self.box_head = box_head
        self.box_predictor = box_predictor
        self.options = options
        self.matcher = Matcher(options.iou, options.iou)
        self.coder = BoxCoder((10.0, 10.0, 5.0, 5.0))

    def pooled(
        self,
        pool: MultiScaleRoIAlign,
        features: Features,
        boxes: Sequence[np.ndarray],
        batch: Batch,
    ) -> metaop.Tensor:
        """Pooled features of the regions of all images, and of padding."""
        missing = -sum(map(len, boxes)) % STEP
        filled = np.tile(np.array([[0, 0, 1, 1]], np.float32), (missing, 1))
        parts = [*boxes[:-1], np.concatenate([boxes[-1], filled])]
        regions = [metaop.from_numpy(np.ascontiguousarray(part)) for part in parts]
        return pool(features, regions, batch.sizes)

    def sampled(self, proposals: Sequence[np.ndarray], batch: Batch) -> list[Regions]:
        """Samples proposals for training, to which the true boxes are added."""
        found = []
        for proposed, boxes, classes in zip(proposals, batch.boxes, batch.labels):
            candidates = np.concatenate([proposed, boxes])
            matches = self.matcher(overlaps(boxes, candidates))
            labels = np.where(matches >= 0, matched(classes, matches), 0)
            labels[matches == BETWEEN] = -1
            found.append(Regions(candidates, labels, matches))
        options = self.options
        drawn = balanced_samples([part.labels for part in found], options.sample, options.share)
        return [Regions(*(rows[own] for rows in part)) for part, own in zip(found, drawn)]

    def losses(self, features: Features, regions: Sequence[Regions], batch: Batch) -> Things:
        """The losses of the classes and boxes of regions."""
        boxes = [part.boxes for part in regions]
        logits, codes = self.box_predictor(
            self.box_head(self.pooled(self.box_roi_pool, features, boxes, batch))
        )
        count = sum(map(len, boxes))
        # Padding has no class.
        labels = np.full(len(logits), -100)
        labels[:count] = np.concatenate([part.labels for part in regions])
        goals = np.zeros((len(logits), 4), np.float32)
        positive = labels > 0
        for number, (part, rows) in enumerate(zip(regions, starts_of(boxes))):
            own = np.flatnonzero(part.labels > 0)
            shown = batch.boxes[number][part.things[own]]
            goals[rows + own] = self.coder.encode(shown, part.boxes[own])
        device = logits.device
        goal, label, weight = (
            metaop.from_numpy(part).to(device)
            for part in (goals, labels, positive.astype(np.float32) / np.float32(count))
        )
        own = codes.unflatten(1, (-1, 4))[metaop.arange(len(labels), device=device), label.clamp(0)]
        apart = F.smooth_l1_loss(own, goal, beta=1 / 9, reduction="none").sum(-1)
        return {
            "loss_classifier": F.cross_entropy(logits, label),
            "loss_box_reg": (apart * weight).sum(),
        }

    def find(
        self, features: Features, proposals: Sequence[np.ndarray], batch: Batch
    ) -> list[Found]:
        """The detections of each image."""
        logits, codes = self.box_predictor(
            self.box_head(self.pooled(self.box_roi_pool, features, proposals, batch))
        )
        scores, moves = logits.softmax(-1).numpy(force=True), codes.numpy(force=True)
        candidates = []
        for start, proposed, size in zip(starts_of(proposals), proposals, batch.sizes):
            rows = slice(start, start + len(proposed))
            candidates.append(self._candidates(scores[rows], moves[rows], proposed, size))
        best = suppressed_in_each(candidates, self.options.nms, self.options.most)
        names = ("boxes", "scores", "labels")
        return [
            dict(zip(names, (column[own] for column in part)))
            for part, own in zip(candidates, best)
        ]

    def _candidates(
        self, scores: np.ndarray, codes: np.ndarray, proposals: np.ndarray, size: Size
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Candidate boxes of an image, with scores and labels."""
        classes = scores.shape[1]
        moved = self.coder.decode(codes.reshape(-1, classes, 4), proposals)
        boxes = clipped(moved, size)[:, 1:].reshape(-1, 4)
        sure = scores[:, 1:].reshape(-1)
        labels = np.tile(np.arange(1, classes), len(proposals))
        kept = (sure > self.options.score) & large_enough(boxes, 1e-2)
        return boxes[kept], sure[kept], labels[kept]


class FasterRCNN(Detector):
    """A two-stage detector.

    `backbone` returns feature maps with `out_channels` channels; `box_roi_pool` pools regions from
    the maps that it names. `width` is that of the box head.
    """

    def __init__(
        self,
        backbone: nn.Module,
        num_classes: int,
        min_size: int = 800,
        max_size: int = 1333,
        rpn_anchor_generator: AnchorGenerator | None = None,
        proposing: Proposing | None = None,
        box_roi_pool: MultiScaleRoIAlign | None = None,
        looking: Looking | None = None,
        width: int = 1024,
    ) -> None:
        super().__init__(backbone, ImageTransform(min_size, max_size))
        channels = backbone.out_channels
        anchors = rpn_anchor_generator or AnchorGenerator(
            ((32,), (64,), (128,), (256,), (512,)), ((0.5, 1.0, 2.0),) * 5
        )
        self.rpn = RegionProposalNetwork(channels, anchors, proposing or Proposing())
        pool = box_roi_pool or MultiScaleRoIAlign(("0", "1", "2", "3"), 7, 2)
        inputs = channels * pool.output_size[0] * pool.output_size[1]
        self.roi_heads = RoIHeads(
            pool,
            TwoMLPHead(inputs, width),
            FastRCNNPredictor(width, num_classes),
            looking or Looking(),
        )

    def losses(self, features: Features, batch: Batch) -> Things:
        proposals, losses = self.rpn(features, batch)
        regions = self.roi_heads.sampled(proposals, batch)
        return {**self.roi_heads.losses(features, regions, batch), **losses}

    def find(self, features: Features, batch: Batch) -> list[Found]:
        proposals, _ = self.rpn(features, batch)
        return self.roi_heads.find(features, proposals, batch)


def fasterrcnn_resnet50_fpn(num_classes: int = 91, **options: Any) -> FasterRCNN:
    """On a ResNet-50 with five maps; further `options` are those of `FasterRCNN`."""
    return FasterRCNN(resnet50_fpn(), num_classes, **options)


def small_options(options: argparse.Namespace) -> dict[str, Any]:
    """Settings for small images: small anchors, few proposals."""
    return {
        "min_size": options.size,
        "max_size": options.size,
        "rpn_anchor_generator": AnchorGenerator(((12,), (20,), (28,)), ((1.0,),) * 3),
        "proposing": Proposing(sample=64, candidates=(60, 60), most=(60, 30)),
        "box_roi_pool": MultiScaleRoIAlign(("0", "1"), 5, 2, canonical_scale=32, canonical_level=3),
        "looking": Looking(sample=32),
        "width": 8 * options.width,
    }


def small(options: argparse.Namespace) -> FasterRCNN:
    return FasterRCNN(small_pyramid(options.width), len(CLASSES), **small_options(options))


def main(arguments: Sequence[str] | None = None) -> Learned:
    """Detects shapes in synthetic scenes; returns the losses and the mean average precision."""
    return learn_to_find(small, __doc__, arguments, steps=300)


if __name__ == "__main__":
    main()
