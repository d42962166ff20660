"""RegNet: networks whose block widths are a quantised linear function of depth.

After I. Radosavovic and others, "Designing network design spaces", 2020. RegNet-Y has
squeeze-and-excitation, RegNet-X has not. Names of parameters are torchvision's.

    python -m models.regnet --steps 60
"""

from __future__ import annotations

import itertools
import math
from collections import OrderedDict
from collections.abc import Sequence

import metaop
from metaop import nn
from metaop.vision.ops import Conv2dNormActivation, SqueezeExcitation

from .demonstration import learn_digits, parse_options
from .mobilenet_v2 import divisible


def stage_sizes(depth: int, w_0: int, w_a: float, w_m: float) -> list[tuple[int, int]]:
    """The width and the number of blocks of each stage.

    The widths w_0 + w_a i of `depth` blocks are rounded to w_0 times a power of w_m, and to
    multiples of 8; equal ones make a stage.
    """
    powers = (round(math.log((w_0 + w_a * i) / w_0) / math.log(w_m)) for i in range(depth))
    widths = (round(w_0 * w_m**power / 8) * 8 for power in powers)
    return [(width, len(list(equal))) for width, equal in itertools.groupby(widths)]


def bottleneck(
    inputs: int, outputs: int, stride: int, group_width: int, se_ratio: float
) -> nn.Sequential:
    """1x1, grouped 3x3, squeeze-and-excitation if `se_ratio` is not 0, 1x1."""
    layers: OrderedDict[str, nn.Module] = OrderedDict(
        a=Conv2dNormActivation(inputs, outputs, 1),
        b=Conv2dNormActivation(outputs, outputs, 3, stride, groups=outputs // group_width),
    )
    if se_ratio:
        layers["se"] = SqueezeExcitation(outputs, round(se_ratio * inputs))
    layers["c"] = Conv2dNormActivation(outputs, outputs, 1, activation_layer=None)
    return nn.Sequential(layers)


class ResBottleneckBlock(nn.Module):
    """relu(f(x) + x), with a projection of x if f changes the shape."""

    def __init__(
        self, inputs: int, outputs: int, stride: int, group_width: int, se_ratio: float
    ) -> None:
        super().__init__()
        self.proj = None
        if inputs != outputs or stride != 1:
            self.proj = Conv2dNormActivation(inputs, outputs, 1, stride, activation_layer=None)
        self.f = bottleneck(inputs, outputs, stride, group_width, se_ratio)

    def forward(self, x: metaop.Tensor) -> metaop.Tensor:
        shortcut = x if self.proj is None else self.proj(x)
        return (shortcut + self.f(x)).relu()


class RegNet(nn.Module):
    """Images (batch, 3, height, width) to logits (batch, classes).

    `depth`, `w_0`, `w_a`, `w_m` determine the stages (see `stage_sizes`), each of which halves the
    image. `se_ratio` 0 omits squeeze-and-excitation (RegNet-X).
    """

    def __init__(
        self,
        depth: int,
        w_0: int,
        w_a: float,
        w_m: float,
        group_width: int,
        se_ratio: float = 0.0,
        num_classes: int = 1000,
        stem_width: int = 32,
    ) -> None:
        super().__init__()
        self.stem = Conv2dNormActivation(3, stem_width, 3, 2)
        channels, stages = stem_width, OrderedDict[str, nn.Module]()
        for stage, (width, count) in enumerate(stage_sizes(depth, w_0, w_a, w_m), 1):
            group = min(group_width, width)
            outputs = divisible(width, group)
            blocks = OrderedDict[str, nn.Module]()
            for number in range(count):
                stride = 2 if number == 0 else 1
                block = ResBottleneckBlock(channels, outputs, stride, group, se_ratio)
                blocks[f"block{stage}-{number}"] = block
                channels = outputs
            stages[f"block{stage}"] = nn.Sequential(blocks)
        self.trunk_output = nn.Sequential(stages)
        self.fc = nn.Linear(channels, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                fan_out = math.prod(module.kernel_size) * module.out_channels
                nn.init.normal_(module.weight, 0, math.sqrt(2 / fan_out))
            elif isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, 0, 0.01)
                nn.init.zeros_(module.bias)

    def forward(self, images: metaop.Tensor) -> metaop.Tensor:
        return self.fc(self.trunk_output(self.stem(images)).mean((2, 3)))


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Learns digits of 32 × 32 pixels; returns the losses."""
    options = parse_options(__doc__, arguments, steps=60, batch_size=32, lr=3e-3, depth=6)
    model = RegNet(options.depth, 24, 24.0, 2.5, 8, 0.25, num_classes=10, stem_width=16)
    return learn_digits(model, options, 32)


if __name__ == "__main__":
    main()
