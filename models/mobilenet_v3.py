"""MobileNetV3: inverted residuals with squeeze-and-excitation and hard swish.

After A. Howard and others, "Searching for MobileNetV3", 2019. Names of parameters are
torchvision's.

    python -m models.mobilenet_v3 --steps 60
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import metaop
from metaop import nn
from metaop.vision.ops import Conv2dNormActivation, SqueezeExcitation

from .demonstration import learn_digits, parse_options
from .mobilenet_v2 import divisible


class Plan(NamedTuple):
    """The settings of a block; `excitation` adds squeeze-and-excitation."""

    kernel: int
    expanded: int
    outputs: int
    excitation: bool
    hard_swish: bool
    stride: int


PLANS = {
    "large": (
        Plan(3, 16, 16, False, False, 1),
        Plan(3, 64, 24, False, False, 2),
        Plan(3, 72, 24, False, False, 1),
        Plan(5, 72, 40, True, False, 2),
        Plan(5, 120, 40, True, False, 1),
        Plan(5, 120, 40, True, False, 1),
        Plan(3, 240, 80, False, True, 2),
        Plan(3, 200, 80, False, True, 1),
        Plan(3, 184, 80, False, True, 1),
        Plan(3, 184, 80, False, True, 1),
        Plan(3, 480, 112, True, True, 1),
        Plan(3, 672, 112, True, True, 1),
        Plan(5, 672, 160, True, True, 2),
        Plan(5, 960, 160, True, True, 1),
        Plan(5, 960, 160, True, True, 1),
    ),
    "small": (
        Plan(3, 16, 16, True, False, 2),
        Plan(3, 72, 24, False, False, 2),
        Plan(3, 88, 24, False, False, 1),
        Plan(5, 96, 40, True, True, 2),
        Plan(5, 240, 40, True, True, 1),
        Plan(5, 240, 40, True, True, 1),
        Plan(5, 120, 48, True, True, 1),
        Plan(5, 144, 48, True, True, 1),
        Plan(5, 288, 96, True, True, 2),
        Plan(5, 576, 96, True, True, 1),
        Plan(5, 576, 96, True, True, 1),
    ),
}
LAST = {"large": 1280, "small": 1024}


def convolution(
    inputs: int,
    outputs: int,
    size: int,
    activation: Callable[..., nn.Module] | None,
    stride: int = 1,
    groups: int = 1,
) -> nn.Sequential:
    """A convolution, batch normalisation as in the paper, and an activation."""
    norm = partial(nn.BatchNorm2d, eps=0.001, momentum=0.01)
    return Conv2dNormActivation(
        inputs, outputs, size, stride, groups=groups, norm_layer=norm, activation_layer=activation
    )


class InvertedResidual(nn.Module):
    """Widen, convolve depthwise, weigh the channels, narrow."""

    def __init__(self, inputs: int, plan: Plan) -> None:
        super().__init__()
        wide = plan.expanded
        activation = nn.Hardswish if plan.hard_swish else nn.ReLU
        layers: list[nn.Module] = []
        if wide != inputs:
            layers.append(convolution(inputs, wide, 1, activation))
        layers.append(convolution(wide, wide, plan.kernel, activation, plan.stride, wide))
        if plan.excitation:
            squeezed = divisible(wide // 4)
            layers.append(SqueezeExcitation(wide, squeezed, scale_activation=nn.Hardsigmoid))
        layers.append(convolution(wide, plan.outputs, 1, None))
        self.block = nn.Sequential(*layers)
        self.is_residual = plan.stride == 1 and inputs == plan.outputs

    def forward(self, x: metaop.Tensor) -> metaop.Tensor:
        return x + self.block(x) if self.is_residual else self.block(x)


class MobileNetV3(nn.Module):
    """Images (batch, 3, height, width) to logits (batch, classes).

    `size` is "small" or "large"; `width` multiplies the channels; `first_stride` 1 suits small
    images.
    """

    def __init__(
        self,
        size: str = "large",
        num_classes: int = 1000,
        width: float = 1.0,
        dropout: float = 0.2,
        first_stride: int = 2,
    ) -> None:
        super().__init__()
        channels, last = divisible(16 * width), divisible(LAST[size] * width)
        features: list[nn.Module] = [convolution(3, channels, 3, nn.Hardswish, first_stride)]
        for plan in PLANS[size]:
            scaled = plan._replace(
                expanded=divisible(plan.expanded * width), outputs=divisible(plan.outputs * width)
            )
            features.append(InvertedResidual(channels, scaled))
            channels = scaled.outputs
        features.append(convolution(channels, 6 * channels, 1, nn.Hardswish))
        self.features = nn.Sequential(*features)
        self.classifier = nn.Sequential(
            nn.Linear(6 * channels, last),
            nn.Hardswish(inplace=True),
            nn.Dropout(dropout, inplace=True),
            nn.Linear(last, num_classes),
        )
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out")
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, 0, 0.01)
                nn.init.zeros_(module.bias)

    def forward(self, images: metaop.Tensor) -> metaop.Tensor:
        return self.classifier(self.features(images).mean((2, 3)))


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Learns digits of 32 × 32 pixels; returns the losses."""
    options = parse_options(__doc__, arguments, steps=60, batch_size=32, lr=2e-3, width=0.5)
    model = MobileNetV3("small", 10, options.width, 0.1, first_stride=1)
    return learn_digits(model, options, 32)


if __name__ == "__main__":
    main()
