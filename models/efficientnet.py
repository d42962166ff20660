"""EfficientNet: a family of networks by compound scaling of width and depth.

After M. Tan and Q. Le, "EfficientNet: rethinking model scaling for convolutional neural networks",
2019. Names of parameters are torchvision's.

    python -m models.efficientnet --steps 60
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import metaop
from metaop import nn
from metaop.vision.ops import Conv2dNormActivation, SqueezeExcitation, StochasticDepth

from .demonstration import learn_digits, parse_options
from .mobilenet_v2 import divisible

# Expansion, size of the kernel, stride of the first block, output channels, number of blocks.
STAGES = (
    (1, 3, 1, 16, 1),
    (6, 3, 2, 24, 2),
    (6, 5, 2, 40, 2),
    (6, 3, 2, 80, 3),
    (6, 5, 1, 112, 3),
    (6, 5, 2, 192, 4),
    (6, 3, 1, 320, 1),
)


class MBConv(nn.Module):
    """An inverted bottleneck: expansion, depthwise convolution, squeeze-and-excitation, projection.

    `drop` is the probability of stochastic depth of blocks with a residual connection.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        expansion: int,
        size: int,
        stride: int,
        drop: float,
        norm: partial[nn.BatchNorm2d],
    ) -> None:
        super().__init__()
        wide = divisible(inputs * expansion)
        convolution = partial(Conv2dNormActivation, norm_layer=norm, activation_layer=nn.SiLU)
        layers: list[nn.Module] = []
        if wide != inputs:
            layers.append(convolution(inputs, wide, 1))
        layers += [
            convolution(wide, wide, size, stride, groups=wide),
            SqueezeExcitation(wide, max(1, inputs // 4), nn.SiLU),
            convolution(wide, outputs, 1, activation_layer=None),
        ]
        self.block = nn.Sequential(*layers)
        self.stochastic_depth = StochasticDepth(drop, "row")
        self.is_residual = stride == 1 and inputs == outputs

    def forward(self, x: metaop.Tensor) -> metaop.Tensor:
        return x + self.stochastic_depth(self.block(x)) if self.is_residual else self.block(x)


class FusedMBConv(nn.Module):
    """MBConv with a full convolution instead of expansion and depthwise convolution."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        expansion: int,
        size: int,
        stride: int,
        drop: float,
        norm: partial[nn.BatchNorm2d],
    ) -> None:
        super().__init__()
        wide = divisible(inputs * expansion)
        convolution = partial(Conv2dNormActivation, norm_layer=norm, activation_layer=nn.SiLU)
        layers: list[nn.Module] = [
            convolution(inputs, outputs if wide == inputs else wide, size, stride)
        ]
        if wide != inputs:
            layers.append(convolution(wide, outputs, 1, activation_layer=None))
        self.block = nn.Sequential(*layers)
        self.stochastic_depth = StochasticDepth(drop, "row")
        self.is_residual = stride == 1 and inputs == outputs

    def forward(self, x: metaop.Tensor) -> metaop.Tensor:
        return x + self.stochastic_depth(self.block(x)) if self.is_residual else self.block(x)


class EfficientNet(nn.Module):
    """Images (batch, 3, height, width) to logits (batch, classes).

    `width` and `depth` multiply channels and blocks. The probability of stochastic depth grows
    linearly with depth, up to `stochastic_depth_prob`. `eps` and `momentum` are those of batch
    normalisation; `first_stride` 1 suits small images. `stages` are like `STAGES`; the first
    `fused` of them have fused blocks. The stem has `first_channels`, the last layer
    `last_channels`.
    """

    def __init__(
        self,
        width: float = 1.0,
        depth: float = 1.0,
        dropout: float = 0.2,
        num_classes: int = 1000,
        stochastic_depth_prob: float = 0.2,
        eps: float = 1e-5,
        momentum: float = 0.1,
        first_stride: int = 2,
        stages: Sequence[tuple[int, int, int, int, int]] = STAGES,
        fused: int = 0,
        first_channels: int = 32,
        last_channels: int | None = None,
    ) -> None:
        super().__init__()
        norm = partial(nn.BatchNorm2d, eps=eps, momentum=momentum)
        convolution = partial(Conv2dNormActivation, norm_layer=norm, activation_layer=nn.SiLU)
        counts = [math.ceil(count * depth) for *_, count in stages]
        channels = divisible(first_channels * width)
        features: list[nn.Module] = [convolution(3, channels, 3, first_stride)]
        passed = 0
        for (expansion, size, stride, wide, _), count in zip(stages, counts):
            kind = FusedMBConv if len(features) <= fused else MBConv
            outputs, stage = divisible(wide * width), []
            for number in range(count):
                drop = stochastic_depth_prob * passed / sum(counts)
                first = stride if number == 0 else 1
                stage.append(kind(channels, outputs, expansion, size, first, drop, norm))
                channels, passed = outputs, passed + 1
            features.append(nn.Sequential(*stage))
        last = last_channels or 4 * channels
        features.append(convolution(channels, last, 1))
        self.features = nn.Sequential(*features)
        self.classifier = nn.Sequential(
            nn.Dropout(dropout, inplace=True), nn.Linear(last, num_classes)
        )
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out")
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Linear):
                bound = 1 / math.sqrt(module.out_features)
                nn.init.uniform_(module.weight, -bound, bound)
                nn.init.zeros_(module.bias)

    def forward(self, images: metaop.Tensor) -> metaop.Tensor:
        return self.classifier(self.features(images).mean((2, 3)))


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Learns digits of 32 × 32 pixels; returns the losses."""
    options = parse_options(
        __doc__, arguments, steps=60, batch_size=32, lr=2e-3, width=0.5, depth=0.5
    )
    model = EfficientNet(options.width, options.depth, 0.1, 10, first_stride=1)
    return learn_digits(model, options, 32)


if __name__ == "__main__":
    main()
