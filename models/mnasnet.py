"""MnasNet: inverted residuals from an architecture search for accuracy and latency on phones.

After M. Tan and others, "MnasNet: platform-aware neural architecture search for mobile", 2018; this
is the variant B1, without squeeze-and-excitation. Names of parameters are torchvision's.

    python -m models.mnasnet --steps 60
"""

from __future__ import annotations

from collections.abc import Sequence

import metaop
from metaop import nn

from .demonstration import learn_digits, parse_options
from .mobilenet_v2 import divisible

# Size of the kernel, stride of the first block, expansion, output channels, number of blocks.
STAGES = (
    (3, 2, 3, 24, 3),
    (5, 2, 3, 40, 3),
    (5, 2, 6, 80, 3),
    (3, 1, 6, 96, 2),
    (5, 2, 6, 192, 4),
    (3, 1, 6, 320, 1),
)


def normalised(
    inputs: int, outputs: int, size: int, stride: int = 1, groups: int = 1
) -> list[nn.Module]:
    """Convolution and batch normalisation, with the paper's momentum of running statistics."""
    return [
        nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs, momentum=1 - 0.9997),
    ]


class InvertedResidual(nn.Module):
    """Expansion, depthwise convolution, projection; residual if the shape stays."""

    def __init__(self, inputs: int, outputs: int, size: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide = inputs * expansion
        self.layers = nn.Sequential(
            *normalised(inputs, wide, 1),
            nn.ReLU(inplace=True),
            *normalised(wide, wide, size, stride, wide),
            nn.ReLU(inplace=True),
            *normalised(wide, outputs, 1),
        )
        self.is_residual = stride == 1 and inputs == outputs

    def forward(self, x: metaop.Tensor) -> metaop.Tensor:
        return x + self.layers(x) if self.is_residual else self.layers(x)


class MNASNet(nn.Module):
    """Images (batch, 3, height, width) to logits (batch, classes).

    `alpha` multiplies the channels; `first_stride` 1 suits small images.
    """

    def __init__(
        self,
        alpha: float = 1.0,
        num_classes: int = 1000,
        dropout: float = 0.2,
        first_stride: int = 2,
    ) -> None:
        super().__init__()
        first, channels = divisible(32 * alpha), divisible(16 * alpha)
        layers = [
            *normalised(3, first, 3, first_stride),
            nn.ReLU(inplace=True),
            *normalised(first, first, 3, groups=first),
            nn.ReLU(inplace=True),
            *normalised(first, channels, 1),
        ]
        for size, stride, expansion, wide, count in STAGES:
            outputs = divisible(wide * alpha)
            blocks = [InvertedResidual(channels, outputs, size, stride, expansion)]
            blocks += [
                InvertedResidual(outputs, outputs, size, 1, expansion) for _ in range(count - 1)
            ]
            layers.append(nn.Sequential(*blocks))
            channels = outputs
        layers += [*normalised(channels, 1280, 1), nn.ReLU(inplace=True)]
        self.layers = nn.Sequential(*layers)
        self.classifier = nn.Sequential(
            nn.Dropout(dropout, inplace=True), nn.Linear(1280, num_classes)
        )
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(module, nn.Linear):
                nn.init.kaiming_uniform_(module.weight, mode="fan_out", nonlinearity="sigmoid")
                nn.init.zeros_(module.bias)

    def forward(self, images: metaop.Tensor) -> metaop.Tensor:
        return self.classifier(self.layers(images).mean((2, 3)))


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Learns digits of 32 × 32 pixels; returns the losses."""
    options = parse_options(__doc__, arguments, steps=60, batch_size=32, lr=2e-3, alpha=0.25)
    return learn_digits(MNASNet(options.alpha, 10, 0.1, first_stride=1), options, 32)


if __name__ == "__main__":
    main()
