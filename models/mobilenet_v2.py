"""MobileNetV2: inverted residuals with depthwise convolutions and linear bottlenecks.

After M. Sandler and others, "MobileNetV2: inverted residuals and linear bottlenecks", 2018. Names
of parameters are torchvision's.

    python -m models.mobilenet_v2 --steps 60
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import metaop
from metaop import nn
from metaop.vision.ops import Conv2dNormActivation

from .demonstration import learn_digits, parse_options

# Expansion, output channels, number of blocks, stride of the first one.
STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def divisible(channels: float, divisor: int = 8) -> int:
    """The nearest multiple of the divisor that is at least 90 % of `channels`."""
    rounded = max(divisor, int(channels + divisor / 2) // divisor * divisor)
    return rounded + divisor if rounded < 0.9 * channels else rounded


# Convolution, batch normalisation and ReLU6.
convolution = partial(Conv2dNormActivation, activation_layer=nn.ReLU6)


class InvertedResidual(nn.Module):
    """Expansion, depthwise convolution, linear projection; residual if the shape stays."""

    def __init__(self, inputs: int, outputs: int, stride: int, expansion: int) -> None:
        super().__init__()
        hidden = inputs * expansion
        layers: list[nn.Module] = []
        if expansion != 1:
            layers.append(convolution(inputs, hidden, 1))
        layers += [
            convolution(hidden, hidden, 3, stride, groups=hidden),
            nn.Conv2d(hidden, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        ]
        self.conv = nn.Sequential(*layers)
        self.is_residual = stride == 1 and inputs == outputs

    def forward(self, x: metaop.Tensor) -> metaop.Tensor:
        return x + self.conv(x) if self.is_residual else self.conv(x)


class MobileNetV2(nn.Module):
    """Images (batch, 3, height, width) to logits (batch, classes).

    `width` multiplies the channels; `first_stride` 1 suits small images.
    """

    def __init__(
        self,
        num_classes: int = 1000,
        width: float = 1.0,
        dropout: float = 0.2,
        first_stride: int = 2,
    ) -> None:
        super().__init__()
        channels, last = divisible(32 * width), divisible(1280 * max(1.0, width))
        features: list[nn.Module] = [convolution(3, channels, 3, first_stride)]
        for expansion, wide, count, stride in STAGES:
            outputs = divisible(wide * width)
            for number in range(count):
                first = stride if number == 0 else 1
                features.append(InvertedResidual(channels, outputs, first, expansion))
                channels = outputs
        features.append(convolution(channels, last, 1))
        self.features = nn.Sequential(*features)
        self.classifier = nn.Sequential(nn.Dropout(dropout), nn.Linear(last, num_classes))
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out")
            elif isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, 0, 0.01)
                nn.init.zeros_(module.bias)

    def forward(self, images: metaop.Tensor) -> metaop.Tensor:
        return self.classifier(self.features(images).mean((2, 3)))


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Learns digits of 32 × 32 pixels; returns the losses."""
    options = parse_options(__doc__, arguments, steps=60, batch_size=32, lr=2e-3, width=0.5)
    return learn_digits(MobileNetV2(10, options.width, 0.1, first_stride=1), options, 32)


if __name__ == "__main__":
    main()
