"""Mask R-CNN: Faster R-CNN with a mask head for instance segmentation.

After K. He, G. Gkioxari, P. Dollár, R. Girshick, "Mask R-CNN", 2017. Names of parameters are
torchvision's.

    python -m models.mask_rcnn --steps 300 --out runs/mask_rcnn
"""

from __future__ import annotations

import argparse
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy as np

import metaop
from metaop import nn
from metaop.errors import ArgumentError
from metaop.nn import functional as F
from metaop.vision.ops import Conv2dNormActivation, MultiScaleRoIAlign, roi_align

from .detection import Batch, Features, Found, Size, Things
from .detection_training import Learned, learn_to_find
from .faster_rcnn import FasterRCNN, Regions, small_options, starts_of
from .feature_pyramid import resnet50_fpn, small_pyramid
from .scenes import CLASSES


def initialise(module: nn.Module) -> None:
    for name, parameter in module.named_parameters():
        if name.endswith("weight"):
            nn.init.kaiming_normal_(parameter, mode="fan_out", nonlinearity="relu")


def mask_head(channels: int, width: int) -> nn.Sequential:
    """Four 3x3 convolutions of region features."""
    inputs = (channels, width, width, width)
    layers = (Conv2dNormActivation(count, width, norm_layer=None) for count in inputs)
    head = nn.Sequential(*layers)
    initialise(head)
    for layer in head:
        nn.init.zeros_(layer[0].bias)
    return head


def mask_predictor(width: int, classes: int) -> nn.Sequential:
    """Region features to mask logits for each class, with twice the height and width."""
    layers = OrderedDict(
        conv5_mask=nn.ConvTranspose2d(width, width, 2, 2),
        relu=nn.ReLU(inplace=True),
        mask_fcn_logits=nn.Conv2d(width, classes, 1),
    )
    predictor = nn.Sequential(layers)
    initialise(predictor)
    return predictor


def pasted(mask: np.ndarray, box: np.ndarray, size: Size) -> np.ndarray:
    """A square mask resized to its box in an image (height, width), with zeros outside.

    The mask is padded with a border of zeros first, as in torchvision.
    """
    height, width = size
    side = mask.shape[0]
    padded = np.pad(mask, 1)
    middle, half = (box[:2] + box[2:]) * 0.5, (box[2:] - box[:2]) * 0.5 * ((side + 2) / side)
    left, top, right, bottom = np.concatenate([middle - half, middle + half]).astype(int)
    extent = max(bottom - top + 1, 1), max(right - left + 1, 1)
    rows, columns = (resizing(len(padded), count) for count in extent)
    drawn = rows @ padded @ columns.T
    image = np.zeros(size, np.float32)
    upper, lower = max(top, 0), min(bottom + 1, height)
    first, last = max(left, 0), min(right + 1, width)
    image[upper:lower, first:last] = drawn[upper - top : lower - top, first - left : last - left]
    return image


def resizing(size: int, extent: int) -> np.ndarray:
    """The matrix (extent, size) of linear interpolation with align_corners=False."""
    place = np.clip((np.arange(extent) + 0.5) * (size / extent) - 0.5, 0, size - 1)
    return np.maximum(1 - np.abs(place[:, None] - np.arange(size)), 0).astype(np.float32)


class MaskRCNN(FasterRCNN):
    """A two-stage detector with masks; further `options` are those of `FasterRCNN`.

    Detections also have `masks` (objects, 1, height, width) of probabilities.
    """

    def __init__(
        self,
        backbone: nn.Module,
        num_classes: int,
        mask_roi_pool: MultiScaleRoIAlign | None = None,
        mask_width: int = 256,
        **options: Any,
    ) -> None:
        super().__init__(backbone, num_classes, **options)
        heads = self.roi_heads
        heads.mask_roi_pool = mask_roi_pool or MultiScaleRoIAlign(("0", "1", "2", "3"), 14, 2)
        heads.mask_head = mask_head(backbone.out_channels, mask_width)
        heads.mask_predictor = mask_predictor(mask_width, num_classes)

    def _mask_logits(
        self, features: Features, boxes: Sequence[np.ndarray], labels: np.ndarray, batch: Batch
    ) -> metaop.Tensor:
        """Mask logits (regions and padding, side, side) for the given class of each region."""
        heads = self.roi_heads
        seen = heads.pooled(heads.mask_roi_pool, features, boxes, batch)
        logits = heads.mask_predictor(heads.mask_head(seen))
        rows = metaop.arange(len(logits), device=logits.device)
        filled = np.pad(labels, (0, len(logits) - len(labels)))
        return logits[rows, metaop.from_numpy(filled).to(logits.device)]

    def losses(self, features: Features, batch: Batch) -> Things:
        if len(batch.masks) != len(batch.boxes):
            raise ArgumentError(
                "MaskRCNN: targets without masks", fix="add masks (things, height, width) to each"
            )
        proposals, losses = self.rpn(features, batch)
        regions = self.roi_heads.sampled(proposals, batch)
        return {
            **self.roi_heads.losses(features, regions, batch),
            **losses,
            "loss_mask": self._mask_loss(features, regions, batch),
        }

    def _mask_loss(
        self, features: Features, regions: Sequence[Regions], batch: Batch
    ) -> metaop.Tensor:
        """The binary cross-entropy of positive regions, for the mask of the true class."""
        shown = [part.labels > 0 for part in regions]
        boxes = [part.boxes[chosen] for part, chosen in zip(regions, shown)]
        labels = np.concatenate([part.labels[chosen] for part, chosen in zip(regions, shown)])
        logits = self._mask_logits(features, boxes, labels, batch)
        side = logits.shape[-1]
        starts = starts_of(batch.masks)
        things = [
            start + part.things[chosen] for start, part, chosen in zip(starts, regions, shown)
        ]
        rows = np.zeros((len(logits), 5), np.float32)
        rows[: len(labels), 0] = np.concatenate(things)
        rows[: len(labels), 1:] = np.concatenate(boxes)
        goals = cut_out(np.concatenate(batch.masks), rows, side)
        counted = np.arange(len(logits)) < len(labels)
        weight = (counted / np.float32(max(len(labels), 1) * side**2)).astype(np.float32)
        device = logits.device
        share = metaop.from_numpy(weight).to(device)
        entropy = F.binary_cross_entropy_with_logits(logits, goals.to(device), reduction="none")
        return (entropy * share[:, None, None]).sum()

    def find(self, features: Features, batch: Batch) -> list[Found]:
        found = super().find(features, batch)
        boxes, labels = ([part[name] for part in found] for name in ("boxes", "labels"))
        logits = self._mask_logits(features, boxes, np.concatenate(labels), batch)
        masks = logits.sigmoid().numpy(force=True)
        return [
            {**part, "masks": masks[start : start + len(own)]}
            for part, start, own in zip(found, starts_of(boxes), boxes)
        ]

    def restore(self, found: Found, size: Size, original: Size) -> Found:
        restored = super().restore(found, size, original)
        pictures = [pasted(*pair, original) for pair in zip(found["masks"], restored["boxes"])]
        return {**restored, "masks": np.array(pictures, np.float32).reshape(-1, 1, *original)}


def cut_out(masks: np.ndarray, rows: np.ndarray, side: int) -> metaop.Tensor:
    """Crops of masks (rows, side, side) by boxes, rows (mask, x1, y1, x2, y2)."""
    # Padded, so that few programs serve all counts.
    filled = np.pad(masks, ((0, 8 - len(masks) % 8), (0, 0), (0, 0)))
    return roi_align(metaop.from_numpy(filled[:, None]), metaop.from_numpy(rows), side)[:, 0]


def maskrcnn_resnet50_fpn(num_classes: int = 91, **options: Any) -> MaskRCNN:
    """On a ResNet-50 with five maps; further `options` are those of `MaskRCNN`."""
    return MaskRCNN(resnet50_fpn(), num_classes, **options)


def small(options: argparse.Namespace) -> MaskRCNN:
    pool = MultiScaleRoIAlign(("0", "1"), 7, 2, canonical_scale=32, canonical_level=3)
    backbone, width = small_pyramid(options.width), 2 * options.width
    return MaskRCNN(backbone, len(CLASSES), pool, width, **small_options(options))


def main(arguments: Sequence[str] | None = None) -> Learned:
    """Detects shapes in synthetic scenes; returns the losses and the mean average precisions."""
    return learn_to_find(small, __doc__, arguments, steps=300)


if __name__ == "__main__":
    main()
