"""DeepLabV3: segmentation with parallel dilated (atrous) convolutions of several rates.

After L. Chen and others, "Rethinking atrous convolution for semantic image segmentation", 2017,
with torchvision's parameter names, and "Encoder-decoder with atrous separable
convolution for semantic image segmentation", 2018 (V3+, here with plain convolutions), whose
decoder refines the result by a low-level feature map.

    python -m models.deeplabv3 --steps 400 --out runs/deeplabv3
    python -m models.deeplabv3 --plus 1
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import metaop
from metaop import nn
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


def convolution(inputs: int, outputs: int, size: int, dilation: int = 1) -> list[nn.Module]:
    """Convolution with "same" padding, batch normalisation and ReLU."""
    padding = size // 2 * dilation
    return [
        nn.Conv2d(inputs, outputs, size, padding=padding, dilation=dilation, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
    ]


def enlarged(x: metaop.Tensor, size: Sequence[int]) -> metaop.Tensor:
    return F.interpolate(x, size=size, mode="bilinear", align_corners=False)


class ASPPPooling(nn.Sequential):
    """Image-level features: the global mean, projected and broadcast to every position."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(nn.AdaptiveAvgPool2d(1), *convolution(inputs, outputs, 1))

    def forward(self, x: metaop.Tensor) -> metaop.Tensor:
        return enlarged(super().forward(x), x.shape[-2:])


class ASPP(nn.Module):
    """Atrous spatial pyramid pooling: 1x1, a 3x3 convolution of each rate, and global pooling.

    (batch, in_channels, height, width) to (batch, out_channels, height, width).
    """

    def __init__(self, in_channels: int, atrous_rates: Sequence[int], out_channels: int) -> None:
        super().__init__()
        self.convs = nn.ModuleList(
            [
                nn.Sequential(*convolution(in_channels, out_channels, 1)),
                *(
                    nn.Sequential(*convolution(in_channels, out_channels, 3, rate))
                    for rate in atrous_rates
                ),
                ASPPPooling(in_channels, out_channels),
            ]
        )
        self.project = nn.Sequential(
            *convolution(len(self.convs) * out_channels, out_channels, 1), nn.Dropout(0.5)
        )

    def forward(self, x: metaop.Tensor) -> metaop.Tensor:
        return self.project(metaop.cat([layer(x) for layer in self.convs], 1))


class DeepLabHead(nn.Sequential):
    """A feature map (batch, in_channels, height, width) to logits (batch, num_classes, …)."""

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        atrous_rates: Sequence[int] = (12, 24, 36),
        channels: int = 256,
    ) -> None:
        super().__init__(
            ASPP(in_channels, atrous_rates, channels),
            *convolution(channels, channels, 3),
            nn.Conv2d(channels, num_classes, 1),
        )


class DeepLabV3(SegmentationModel):
    """The head classifies the last feature map after ASPP."""


class Decoder(nn.Module):
    """ASPP of the last map, upsampled and refined with a low-level map, to logits."""

    def __init__(
        self,
        in_channels: int,
        low_channels: int,
        num_classes: int,
        atrous_rates: Sequence[int] = (12, 24, 36),
        channels: int = 256,
        low_width: int = 48,
    ) -> None:
        super().__init__()
        self.aspp = ASPP(in_channels, atrous_rates, channels)
        # Few channels, so that the low-level map does not outweigh the semantic features.
        self.project = nn.Sequential(*convolution(low_channels, low_width, 1))
        self.refine = nn.Sequential(
            *convolution(channels + low_width, channels, 3), *convolution(channels, channels, 3)
        )
        self.classify = nn.Conv2d(channels, num_classes, 1)

    def forward(self, last: metaop.Tensor, low: metaop.Tensor) -> metaop.Tensor:
        seen = enlarged(self.aspp(last), low.shape[-2:])
        return self.classify(self.refine(metaop.cat((seen, self.project(low)), 1)))


class DeepLabV3Plus(SegmentationModel):
    """The classifier, a `Decoder`, reads the feature maps "out" and "low"."""

    def logits(self, features: dict[str, metaop.Tensor]) -> metaop.Tensor:
        return self.classifier(features["out"], features["low"])


def deeplabv3_resnet50(num_classes: int = 21, aux_loss: bool = False) -> DeepLabV3:
    """On a ResNet-50; `aux_loss` adds a classifier of its third stage."""
    layers = {"layer3": "aux", "layer4": "out"} if aux_loss else {"layer4": "out"}
    auxiliary = FCNHead(1024, num_classes) if aux_loss else None
    return DeepLabV3(dilated_resnet50(layers), DeepLabHead(2048, num_classes), auxiliary)


def deeplabv3plus_resnet50(num_classes: int = 21) -> DeepLabV3Plus:
    """On a ResNet-50, with its first stage, a quarter of the image, as the low-level map."""
    backbone = dilated_resnet50({"layer1": "low", "layer4": "out"})
    return DeepLabV3Plus(backbone, Decoder(2048, 256, num_classes))


def small(options: argparse.Namespace) -> SegmentationModel:
    width, rates = options.width, (2, 4)
    backbone = small_backbone(width)
    if options.plus:
        decoder = Decoder(4 * width, width, len(CLASSES), rates, 2 * width, width // 2)
        return DeepLabV3Plus(backbone, decoder)
    return DeepLabV3(backbone, DeepLabHead(4 * width, len(CLASSES), rates, 2 * width))


def main(arguments: Sequence[str] | None = None) -> Learned:
    """Segments synthetic scenes; returns the losses and the mean IoU."""
    return learn_classes(small, __doc__, arguments, plus=0)


if __name__ == "__main__":
    main()
