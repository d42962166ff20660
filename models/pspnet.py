"""PSPNet: segmentation with global context from a pyramid of average pooling.

After H. Zhao, J. Shi, X. Qi, X. Wang, J. Jia, "Pyramid scene parsing network", 2017.

    python -m models.pspnet --steps 400 --out runs/pspnet
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import metaop
from metaop import nn
from metaop.errors import ArgumentError
from metaop.nn import functional as F

from .fcn import FCNHead
from .scenes import CLASSES
from .segmentation import (
    Learned,
    SegmentationModel,
    dilated_resnet50,
    learn_classes,
    small_backbone,
)


class PyramidPooling(nn.Module):
    """The map, and beside it its means over grids of `bins` × `bins` parts, enlarged again.

    (batch, channels, height, width) to twice the channels: each grid has an equal share, so their
    number divides `channels`.
    """

    def __init__(self, channels: int, bins: Sequence[int] = (1, 2, 3, 6)) -> None:
        super().__init__()
        if channels % len(bins):
            raise ArgumentError(
                f"PyramidPooling: {len(bins)} grids cannot share {channels} channels"
            )
        width = channels // len(bins)
        self.parts = nn.ModuleList(
            nn.Sequential(
                nn.AdaptiveAvgPool2d(count),
                nn.Conv2d(channels, width, 1, bias=False),
                nn.BatchNorm2d(width),
                nn.ReLU(inplace=True),
            )
            for count in bins
        )

    def forward(self, x: metaop.Tensor) -> metaop.Tensor:
        size = x.shape[-2:]
        means = [
            F.interpolate(part(x), size=size, mode="bilinear", align_corners=True)
            for part in self.parts
        ]
        return metaop.cat((x, *means), 1)


class PSPHead(nn.Sequential):
    """A feature map (batch, in_channels, height, width) to logits (batch, num_classes, …)."""

    def __init__(
        self, in_channels: int, num_classes: int, bins: Sequence[int] = (1, 2, 3, 6)
    ) -> None:
        width = in_channels // 4
        super().__init__(
            PyramidPooling(in_channels, bins),
            nn.Conv2d(2 * in_channels, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Dropout2d(0.1),
            nn.Conv2d(width, num_classes, 1),
        )


class PSPNet(SegmentationModel):
    """The head classifies the last feature map with its pyramid of pooled features."""


def pspnet_resnet50(num_classes: int = 21, aux_loss: bool = True) -> PSPNet:
    """On a ResNet-50; `aux_loss` adds a classifier of its third stage, as in the paper."""
    layers = {"layer3": "aux", "layer4": "out"} if aux_loss else {"layer4": "out"}
    auxiliary = FCNHead(1024, num_classes) if aux_loss else None
    return PSPNet(dilated_resnet50(layers), PSPHead(2048, num_classes), auxiliary)


def small(options: argparse.Namespace) -> PSPNet:
    width = options.width
    return PSPNet(
        small_backbone(width),
        PSPHead(4 * width, len(CLASSES), (1, 2, 3, 6)),
        FCNHead(2 * width, len(CLASSES)),
    )


def main(arguments: Sequence[str] | None = None) -> Learned:
    """Segments synthetic scenes; returns the losses and the mean IoU."""
    return learn_classes(small, __doc__, arguments)


if __name__ == "__main__":
    main()
