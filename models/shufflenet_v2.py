"""ShuffleNetV2: blocks that transform half of the channels, and shuffle the halves.

After N. Ma and others, "ShuffleNet V2: practical guidelines for efficient CNN architecture
design", 2018. Names of parameters are torchvision's.

    python -m models.shufflenet_v2 --steps 60
"""

from __future__ import annotations

from collections.abc import Sequence

import metaop
from metaop import nn

from .demonstration import learn_digits, parse_options


def channel_shuffle(x: metaop.Tensor, groups: int) -> metaop.Tensor:
    """Interleaves the groups of channels of x (batch, channels, height, width)."""
    batch, channels, height, width = x.shape
    split = x.view(batch, groups, channels // groups, height, width)
    return split.transpose(1, 2).reshape(batch, channels, height, width)


def pointwise(inputs: int, outputs: int) -> list[nn.Module]:
    """1x1 convolution, batch normalisation and ReLU."""
    return [
        nn.Conv2d(inputs, outputs, 1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    ]


def depthwise(channels: int, stride: int) -> list[nn.Module]:
    """Depthwise 3x3 convolution and batch normalisation."""
    return [
        nn.Conv2d(channels, channels, 3, stride, 1, groups=channels, bias=False),
        nn.BatchNorm2d(channels),
    ]


class InvertedResidual(nn.Module):
    """Two branches with concatenated, shuffled channels: (batch, inputs, …) to (batch, outputs, …).

    With stride 1 the first branch is the identity of half of the channels. With stride 2 both
    branches get all channels, and halve the image.
    """

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.stride, half = stride, outputs // 2
        self.branch1 = nn.Sequential()
        if stride > 1:
            self.branch1 = nn.Sequential(*depthwise(inputs, stride), *pointwise(inputs, half))
        self.branch2 = nn.Sequential(
            *pointwise(inputs if stride > 1 else half, half),
            *depthwise(half, stride),
            *pointwise(half, half),
        )

    def forward(self, x: metaop.Tensor) -> metaop.Tensor:
        first, second = x.chunk(2, 1) if self.stride == 1 else (x, x)
        return channel_shuffle(metaop.cat((self.branch1(first), self.branch2(second)), 1), 2)


class ShuffleNetV2(nn.Module):
    """Images (batch, 3, height, width) to logits (batch, classes).

    `stages_repeats` has the number of blocks of each stage, `stages_out_channels` the channels of
    the stem, of the stages, and before the classifier.
    """

    def __init__(
        self,
        stages_repeats: Sequence[int],
        stages_out_channels: Sequence[int],
        num_classes: int = 1000,
    ) -> None:
        super().__init__()
        channels, *stages, last = stages_out_channels
        self.conv1 = nn.Sequential(
            nn.Conv2d(3, channels, 3, 2, 1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(inplace=True),
        )
        self.maxpool = nn.MaxPool2d(3, 2, padding=1)
        for number, (count, outputs) in enumerate(zip(stages_repeats, stages), 2):
            blocks = [InvertedResidual(channels, outputs, 2)]
            blocks += [InvertedResidual(outputs, outputs, 1) for _ in range(count - 1)]
            self.add_module(f"stage{number}", nn.Sequential(*blocks))
            channels = outputs
        self.conv5 = nn.Sequential(*pointwise(channels, last))
        self.fc = nn.Linear(last, num_classes)

    def forward(self, images: metaop.Tensor) -> metaop.Tensor:
        x = self.maxpool(self.conv1(images))
        x = self.stage4(self.stage3(self.stage2(x)))
        return self.fc(self.conv5(x).mean((2, 3)))


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Learns digits of 64 × 64 pixels; returns the losses."""
    options = parse_options(__doc__, arguments, steps=60, batch_size=32, lr=3e-3)
    model = ShuffleNetV2((2, 3, 2), (24, 48, 96, 192, 256), 10)
    return learn_digits(model, options, 64)


if __name__ == "__main__":
    main()
