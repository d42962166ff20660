"""FPN: a feature pyramid on top of a backbone, for detectors.

After T. Lin and others, "Feature pyramid networks for object detection", 2016. Names of parameters
are torchvision's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import metaop
from metaop import nn
from metaop.nn import functional as F
from metaop.vision.models import IntermediateLayerGetter
from metaop.vision.ops import Conv2dNormActivation, FeaturePyramidNetwork

from .resnet import resnet50

Maps = list[metaop.Tensor]


class LastLevelMaxPool(nn.Module):
    """Adds a map: the last one, subsampled with stride 2."""

    def forward(self, maps: Maps, inputs: Maps, names: list[str]) -> tuple[Maps, list[str]]:
        return [*maps, maps[-1][:, :, ::2, ::2]], [*names, "pool"]


class LastLevelP6P7(nn.Module):
    """Adds the maps P6 and P7 by convolutions with stride 2."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.p6 = nn.Conv2d(in_channels, out_channels, 3, 2, 1)
        self.p7 = nn.Conv2d(out_channels, out_channels, 3, 2, 1)
        self.use_p5 = in_channels == out_channels
        for module in (self.p6, self.p7):
            nn.init.kaiming_uniform_(module.weight, a=1)
            nn.init.zeros_(module.bias)

    def forward(self, maps: Maps, inputs: Maps, names: list[str]) -> tuple[Maps, list[str]]:
        p6 = self.p6(maps[-1] if self.use_p5 else inputs[-1])
        return [*maps, p6, self.p7(F.relu(p6))], [*names, "p6", "p7"]


class BackboneWithFPN(nn.Module):
    """Images to feature maps by name, each with `out_channels` channels.

    `return_layers` maps children of the backbone to names of maps, and `in_channels_list` has their
    channels; `extra_blocks` adds further maps.
    """

    def __init__(
        self,
        backbone: nn.Module,
        return_layers: dict[str, str],
        in_channels_list: Sequence[int],
        out_channels: int,
        extra_blocks: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.body = IntermediateLayerGetter(backbone, return_layers)
        self.fpn = FeaturePyramidNetwork(
            in_channels_list, out_channels, extra_blocks or LastLevelMaxPool()
        )
        self.out_channels = out_channels

    def forward(self, images: metaop.Tensor) -> dict[str, metaop.Tensor]:
        return self.fpn(self.body(images))


def resnet50_fpn(
    stages: Sequence[int] = (1, 2, 3, 4), extra_blocks: nn.Module | None = None, **options: Any
) -> BackboneWithFPN:
    """Maps with 256 channels of these stages of a ResNet-50, whose options are `options`."""
    layers = {f"layer{stage}": str(number) for number, stage in enumerate(stages)}
    channels = [128 * 2**stage for stage in stages]
    return BackboneWithFPN(resnet50(**options), layers, channels, 256, extra_blocks)


def small_pyramid(
    width: int, levels: int = 2, extra_blocks: nn.Module | None = None
) -> BackboneWithFPN:
    """For small images: `levels` maps from stride 4 on, with 4 × `width` channels."""
    layers: list[nn.Module] = [Conv2dNormActivation(3, width, 3, 2)]
    inputs = width
    for level in range(levels):
        outputs = width * 2 ** (level + 1)
        layers.append(
            nn.Sequential(
                Conv2dNormActivation(inputs, outputs, 3, 2),
                Conv2dNormActivation(outputs, outputs, 3),
            )
        )
        inputs = outputs
    names = {str(level + 1): str(level) for level in range(levels)}
    channels = [width * 2 ** (level + 1) for level in range(levels)]
    return BackboneWithFPN(nn.Sequential(*layers), names, channels, 4 * width, extra_blocks)
