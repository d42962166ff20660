"""Inception v3: inception modules with large convolutions factorised into 1xn and nx1.

After C. Szegedy and others, "Rethinking the Inception architecture for computer vision", 2015.
Names of parameters are torchvision's.

    python -m models.inception_v3 --steps 40
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import metaop
from metaop import nn
from metaop.nn import functional as F

from .demonstration import learn_digits, parse_options
from .googlenet import BasicConv2d, scaled_to_unit


class InceptionOutputs(NamedTuple):
    """The logits of the network and of its auxiliary classifier, (batch, classes) each."""

    logits: metaop.Tensor
    aux_logits: metaop.Tensor


class InceptionA(nn.Module):
    """Branches of 1x1, 5x5, two 3x3 and a pooling."""

    def __init__(self, inputs: int, pooled: int) -> None:
        super().__init__()
        self.branch1x1 = BasicConv2d(inputs, 64, 1)
        self.branch5x5_1 = BasicConv2d(inputs, 48, 1)
        self.branch5x5_2 = BasicConv2d(48, 64, 5, padding=2)
        self.branch3x3dbl_1 = BasicConv2d(inputs, 64, 1)
        self.branch3x3dbl_2 = BasicConv2d(64, 96, 3, padding=1)
        self.branch3x3dbl_3 = BasicConv2d(96, 96, 3, padding=1)
        self.branch_pool = BasicConv2d(inputs, pooled, 1)

    def forward(self, x: metaop.Tensor) -> metaop.Tensor:
        twice = self.branch3x3dbl_3(self.branch3x3dbl_2(self.branch3x3dbl_1(x)))
        pooled = self.branch_pool(F.avg_pool2d(x, 3, 1, 1))
        once = self.branch5x5_2(self.branch5x5_1(x))
        return metaop.cat((self.branch1x1(x), once, twice, pooled), 1)


class InceptionB(nn.Module):
    """Halves the image: branches of 3x3, two 3x3 and a pooling."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.pool = nn.MaxPool2d(3, 2)
        self.branch3x3 = BasicConv2d(inputs, 384, 3, 2)
        self.branch3x3dbl_1 = BasicConv2d(inputs, 64, 1)
        self.branch3x3dbl_2 = BasicConv2d(64, 96, 3, padding=1)
        self.branch3x3dbl_3 = BasicConv2d(96, 96, 3, 2)

    def forward(self, x: metaop.Tensor) -> metaop.Tensor:
        twice = self.branch3x3dbl_3(self.branch3x3dbl_2(self.branch3x3dbl_1(x)))
        return metaop.cat((self.branch3x3(x), twice, self.pool(x)), 1)


class InceptionC(nn.Module):
    """Branches of 1x1, 7x7, two 7x7 and a pooling; a 7x7 is a row of 7 and a column of 7."""

    def __init__(self, inputs: int, inner: int) -> None:
        super().__init__()
        row, column = ((1, 7), 1, (0, 3)), ((7, 1), 1, (3, 0))
        self.branch1x1 = BasicConv2d(inputs, 192, 1)
        self.branch7x7_1 = BasicConv2d(inputs, inner, 1)
        self.branch7x7_2 = BasicConv2d(inner, inner, *row)
        self.branch7x7_3 = BasicConv2d(inner, 192, *column)
        self.branch7x7dbl_1 = BasicConv2d(inputs, inner, 1)
        self.branch7x7dbl_2 = BasicConv2d(inner, inner, *column)
        self.branch7x7dbl_3 = BasicConv2d(inner, inner, *row)
        self.branch7x7dbl_4 = BasicConv2d(inner, inner, *column)
        self.branch7x7dbl_5 = BasicConv2d(inner, 192, *row)
        self.branch_pool = BasicConv2d(inputs, 192, 1)

    def forward(self, x: metaop.Tensor) -> metaop.Tensor:
        once = self.branch7x7_3(self.branch7x7_2(self.branch7x7_1(x)))
        twice = self.branch7x7dbl_3(self.branch7x7dbl_2(self.branch7x7dbl_1(x)))
        twice = self.branch7x7dbl_5(self.branch7x7dbl_4(twice))
        pooled = self.branch_pool(F.avg_pool2d(x, 3, 1, 1))
        return metaop.cat((self.branch1x1(x), once, twice, pooled), 1)


class InceptionD(nn.Module):
    """Halves the image: branches of 3x3, 7x7 and 3x3, and a pooling."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.pool = nn.MaxPool2d(3, 2)
        self.branch3x3_1 = BasicConv2d(inputs, 192, 1)
        self.branch3x3_2 = BasicConv2d(192, 320, 3, 2)
        self.branch7x7x3_1 = BasicConv2d(inputs, 192, 1)
        self.branch7x7x3_2 = BasicConv2d(192, 192, (1, 7), 1, (0, 3))
        self.branch7x7x3_3 = BasicConv2d(192, 192, (7, 1), 1, (3, 0))
        self.branch7x7x3_4 = BasicConv2d(192, 192, 3, 2)

    def forward(self, x: metaop.Tensor) -> metaop.Tensor:
        small = self.branch3x3_2(self.branch3x3_1(x))
        large = self.branch7x7x3_3(self.branch7x7x3_2(self.branch7x7x3_1(x)))
        return metaop.cat((small, self.branch7x7x3_4(large), self.pool(x)), 1)


class InceptionE(nn.Module):
    """Branches that end in a row of 3 beside a column of 3."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        row, column = ((1, 3), 1, (0, 1)), ((3, 1), 1, (1, 0))
        self.branch1x1 = BasicConv2d(inputs, 320, 1)
        self.branch3x3_1 = BasicConv2d(inputs, 384, 1)
        self.branch3x3_2a = BasicConv2d(384, 384, *row)
        self.branch3x3_2b = BasicConv2d(384, 384, *column)
        self.branch3x3dbl_1 = BasicConv2d(inputs, 448, 1)
        self.branch3x3dbl_2 = BasicConv2d(448, 384, 3, padding=1)
        self.branch3x3dbl_3a = BasicConv2d(384, 384, *row)
        self.branch3x3dbl_3b = BasicConv2d(384, 384, *column)
        self.branch_pool = BasicConv2d(inputs, 192, 1)

    def forward(self, x: metaop.Tensor) -> metaop.Tensor:
        once = self.branch3x3_1(x)
        twice = self.branch3x3dbl_2(self.branch3x3dbl_1(x))
        branches = (
            self.branch1x1(x),
            *(self.branch3x3_2a(once), self.branch3x3_2b(once)),
            *(self.branch3x3dbl_3a(twice), self.branch3x3dbl_3b(twice)),
            self.branch_pool(F.avg_pool2d(x, 3, 1, 1)),
        )
        return metaop.cat(branches, 1)


class InceptionAux(nn.Module):
    """An auxiliary classifier of an intermediate feature map."""

    def __init__(self, inputs: int, num_classes: int) -> None:
        super().__init__()
        self.conv0 = BasicConv2d(inputs, 128, 1)
        self.conv1 = BasicConv2d(128, 768, 5)
        self.fc = nn.Linear(768, num_classes)

    def forward(self, x: metaop.Tensor) -> metaop.Tensor:
        x = self.conv1(self.conv0(F.avg_pool2d(x, 5, 3)))
        return self.fc(x.mean((2, 3)))


class Inception3(nn.Module):
    """Images (batch, 3, height, width) of at least 75 pixels to logits (batch, classes).

    In training, `aux_logits` returns `InceptionOutputs`, for images of at least 299 pixels.
    `transform_input` converts images normalised by ImageNet's statistics to [-1, 1], for which
    torchvision's weights were trained.
    """

    def __init__(
        self,
        num_classes: int = 1000,
        aux_logits: bool = True,
        transform_input: bool = False,
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        self.transform_input = transform_input
        self.Conv2d_1a_3x3 = BasicConv2d(3, 32, 3, 2)
        self.Conv2d_2a_3x3 = BasicConv2d(32, 32, 3)
        self.Conv2d_2b_3x3 = BasicConv2d(32, 64, 3, padding=1)
        self.maxpool1 = nn.MaxPool2d(3, 2)
        self.Conv2d_3b_1x1 = BasicConv2d(64, 80, 1)
        self.Conv2d_4a_3x3 = BasicConv2d(80, 192, 3)
        self.maxpool2 = nn.MaxPool2d(3, 2)
        self.Mixed_5b = InceptionA(192, 32)
        self.Mixed_5c = InceptionA(256, 64)
        self.Mixed_5d = InceptionA(288, 64)
        self.Mixed_6a = InceptionB(288)
        self.Mixed_6b = InceptionC(768, 128)
        self.Mixed_6c = InceptionC(768, 160)
        self.Mixed_6d = InceptionC(768, 160)
        self.Mixed_6e = InceptionC(768, 192)
        self.AuxLogits = InceptionAux(768, num_classes) if aux_logits else None
        self.Mixed_7a = InceptionD(768)
        self.Mixed_7b = InceptionE(1280)
        self.Mixed_7c = InceptionE(2048)
        self.dropout = nn.Dropout(dropout)
        self.fc = nn.Linear(2048, num_classes)
        self._initialise()

    def _initialise(self) -> None:
        deviations: dict[nn.Module, float] = {}
        if self.AuxLogits is not None:
            deviations = {self.AuxLogits.conv1.conv: 0.01, self.AuxLogits.fc: 0.001}
        for module in self.modules():
            if isinstance(module, (nn.Conv2d, nn.Linear)):
                deviation = deviations.get(module, 0.1)
                nn.init.trunc_normal_(module.weight, std=deviation, a=-2, b=2)

    def forward(self, images: metaop.Tensor) -> metaop.Tensor | InceptionOutputs:
        if self.transform_input:
            images = scaled_to_unit(images)
        x = self.Conv2d_2b_3x3(self.Conv2d_2a_3x3(self.Conv2d_1a_3x3(images)))
        x = self.Conv2d_4a_3x3(self.Conv2d_3b_1x1(self.maxpool1(x)))
        x = self.Mixed_5d(self.Mixed_5c(self.Mixed_5b(self.maxpool2(x))))
        x = self.Mixed_6c(self.Mixed_6b(self.Mixed_6a(x)))
        middle = self.Mixed_6e(self.Mixed_6d(x))
        x = self.Mixed_7c(self.Mixed_7b(self.Mixed_7a(middle)))
        logits = self.fc(self.dropout(x.mean((2, 3))))
        if self.training and self.AuxLogits is not None:
            return InceptionOutputs(logits, self.AuxLogits(middle))
        return logits


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Learns digits of 80 × 80 pixels; returns the losses."""
    options = parse_options(__doc__, arguments, steps=40, batch_size=16, lr=3e-3)
    return learn_digits(Inception3(10, aux_logits=False), options, 80)


if __name__ == "__main__":
    main()
