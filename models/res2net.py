"""Res2Net: a ResNet whose bottlenecks convolve groups of channels hierarchically.

After S. Gao and others, "Res2Net: a new multi-scale backbone architecture", 2019. Each group also
gets the result of the previous one, so a block has receptive fields of several sizes. Parameters
have the names of the authors' program.

    python -m models.res2net --steps 60
"""

from __future__ import annotations

from collections.abc import Sequence

import metaop
from metaop import nn

from .demonstration import learn_digits, parse_options
from .resnet import Block, Normalisation, ResNet, conv1x1, conv3x3


class Bottle2neck(Block):
    """`scale` groups of 3x3 convolutions between two 1x1 convolutions.

    The last group passes unchanged. In a block that projects its input, groups are independent and
    the last one is average-pooled.
    """

    expansion = 4

    def __init__(
        self,
        inplanes: int,
        planes: int,
        stride: int = 1,
        downsample: nn.Module | None = None,
        groups: int = 1,
        base_width: int = 26,
        dilation: int = 1,
        norm_layer: Normalisation | None = None,
        scale: int = 4,
    ) -> None:
        super().__init__()
        norm_layer = norm_layer or nn.BatchNorm2d
        self.width = width = planes * base_width // 64 * groups
        self.conv1 = conv1x1(inplanes, width * scale)
        self.bn1 = norm_layer(width * scale)
        self.pool = nn.Identity() if downsample is None else nn.AvgPool2d(3, stride, padding=1)
        self.convs = nn.ModuleList(
            conv3x3(width, width, stride, groups, dilation) for _ in range(1, scale)
        )
        self.bns = nn.ModuleList(norm_layer(width) for _ in range(1, scale))
        self.conv3 = conv1x1(width * scale, planes * self.expansion)
        self.bn3 = norm_layer(planes * self.expansion)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = downsample

    def residual(self, x: metaop.Tensor) -> metaop.Tensor:
        x = self.relu(self.bn1(self.conv1(x)))
        *groups, last = x.split(self.width, 1)
        found: list[metaop.Tensor] = []
        for group, layer, norm in zip(groups, self.convs, self.bns):
            if found and self.downsample is None:
                group = group + found[-1]
            found.append(self.relu(norm(layer(group))))
        return self.bn3(self.conv3(metaop.cat((*found, self.pool(last)), 1)))


def res2net50(num_classes: int = 1000, stem: str = "imagenet") -> ResNet:
    return ResNet(Bottle2neck, (3, 4, 6, 3), num_classes, width_per_group=26, stem=stem)


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Learns digits of 64 × 64 pixels; returns the losses."""
    options = parse_options(__doc__, arguments, steps=60, batch_size=16, lr=1e-3)
    return learn_digits(ResNet(Bottle2neck, (1, 1, 1, 1), 10, width_per_group=26), options, 64)


if __name__ == "__main__":
    main()
