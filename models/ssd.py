"""SSD: a single-stage detector with default boxes on feature maps of several resolutions.

After W. Liu and others, "SSD: single shot multibox detector", 2016. Names of parameters are
torchvision's.

    python -m models.ssd --steps 600 --out runs/ssd
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

from .detection import (
    Batch,
    BoxCoder,
    Detector,
    Features,
    Found,
    ImageTransform,
    Matcher,
    Size,
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
from .feature_pyramid import small_pyramid
from .scenes import CLASSES
from .vgg import vgg16


class DefaultBoxGenerator:
    """Default boxes at every position of feature maps, relative to the image.

    Positions of map k have a square of scale k, one between this and the next scale, and for each
    aspect ratio a wide and a tall box. `steps` are strides in pixels; by default the positions of a
    map cover the image evenly.
    """

    def __init__(
        self,
        aspect_ratios: Sequence[Sequence[float]],
        scales: Sequence[float],
        steps: Sequence[int] | None = None,
    ) -> None:
        self.steps = steps
        self.shapes = []
        for ratios, scale, larger in zip(aspect_ratios, scales, scales[1:]):
            between = math.sqrt(scale * larger)
            pairs = [(scale, scale), (between, between)]
            for ratio in ratios:
                flat = scale * math.sqrt(ratio), scale / math.sqrt(ratio)
                pairs += [flat, flat[::-1]]
            self.shapes.append(np.clip(np.array(pairs, np.float32), 0, 1))

    def counts(self) -> list[int]:
        """The number of default boxes per position of each map."""
        return [len(shapes) for shapes in self.shapes]

    def __call__(self, image: Size, maps: Sequence[Size]) -> list[np.ndarray]:
        """The boxes (height · width · count, 4) in pixels of each of `maps` (height, width)."""
        size = np.array([image[1], image[0]], np.float32)
        found = []
        for number, (shapes, (height, width)) in enumerate(zip(self.shapes, maps)):
            step = self.steps[number] if self.steps else None
            down, right = (
                ((np.arange(count) + 0.5) / (extent / step if step else count)).astype(np.float32)
                for count, extent in zip((height, width), image)
            )
            y, x = np.meshgrid(down, right, indexing="ij")
            centres = np.stack([x, y], -1).reshape(-1, 1, 2)
            corners = (centres - 0.5 * shapes) * size, (centres + 0.5 * shapes) * size
            found.append(np.concatenate(corners, -1).reshape(-1, 4))
        return found


class BestMatcher(Matcher):
    """A `Matcher` with one threshold, which also assigns its best anchor to each object."""

    def __init__(self, threshold: float) -> None:
        super().__init__(threshold, threshold)

    def __call__(self, quality: np.ndarray) -> np.ndarray:
        matches = super().__call__(quality)
        if len(quality):
            matches[quality.argmax(1)] = np.arange(len(quality))
        return matches


def initialised(module: nn.Module) -> nn.Module:
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)
    return module


class ScoringHead(nn.Module):
    """Feature maps to `columns` outputs for each anchor: (batch, anchors, columns)."""

    def __init__(self, channels: Sequence[int], anchors: Sequence[int], columns: int) -> None:
        super().__init__()
        self.module_list = nn.ModuleList(
            nn.Conv2d(width, columns * count, 3, padding=1)
            for width, count in zip(channels, anchors)
        )
        self.columns = columns
        initialised(self)

    def forward(self, maps: Sequence[metaop.Tensor]) -> metaop.Tensor:
        found = [layer(value) for layer, value in zip(self.module_list, maps)]
        return metaop.cat([per_place(value, self.columns) for value in found], 1)


class SSDHead(nn.Module):
    """Feature maps to logits (class 0 is background) and box codes of all anchors."""

    def __init__(self, channels: Sequence[int], anchors: Sequence[int], classes: int) -> None:
        super().__init__()
        self.classification_head = ScoringHead(channels, anchors, classes)
        self.regression_head = ScoringHead(channels, anchors, 4)

    def forward(self, maps: Sequence[metaop.Tensor]) -> tuple[metaop.Tensor, metaop.Tensor]:
        return self.classification_head(maps), self.regression_head(maps)


class SSD(Detector):
    """A single-stage detector.

    `backbone` returns feature maps with the channels `out_channels`. Images are resized to `size`
    (height, width). Hard negative mining keeps `negatives` background boxes per positive one.
    """

    def __init__(
        self,
        backbone: nn.Module,
        anchor_generator: DefaultBoxGenerator,
        size: Size,
        num_classes: int,
        image_mean: Sequence[float] = (0.485, 0.456, 0.406),
        image_std: Sequence[float] = (0.229, 0.224, 0.225),
        score_thresh: float = 0.01,
        nms_thresh: float = 0.45,
        detections_per_img: int = 200,
        iou_thresh: float = 0.5,
        topk_candidates: int = 400,
        negatives: int = 3,
    ) -> None:
        transform = ImageTransform(
            min(size), max(size), image_mean, image_std, divisible=1, fixed=size
        )
        super().__init__(backbone, transform)
        self.anchors = anchor_generator
        self.head = SSDHead(backbone.out_channels, anchor_generator.counts(), num_classes)
        self.matcher = BestMatcher(iou_thresh)
        self.coder = BoxCoder((10.0, 10.0, 5.0, 5.0))
        self.score_thresh, self.nms_thresh = score_thresh, nms_thresh
        self.detections_per_img, self.topk_candidates = detections_per_img, topk_candidates
        self.negatives = negatives

    def losses(self, features: Features, batch: Batch) -> Things:
        maps = list(features.values())
        logits, codes = self.head(maps)
        anchors = np.concatenate(self.anchors(batch.size, map_sizes(maps)))
        labels = np.zeros(logits.shape[:2], np.int64)
        goals = np.zeros((*labels.shape, 4), np.float32)
        for number, (boxes, classes) in enumerate(zip(batch.boxes, batch.labels)):
            matches = self.matcher(overlaps(boxes, anchors))
            chosen = matches >= 0
            labels[number] = np.where(chosen, matched(classes, matches), 0)
            goals[number, chosen] = self.coder.encode(boxes[matches[chosen]], anchors[chosen])
        positive = labels > 0
        device = logits.device
        label, goal, weight = (
            metaop.from_numpy(part).to(device)
            for part in (labels, goals, positive.astype(np.float32) / max(1, positive.sum()))
        )
        entropy = F.cross_entropy(logits.transpose(1, 2), label, reduction="none")
        counted = self._learned_from(entropy.detach(), metaop.from_numpy(positive).to(device))
        apart = F.smooth_l1_loss(codes, goal, reduction="none") * weight[..., None]
        share = 1 / max(1, positive.sum())
        return {
            "bbox_regression": apart.sum(),
            "classification": (entropy * counted).sum() * float(share),
        }

    def _learned_from(self, entropy: metaop.Tensor, positive: metaop.Tensor) -> metaop.Tensor:
        """Positives and hard negatives: the background boxes with the largest loss of an image."""
        order = entropy.masked_fill(positive, -metaop.inf).argsort(1, descending=True, stable=True)
        rank = order.argsort(1)
        return positive | (rank < self.negatives * positive.sum(1, keepdim=True))

    def find(self, features: Features, batch: Batch) -> list[Found]:
        maps = list(features.values())
        logits, codes = self.head(maps)
        anchors = np.concatenate(self.anchors(batch.size, map_sizes(maps)))
        scores, all_codes = logits.softmax(-1).numpy(force=True), codes.numpy(force=True)
        found = []
        for values, part, size in zip(scores, all_codes, batch.sizes):
            boxes = clipped(self.coder.decode(part, anchors), size)
            best = [self._best(values[:, label]) for label in range(1, values.shape[1])]
            place = np.concatenate(best)
            labels = np.repeat(np.arange(1, values.shape[1]), [len(part) for part in best])
            kept = suppressed(
                *(boxes[place], values[place, labels], labels),
                self.nms_thresh,
                self.detections_per_img,
            )
            place, labels = place[kept], labels[kept]
            found.append({"boxes": boxes[place], "scores": values[place, labels], "labels": labels})
        return found

    def _best(self, scores: np.ndarray) -> np.ndarray:
        """The candidates of one class."""
        above = np.flatnonzero(scores > self.score_thresh)
        return above[highest(scores[above], self.topk_candidates)]


def narrowing(inputs: int, width: int, outputs: int, stride: int) -> nn.Sequential:
    """A 1x1 bottleneck, then a 3x3 convolution with stride 2, or without padding."""
    return nn.Sequential(
        nn.Conv2d(inputs, width, 1),
        nn.ReLU(inplace=True),
        nn.Conv2d(width, outputs, 3, stride, padding=stride - 1),
        nn.ReLU(inplace=True),
    )


class VGGFeatures(nn.Module):
    """Six maps: the one before VGG-16's fourth pooling, L2-normalised, and five later ones."""

    out_channels = (512, 1024, 512, 256, 256, 256)

    def __init__(self) -> None:
        super().__init__()
        layers = vgg16().features
        pools = [k for k, layer in enumerate(layers) if isinstance(layer, nn.MaxPool2d)]
        # With ceil_mode 75 pixels become 38, as in the paper.
        layers[pools[2]].ceil_mode = True
        self.scale_weight = nn.Parameter(metaop.ones(512) * 20)
        self.features = nn.Sequential(*layers[: pools[3]])
        wide = nn.Sequential(
            nn.MaxPool2d(3, 1, padding=1),
            nn.Conv2d(512, 1024, 3, padding=6, dilation=6),
            nn.ReLU(inplace=True),
            nn.Conv2d(1024, 1024, 1),
            nn.ReLU(inplace=True),
        )
        further = (
            narrowing(1024, 256, 512, 2),
            narrowing(512, 128, 256, 2),
            narrowing(256, 128, 256, 1),
            narrowing(256, 128, 256, 1),
        )
        for module in (wide, *further):
            initialised(module)
        self.extra = nn.ModuleList([nn.Sequential(*layers[pools[3] : -1], wide), *further])

    def forward(self, images: metaop.Tensor) -> Features:
        x = self.features(images)
        # Early features have larger norms, so they are L2-normalised with a learned scale.
        maps = [self.scale_weight.view(1, -1, 1, 1) * F.normalize(x)]
        for layer in self.extra:
            x = layer(x)
            maps.append(x)
        return {str(number): value for number, value in enumerate(maps)}


def ssd300_vgg16(num_classes: int = 91, **options: Any) -> SSD:
    """On VGG-16, for images of 300 × 300 pixels; further `options` are those of `SSD`."""
    anchors = DefaultBoxGenerator(
        ((2,), (2, 3), (2, 3), (2, 3), (2,), (2,)),
        scales=(0.07, 0.15, 0.33, 0.51, 0.69, 0.87, 1.05),
        steps=(8, 16, 32, 64, 100, 300),
    )
    mean, std = (0.48235, 0.45882, 0.40784), (1 / 255,) * 3
    return SSD(VGGFeatures(), anchors, (300, 300), num_classes, mean, std, **options)


def small(options: argparse.Namespace) -> SSD:
    backbone: nn.Module = small_pyramid(options.width)
    backbone.out_channels = [backbone.out_channels] * 3
    anchors = DefaultBoxGenerator(((), (), ()), (0.15, 0.25, 0.4, 0.6))
    return SSD(backbone, anchors, (options.size, options.size), len(CLASSES))


def main(arguments: Sequence[str] | None = None) -> Learned:
    """Detects shapes in synthetic scenes; returns the losses and the mean average precision."""
    return learn_to_find(small, __doc__, arguments)


if __name__ == "__main__":
    main()
