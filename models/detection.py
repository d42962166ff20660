"""What object detectors share: their structure, anchors, box coding, matching, sampling.

Boxes are rows of corners (x1, y1, x2, y2) in pixels. Steps without a gradient (matching of anchors,
non-maximum suppression) run on the host with NumPy, because their sizes change with every image.
Computations of the network have fixed shapes, with weights of 0 for ignored elements.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

import metaop
from metaop import nn
from metaop.errors import ArgumentError, ShapeError
from metaop.nn import functional as F
from metaop.vision.ops import batched_nms

Size = tuple[int, int]
Features = dict[str, metaop.Tensor]
Things = dict[str, metaop.Tensor]
# The detections in an image, on the host: boxes, scores, labels and perhaps masks.
Found = dict[str, np.ndarray]

BELOW, BETWEEN = -1, -2


# --- boxes ---------------------------------------------------------------------------------------


def overlaps(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The intersection over union (N, M) of boxes (N, 4) and (M, 4)."""
    low = np.maximum(first[:, None, :2], second[:, :2])
    high = np.minimum(first[:, None, 2:], second[:, 2:])
    both = np.maximum(high - low, 0).prod(-1)
    areas = [(boxes[:, 2:] - boxes[:, :2]).prod(-1) for boxes in (first, second)]
    return both / (areas[0][:, None] + areas[1] - both)


def clipped(boxes: np.ndarray, size: Size) -> np.ndarray:
    """Boxes (…, 4) clipped to an image (height, width)."""
    limits = np.array([size[1], size[0], size[1], size[0]], boxes.dtype)
    return np.clip(boxes, 0, limits)


def suppressed(
    boxes: np.ndarray, scores: np.ndarray, groups: np.ndarray, threshold: float, most: int
) -> np.ndarray:
    """Non-maximum suppression: indices of at most `most` boxes, by descending score."""
    corners, sure, group = (
        metaop.from_numpy(np.ascontiguousarray(part)) for part in (boxes, scores, groups)
    )
    return batched_nms(corners, sure, group, threshold).numpy()[:most]


def suppressed_in_each(
    parts: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray]], threshold: float, most: int
) -> list[np.ndarray]:
    """`suppressed` for the boxes, scores and groups of several images, computed together."""
    joined = [np.concatenate(columns) for columns in zip(*parts)]
    image = np.repeat(np.arange(len(parts)), [len(part[0]) for part in parts])
    joined[2] = joined[2] * len(parts) + image
    kept = suppressed(joined[0], joined[1], joined[2], threshold, len(image))
    starts = np.searchsorted(image, np.arange(len(parts)))
    return [kept[image[kept] == k][:most] - start for k, start in enumerate(starts)]


def highest(scores: np.ndarray, count: int) -> np.ndarray:
    """The indices of the `count` highest scores, in descending order."""
    return np.argsort(-scores, kind="stable")[:count]


class BoxCoder:
    """Encodes boxes as offsets and log-scales relative to anchors, times `weights`."""

    def __init__(self, weights: Sequence[float] = (1.0, 1.0, 1.0, 1.0)) -> None:
        self.weights = np.array(weights, np.float32)

    def encode(self, boxes: np.ndarray, anchors: np.ndarray) -> np.ndarray:
        """Regression targets (dx, dy, dw, dh) from anchors to boxes, all (N, 4)."""
        sizes = anchors[:, 2:] - anchors[:, :2]
        goal_sizes = boxes[:, 2:] - boxes[:, :2]
        apart = (boxes[:, :2] + 0.5 * goal_sizes) - (anchors[:, :2] + 0.5 * sizes)
        codes = np.concatenate([apart / sizes, np.log(goal_sizes / sizes)], 1)
        return (codes * self.weights).astype(np.float32)

    def decode(self, codes: np.ndarray, anchors: np.ndarray) -> np.ndarray:
        """The boxes (N, …, 4) of codes (N, …, 4) and anchors (N, 4)."""
        codes = codes / self.weights
        anchors = anchors.reshape(len(anchors), *[1] * (codes.ndim - 2), 4)
        sizes = anchors[..., 2:] - anchors[..., :2]
        centres = codes[..., :2] * sizes + (anchors[..., :2] + 0.5 * sizes)
        # The clamp avoids overflow with an untrained network.
        stretch = np.exp(np.minimum(codes[..., 2:], math.log(1000.0 / 16)))
        half = 0.5 * (stretch * sizes)
        return np.concatenate([centres - half, centres + half], -1).astype(np.float32)


class AnchorGenerator:
    """Anchors at every position of feature maps: all `sizes` by all `aspect_ratios` of a map.

    An aspect ratio is height / width. As in torchvision, anchors are centred at the upper left
    corner of a position, with corners rounded to integers.
    """

    def __init__(
        self, sizes: Sequence[Sequence[int]], aspect_ratios: Sequence[Sequence[float]]
    ) -> None:
        self.cells = [self._cell(*pair) for pair in zip(sizes, aspect_ratios)]

    @staticmethod
    def _cell(sizes: Sequence[int], ratios: Sequence[float]) -> np.ndarray:
        roots = np.sqrt(np.array(ratios, np.float32))[:, None]
        scales = np.array(sizes, np.float32)
        widths, heights = (1 / roots * scales).reshape(-1), (roots * scales).reshape(-1)
        return np.round(np.stack([-widths, -heights, widths, heights], 1) / 2)

    def counts(self) -> list[int]:
        """The number of anchors per position of each map."""
        return [len(cell) for cell in self.cells]

    def __call__(self, image: Size, maps: Sequence[Size]) -> list[np.ndarray]:
        """The anchors (height · width · count, 4) of each of `maps` (height, width)."""
        if len(maps) != len(self.cells):
            raise ArgumentError(
                f"AnchorGenerator: {len(maps)} feature maps, sizes for {len(self.cells)}",
                fix="name sizes and aspect_ratios for each feature map",
            )
        found = []
        for cell, (height, width) in zip(self.cells, maps):
            down = np.arange(height) * (image[0] // height)
            right = np.arange(width) * (image[1] // width)
            y, x = (part.reshape(-1) for part in np.meshgrid(down, right, indexing="ij"))
            shifts = np.stack([x, y, x, y], 1)[:, None]
            found.append((shifts + cell).reshape(-1, 4).astype(np.float32))
        return found


def map_sizes(features: Sequence[metaop.Tensor]) -> list[Size]:
    return [(value.shape[2], value.shape[3]) for value in features]


class Matcher:
    """Assigns anchors to objects.

    An anchor gets the object with the largest IoU, if that is at least `high`; `BELOW` if it is
    less than `low`, and otherwise `BETWEEN`. With `allow_low_quality` the best anchors of each
    object get the object with the largest IoU in any case.
    """

    def __init__(self, high: float, low: float, allow_low_quality: bool = False) -> None:
        self.high, self.low, self.allow_low_quality = high, low, allow_low_quality

    def __call__(self, quality: np.ndarray) -> np.ndarray:
        """Indices of objects (anchors,) from IoUs (objects, anchors)."""
        if not len(quality):
            return np.full(quality.shape[1], BELOW)
        best, value = quality.argmax(0), quality.max(0)
        matches = np.where(value >= self.high, best, np.where(value < self.low, BELOW, BETWEEN))
        if self.allow_low_quality:
            chosen = (quality == quality.max(1, keepdims=True)).any(0)
            matches[chosen] = best[chosen]
        return matches


def matched(values: np.ndarray, matches: np.ndarray) -> np.ndarray:
    """The row of `values` for each match; arbitrary rows or zeros for unmatched anchors."""
    if not len(values):
        return np.zeros((len(matches), *values.shape[1:]), values.dtype)
    return values[np.maximum(matches, 0)]


def balanced_samples(labels: Sequence[np.ndarray], count: int, positive: float) -> list[np.ndarray]:
    """Masks of `count` random samples per image.

    At most the share `positive` of them have a positive label; the others have label 0. Negative
    labels are never sampled.
    """
    keys = metaop.rand(sum(map(len, labels))).numpy()
    masks, start = [], 0
    for own in labels:
        order = np.argsort(keys[start : start + len(own)])
        groups = [order[own[order] > 0], order[own[order] == 0]]
        first = min(len(groups[0]), int(count * positive))
        drawn = np.zeros(len(own), bool)
        drawn[groups[0][:first]] = drawn[groups[1][: count - first]] = True
        masks.append(drawn)
        start += len(own)
    return masks


def per_place(value: metaop.Tensor, columns: int) -> metaop.Tensor:
    """Maps (batch, anchors · columns, height, width) to rows (batch, all anchors, columns)."""
    return value.unflatten(1, (-1, columns)).permute(0, 3, 4, 1, 2).flatten(1, 3)


# --- images --------------------------------------------------------------------------------------


class Batch(NamedTuple):
    """Padded images with their objects.

    `images` (batch, 3, height, width) have the resized images, of `sizes`, in the upper left
    corner; `originals` are the sizes before resizing. Lists have an entry per image; those of
    objects are empty without targets.
    """

    images: metaop.Tensor
    sizes: list[Size]
    originals: list[Size]
    boxes: list[np.ndarray]
    labels: list[np.ndarray]
    masks: list[np.ndarray]

    @property
    def size(self) -> Size:
        return self.images.shape[2], self.images.shape[3]


class ImageTransform:
    """Normalises and resizes images of any sizes, and pads them to one batch.

    The shorter side becomes `min_size` unless the longer one would exceed `max_size`; with `fixed`
    (height, width) all images get this size. Batches are padded to multiples of `divisible`.
    """

    def __init__(
        self,
        min_size: int,
        max_size: int,
        mean: Sequence[float] = (0.485, 0.456, 0.406),
        std: Sequence[float] = (0.229, 0.224, 0.225),
        divisible: int = 32,
        fixed: Size | None = None,
    ) -> None:
        self.min_size, self.max_size = min_size, max_size
        self.mean, self.std = mean, std
        self.divisible, self.fixed = divisible, fixed

    def new_size(self, size: Size) -> Size:
        """The size of an image after resizing."""
        if self.fixed is not None:
            return self.fixed
        scale = min(self.min_size / min(size), self.max_size / max(size))
        return int(size[0] * scale), int(size[1] * scale)

    def _prepared(self, image: metaop.Tensor, size: Size) -> metaop.Tensor:
        mean, std = (
            metaop.tensor(part, dtype=image.dtype, device=image.device)[:, None, None]
            for part in (self.mean, self.std)
        )
        image = (image - mean) / std
        if tuple(image.shape[1:]) == size:
            return image
        return F.interpolate(image[None], size=size, mode="bilinear", align_corners=False)[0]

    def __call__(self, images: Sequence[metaop.Tensor], targets: Sequence[Things] | None) -> Batch:
        for image in images:
            if image.ndim != 3:
                raise ShapeError(
                    f"a detector takes images (channels, height, width), got {list(image.shape)}",
                    fix="pass a list of images, or a batch to iterate over",
                )
        originals = [(image.shape[1], image.shape[2]) for image in images]
        sizes = [self.new_size(size) for size in originals]
        tall, wide = (
            math.ceil(max(size[k] for size in sizes) / self.divisible) * self.divisible
            for k in (0, 1)
        )
        filled = [
            F.pad(self._prepared(image, size), (0, wide - size[1], 0, tall - size[0]))
            for image, size in zip(images, sizes)
        ]
        things = self._things(targets or (), originals, sizes)
        return Batch(metaop.stack(filled), sizes, originals, *things)

    def _things(
        self, targets: Sequence[Things], originals: list[Size], sizes: list[Size]
    ) -> tuple[list[np.ndarray], list[np.ndarray], list[np.ndarray]]:
        boxes, labels, masks = [], [], []
        for target, old, new in zip(targets, originals, sizes):
            corners = scaled(target["boxes"].numpy(force=True).reshape(-1, 4), old, new)
            if (corners[:, 2:] <= corners[:, :2]).any():
                raise ArgumentError(
                    "a detector got a box without area in its targets",
                    fix="boxes are (x1, y1, x2, y2) with x1 < x2 and y1 < y2",
                )
            boxes.append(corners)
            labels.append(target["labels"].numpy(force=True))
            if "masks" in target:
                layers = target["masks"].numpy(force=True).astype(np.float32)
                if old != new:
                    scaled_layers = F.interpolate(metaop.from_numpy(layers[None]), size=new)
                    layers = scaled_layers[0].numpy()
                masks.append(layers)
        return boxes, labels, masks


def scaled(boxes: np.ndarray, old: Size, new: Size) -> np.ndarray:
    """Boxes (…, 4) of an image that is resized from `old` to `new` (height, width)."""
    down, right = np.float32(new[0]) / np.float32(old[0]), np.float32(new[1]) / np.float32(old[1])
    return boxes * np.array([right, down, right, down], np.float32)


class Detector(nn.Module):
    """Images to losses in training, and to detections in evaluation.

    Inputs are a sequence of images (3, height, width) in [0, 1] and, for training, `targets`: for
    each image a dict with `boxes` (objects, 4), `labels` (objects,) from 1 on, and for networks
    with masks `masks` (objects, height, width). Returns a dict of losses, or for each image a dict
    with `boxes`, `labels`, `scores` in descending order, and perhaps `masks`.
    """

    def __init__(self, backbone: nn.Module, transform: ImageTransform) -> None:
        super().__init__()
        self.backbone = backbone
        self.transform = transform

    def losses(self, features: Features, batch: Batch) -> Things:
        """The losses by name, whose sum is minimised."""
        raise NotImplementedError

    def find(self, features: Features, batch: Batch) -> list[Found]:
        """The detections in each image of the batch."""
        raise NotImplementedError

    def restore(self, found: Found, size: Size, original: Size) -> Found:
        """Detections of a resized image in pixels of the original one."""
        return {**found, "boxes": scaled(found["boxes"], size, original)}

    def forward(
        self, images: Sequence[metaop.Tensor], targets: Sequence[Things] | None = None
    ) -> Things | list[Things]:
        if self.training and (targets is None or len(targets) != len(images)):
            raise ArgumentError(
                f"{type(self).__name__}: a detector in training needs targets for each image",
                fix="pass targets, or call eval() first",
            )
        batch = self.transform(images, targets if self.training else None)
        features = self.backbone(batch.images)
        if not isinstance(features, dict):
            features = {"0": features}
        if self.training:
            return self.losses(features, batch)
        results = []
        for found, size, original in zip(self.find(features, batch), batch.sizes, batch.originals):
            restored = self.restore(found, size, original)
            results.append({name: metaop.from_numpy(value) for name, value in restored.items()})
        return results
