"""ResNet: deep convolutional networks with residual connections.

After K. He, X. Zhang, S. Ren, J. Sun, "Deep residual learning for image recognition", 2015. As in
torchvision, the stride of a bottleneck is in its 3x3 convolution; parameters have torchvision's
names, so its weights load.

    python -m models.resnet --depth 18 --steps 100
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import metaop
from metaop import nn
from metaop.errors import ArgumentError

from .demonstration import learn_digits, parse_options

Normalisation = Callable[[int], nn.Module]


def convolution(
    inputs: int, outputs: int, size: int, stride: int = 1, groups: int = 1, dilation: int = 1
) -> nn.Conv2d:
    """A convolution with "same" padding: the image keeps its size, divided by the stride."""
    padding = size // 2 * dilation
    return nn.Conv2d(inputs, outputs, size, stride, padding, dilation, groups, bias=False)


class Block(nn.Module):
    """relu(residual(x) + x), with a projection of x if the residual changes the shape."""

    expansion = 1
    relu: nn.Module
    downsample: nn.Module | None

    def residual(self, x: metaop.Tensor) -> metaop.Tensor:
        raise NotImplementedError

    def forward(self, x: metaop.Tensor) -> metaop.Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        return self.relu(self.residual(x) + shortcut)


class BasicBlock(Block):
    """Two 3x3 convolutions: (batch, inputs, …) to (batch, width, …)."""

    def __init__(
        self,
        inputs: int,
        width: int,
        stride: int,
        downsample: nn.Module | None,
        norm_layer: Normalisation = nn.BatchNorm2d,
    ) -> None:
        super().__init__()
        self.conv1 = convolution(inputs, width, 3, stride)
        self.bn1 = norm_layer(width)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = convolution(width, width, 3)
        self.bn2 = norm_layer(width)
        self.downsample = downsample

    def residual(self, x: metaop.Tensor) -> metaop.Tensor:
        x = self.relu(self.bn1(self.conv1(x)))
        return self.bn2(self.conv2(x))


class Bottleneck(Block):
    """1x1, 3x3 and 1x1 convolutions: (batch, inputs, …) to (batch, 4 width, …).

    `groups` and `dilation` are those of the 3x3 convolution (ResNeXt; segmentation), and
    `base_width` / 64 widens it (wide ResNet).
    """

    expansion = 4

    def __init__(
        self,
        inputs: int,
        width: int,
        stride: int,
        downsample: nn.Module | None,
        groups: int = 1,
        base_width: int = 64,
        dilation: int = 1,
        norm_layer: Normalisation = nn.BatchNorm2d,
    ) -> None:
        super().__init__()
        outputs = width * self.expansion
        width = width * base_width // 64 * groups
        self.conv1 = convolution(inputs, width, 1)
        self.bn1 = norm_layer(width)
        self.conv2 = convolution(width, width, 3, stride, groups, dilation)
        self.bn2 = norm_layer(width)
        self.conv3 = convolution(width, outputs, 1)
        self.bn3 = norm_layer(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = downsample

    def residual(self, x: metaop.Tensor) -> metaop.Tensor:
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.relu(self.bn2(self.conv2(x)))
        return self.bn3(self.conv3(x))


class ResNet(nn.Module):
    """Images (batch, 3, height, width) to logits (batch, classes).

    `stem` is "imagenet" (7x7 convolution and pooling, stride 4) or "cifar" (one 3x3 convolution,
    stride 1). `groups` and `width_per_group` are those of bottlenecks. `layers` has the number of
    blocks of each of the four stages; `replace_stride_with_dilation` is for the last three.
    `norm_layer(channels)` makes the norm after each convolution.
    """

    def __init__(
        self,
        block: type[Block],
        layers: Sequence[int],
        num_classes: int = 1000,
        stem: str = "imagenet",
        groups: int = 1,
        width_per_group: int = 64,
        replace_stride_with_dilation: Sequence[bool] = (False, False, False),
        norm_layer: Normalisation = nn.BatchNorm2d,
    ) -> None:
        super().__init__()
        self.options: dict[str, Any] = {}
        if groups != 1 or width_per_group != 64:
            self.options = {"groups": groups, "base_width": width_per_group}
        if norm_layer is not nn.BatchNorm2d:
            self.options["norm_layer"] = norm_layer
        self.norm_layer = norm_layer
        dilated = tuple(replace_stride_with_dilation)
        if len(dilated) != 3 or (any(dilated) and block.expansion == 1):
            raise ArgumentError(
                f"ResNet: replace_stride_with_dilation {dilated} of blocks {block.__name__}",
                fix="pass three values, and blocks of type Bottleneck",
            )
        self.dilation = 1
        small = stem == "cifar"
        self.conv1 = convolution(3, 64, 3) if small else convolution(3, 64, 7, 2)
        self.bn1 = norm_layer(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.Identity() if small else nn.MaxPool2d(3, 2, padding=1)
        self.inputs = 64
        self.layer1 = self._stage(block, 64, layers[0], 1)
        self.layer2 = self._stage(block, 128, layers[1], 2, dilated[0])
        self.layer3 = self._stage(block, 256, layers[2], 2, dilated[1])
        self.layer4 = self._stage(block, 512, layers[3], 2, dilated[2])
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(512 * block.expansion, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def _stage(
        self, block: type[Block], width: int, count: int, stride: int, dilated: bool = False
    ) -> nn.Sequential:
        outputs = width * block.expansion
        # The first block still has the dilation of the previous stage.
        before = self._block_options()
        if dilated:
            self.dilation *= stride
            stride = 1
        downsample = None
        if stride != 1 or self.inputs != outputs:
            downsample = nn.Sequential(
                convolution(self.inputs, outputs, 1, stride), self.norm_layer(outputs)
            )
        first = block(self.inputs, width, stride, downsample, **before)
        self.inputs = outputs
        options = self._block_options()
        rest = [block(outputs, width, 1, None, **options) for _ in range(count - 1)]
        return nn.Sequential(first, *rest)

    def _block_options(self) -> dict[str, Any]:
        if self.dilation == 1:
            return self.options
        return {**self.options, "dilation": self.dilation}

    def forward(self, images: metaop.Tensor) -> metaop.Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(images))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(self.avgpool(x).flatten(1))


def resnet18(num_classes: int = 1000, stem: str = "imagenet") -> ResNet:
    return ResNet(BasicBlock, (2, 2, 2, 2), num_classes, stem)


def resnet34(num_classes: int = 1000, stem: str = "imagenet") -> ResNet:
    return ResNet(BasicBlock, (3, 4, 6, 3), num_classes, stem)


def resnet50(num_classes: int = 1000, stem: str = "imagenet", **options: Any) -> ResNet:
    return ResNet(Bottleneck, (3, 4, 6, 3), num_classes, stem, **options)


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Learns digits of 32 × 32 pixels; returns the losses."""
    options = parse_options(
        __doc__, arguments, steps=60, batch_size=32, lr=1e-3, depth=(18, 34, 50)
    )
    depths = {18: resnet18, 34: resnet34, 50: resnet50}
    return learn_digits(depths[options.depth](10, "cifar"), options, 32)


if __name__ == "__main__":
    main()
