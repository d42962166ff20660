"""GoogLeNet: inception modules, which combine convolutions of several sizes in parallel.

After C. Szegedy and others, "Going deeper with convolutions", 2014, with batch normalisation and
parameter names as in torchvision. `aux_logits` adds the two auxiliary classifiers of the paper.

    python -m models.googlenet --steps 50
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import metaop
from metaop import nn

from .demonstration import learn_digits, parse_options


class GoogLeNetOutputs(NamedTuple):
    """The logits of the network and of its auxiliary classifiers, (batch, classes) each."""

    logits: metaop.Tensor
    aux_logits2: metaop.Tensor
    aux_logits1: metaop.Tensor


class BasicConv2d(nn.Module):
    """Convolution, batch normalisation and ReLU."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        size: int | tuple[int, int],
        stride: int = 1,
        padding: int | tuple[int, int] = 0,
    ) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, size, stride, padding, bias=False)
        self.bn = nn.BatchNorm2d(outputs, eps=0.001)

    def forward(self, x: metaop.Tensor) -> metaop.Tensor:
        return self.bn(self.conv(x)).relu()


def scaled_to_unit(images: metaop.Tensor) -> metaop.Tensor:
    """Images (batch, 3, height, width) normalised by ImageNet's mean and deviation, in [-1, 1]."""
    deviation = metaop.tensor([0.229, 0.224, 0.225], device=images.device).view(3, 1, 1)
    mean = metaop.tensor([0.485, 0.456, 0.406], device=images.device).view(3, 1, 1)
    return (images * deviation + mean - 0.5) / 0.5


class Inception(nn.Module):
    """Four branches with concatenated channels: 1x1, 3x3, 3x3 again, and max-pooling.

    The third is 5x5 in the paper; torchvision's weights have 3x3.
    """

    def __init__(
        self, inputs: int, own: int, before: int, second: int, squeezed: int, third: int, last: int
    ) -> None:
        super().__init__()
        self.branch1 = BasicConv2d(inputs, own, 1)
        self.branch2 = nn.Sequential(
            BasicConv2d(inputs, before, 1), BasicConv2d(before, second, 3, padding=1)
        )
        self.branch3 = nn.Sequential(
            BasicConv2d(inputs, squeezed, 1), BasicConv2d(squeezed, third, 3, padding=1)
        )
        self.branch4 = nn.Sequential(
            nn.MaxPool2d(3, 1, padding=1, ceil_mode=True), BasicConv2d(inputs, last, 1)
        )

    def forward(self, x: metaop.Tensor) -> metaop.Tensor:
        return metaop.cat((self.branch1(x), self.branch2(x), self.branch3(x), self.branch4(x)), 1)


class InceptionAux(nn.Module):
    """An auxiliary classifier of an intermediate feature map."""

    def __init__(self, inputs: int, num_classes: int, dropout: float = 0.7) -> None:
        super().__init__()
        self.pool = nn.AdaptiveAvgPool2d(4)
        self.conv = BasicConv2d(inputs, 128, 1)
        self.fc1 = nn.Linear(2048, 1024)
        self.fc2 = nn.Linear(1024, num_classes)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: metaop.Tensor) -> metaop.Tensor:
        x = self.conv(self.pool(x)).flatten(1)
        return self.fc2(self.dropout(self.fc1(x).relu()))


class GoogLeNet(nn.Module):
    """Images (batch, 3, height, width) to logits (batch, classes).

    In training, `aux_logits` returns `GoogLeNetOutputs`. `transform_input` converts images
    normalised by ImageNet's statistics to [-1, 1], for which torchvision's weights were trained.
    """

    def __init__(
        self,
        num_classes: int = 1000,
        aux_logits: bool = False,
        dropout: float = 0.2,
        transform_input: bool = False,
    ) -> None:
        super().__init__()
        self.transform_input = transform_input
        self.conv1 = BasicConv2d(3, 64, 7, 2, 3)
        self.maxpool1 = nn.MaxPool2d(3, 2, ceil_mode=True)
        self.conv2 = BasicConv2d(64, 64, 1)
        self.conv3 = BasicConv2d(64, 192, 3, padding=1)
        self.maxpool2 = nn.MaxPool2d(3, 2, ceil_mode=True)
        self.inception3a = Inception(192, 64, 96, 128, 16, 32, 32)
        self.inception3b = Inception(256, 128, 128, 192, 32, 96, 64)
        self.maxpool3 = nn.MaxPool2d(3, 2, ceil_mode=True)
        self.inception4a = Inception(480, 192, 96, 208, 16, 48, 64)
        self.inception4b = Inception(512, 160, 112, 224, 24, 64, 64)
        self.inception4c = Inception(512, 128, 128, 256, 24, 64, 64)
        self.inception4d = Inception(512, 112, 144, 288, 32, 64, 64)
        self.inception4e = Inception(528, 256, 160, 320, 32, 128, 128)
        self.maxpool4 = nn.MaxPool2d(2, 2, ceil_mode=True)
        self.inception5a = Inception(832, 256, 160, 320, 32, 128, 128)
        self.inception5b = Inception(832, 384, 192, 384, 48, 128, 128)
        self.aux1 = InceptionAux(512, num_classes) if aux_logits else None
        self.aux2 = InceptionAux(528, num_classes) if aux_logits else None
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.dropout = nn.Dropout(dropout)
        self.fc = nn.Linear(1024, num_classes)
        for module in self.modules():
            if isinstance(module, (nn.Conv2d, nn.Linear)):
                nn.init.trunc_normal_(module.weight, mean=0.0, std=0.01, a=-2, b=2)

    def forward(self, images: metaop.Tensor) -> metaop.Tensor | GoogLeNetOutputs:
        if self.transform_input:
            images = scaled_to_unit(images)
        x = self.maxpool1(self.conv1(images))
        x = self.maxpool2(self.conv3(self.conv2(x)))
        x = self.maxpool3(self.inception3b(self.inception3a(x)))
        first = self.inception4a(x)
        second = self.inception4d(self.inception4c(self.inception4b(first)))
        x = self.maxpool4(self.inception4e(second))
        x = self.inception5b(self.inception5a(x))
        logits = self.fc(self.dropout(self.avgpool(x).flatten(1)))
        if self.training and self.aux1 is not None and self.aux2 is not None:
            return GoogLeNetOutputs(logits, self.aux2(second), self.aux1(first))
        return logits


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Learns digits of 64 × 64 pixels; returns the losses."""
    options = parse_options(__doc__, arguments, steps=40, batch_size=16, lr=1e-3)
    return learn_digits(GoogLeNet(10), options, 64)


if __name__ == "__main__":
    main()
