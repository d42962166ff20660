"""FCN: a fully convolutional network for semantic segmentation.

After J. Long, E. Shelhamer, T. Darrell, "Fully convolutional networks for semantic segmentation",
2015, on a ResNet whose last stages are dilated. Names of parameters are torchvision's.

    python -m models.fcn --steps 400 --out runs/fcn
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from metaop import nn

from .scenes import CLASSES
from .segmentation import (
    Learned,
    SegmentationModel,
    dilated_resnet50,
    learn_classes,
    small_backbone,
)


class FCNHead(nn.Sequential):
    """A feature map (batch, in_channels, height, width) to logits (batch, channels, …)."""

    def __init__(self, in_channels: int, channels: int) -> None:
        width = in_channels // 4
        super().__init__(
            nn.Conv2d(in_channels, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Dropout(0.1),
            nn.Conv2d(width, channels, 1),
        )


class FCN(SegmentationModel):
    """A convolutional head classifies each position of the last feature map."""


def fcn_resnet50(num_classes: int = 21, aux_loss: bool = False) -> FCN:
    """On a ResNet-50; `aux_loss` adds a classifier of its third stage."""
    layers = {"layer3": "aux", "layer4": "out"} if aux_loss else {"layer4": "out"}
    auxiliary = FCNHead(1024, num_classes) if aux_loss else None
    return FCN(dilated_resnet50(layers), FCNHead(2048, num_classes), auxiliary)


def small(options: argparse.Namespace) -> FCN:
    width = options.width
    heads = FCNHead(4 * width, len(CLASSES)), FCNHead(2 * width, len(CLASSES))
    return FCN(small_backbone(width), *heads)


def main(arguments: Sequence[str] | None = None) -> Learned:
    """Segments synthetic scenes; returns the losses and the mean IoU."""
    return learn_classes(small, __doc__, arguments)


if __name__ == "__main__":
    main()
