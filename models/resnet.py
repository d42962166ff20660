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


def conv3x3(
    in_planes: int, out_planes: int, stride: int = 1, groups: int = 1, dilation: int = 1
) -> nn.Conv2d:
    """A convolution that keeps the size of the image, divided by the stride."""
    return nn.Conv2d(in_planes, out_planes, 3, stride, dilation, dilation, groups, bias=False)


def conv1x1(in_planes: int, out_planes: int, stride: int = 1) -> nn.Conv2d:
    """A linear map of the channels of each pixel, or of every `stride`-th one."""
    return nn.Conv2d(in_planes, out_planes, 1, stride, bias=False)


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
    """Two 3x3 convolutions: (batch, inplanes, …) to (batch, planes, …)."""

    def __init__(
        self,
        inplanes: int,
        planes: int,
        stride: int = 1,
        downsample: nn.Module | None = None,
        groups: int = 1,
        base_width: int = 64,
        dilation: int = 1,
        norm_layer: Normalisation | None = None,
    ) -> None:
        super().__init__()
        if (groups, base_width, dilation) != (1, 64, 1):
            raise ArgumentError(
                f"BasicBlock: groups={groups}, base_width={base_width}, dilation={dilation}",
                fix="take blocks of type Bottleneck, or leave these out",
            )
        norm_layer = norm_layer or nn.BatchNorm2d
        self.conv1 = conv3x3(inplanes, planes, stride)
        self.bn1 = norm_layer(planes)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = conv3x3(planes, planes)
        self.bn2 = norm_layer(planes)
        self.downsample = downsample
        self.stride = stride

    def residual(self, x: metaop.Tensor) -> metaop.Tensor:
        x = self.relu(self.bn1(self.conv1(x)))
        return self.bn2(self.conv2(x))


class Bottleneck(Block):
    """1x1, 3x3 and 1x1 convolutions: (batch, inplanes, …) to (batch, 4 planes, …).

    `groups` and `dilation` are those of the 3x3 convolution (ResNeXt; segmentation), and
    `base_width` / 64 widens it (wide ResNet).
    """

    expansion = 4

    def __init__(
        self,
        inplanes: int,
        planes: int,
        stride: int = 1,
        downsample: nn.Module | None = None,
        groups: int = 1,
        base_width: int = 64,
        dilation: int = 1,
        norm_layer: Normalisation | None = None,
    ) -> None:
        super().__init__()
        norm_layer = norm_layer or nn.BatchNorm2d
        width = planes * base_width // 64 * groups
        self.conv1 = conv1x1(inplanes, width)
        self.bn1 = norm_layer(width)
        self.conv2 = conv3x3(width, width, stride, groups, dilation)
        self.bn2 = norm_layer(width)
        self.conv3 = conv1x1(width, planes * self.expansion)
        self.bn3 = norm_layer(planes * self.expansion)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = downsample
        self.stride = stride

    def residual(self, x: metaop.Tensor) -> metaop.Tensor:
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.relu(self.bn2(self.conv2(x)))
        return self.bn3(self.conv3(x))


class ResNet(nn.Module):
    """Images (batch, 3, height, width) to logits (batch, classes).

    `layers` has the number of blocks of each of the four stages; `replace_stride_with_dilation` is
    for the last three. `groups` and `width_per_group` are those of bottlenecks, and
    `norm_layer(channels)` makes the norm after each convolution. With `zero_init_residual` every
    block begins as the identity. `stem` is "imagenet" (7x7 convolution and pooling, stride 4) or
    "cifar" (one 3x3 convolution, stride 1).
    """

    def __init__(
        self,
        block: type[Block],
        layers: Sequence[int],
        num_classes: int = 1000,
        zero_init_residual: bool = False,
        groups: int = 1,
        width_per_group: int = 64,
        replace_stride_with_dilation: Sequence[bool] | None = None,
        norm_layer: Normalisation | None = None,
        *,
        stem: str = "imagenet",
    ) -> None:
        super().__init__()
        self._norm_layer = norm_layer or nn.BatchNorm2d
        self.groups, self.base_width = groups, width_per_group
        self.inplanes, self.dilation = 64, 1
        dilated = tuple(replace_stride_with_dilation or (False, False, False))
        if len(dilated) != 3:
            raise ArgumentError(
                f"ResNet: replace_stride_with_dilation {dilated}", fix="pass three values"
            )
        small = stem == "cifar"
        self.conv1 = conv3x3(3, 64) if small else nn.Conv2d(3, 64, 7, 2, padding=3, bias=False)
        self.bn1 = self._norm_layer(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.Identity() if small else nn.MaxPool2d(3, 2, padding=1)
        self.layer1 = self._make_layer(block, 64, layers[0])
        self.layer2 = self._make_layer(block, 128, layers[1], 2, dilated[0])
        self.layer3 = self._make_layer(block, 256, layers[2], 2, dilated[1])
        self.layer4 = self._make_layer(block, 512, layers[3], 2, dilated[2])
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(512 * block.expansion, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            elif zero_init_residual and isinstance(module, (BasicBlock, Bottleneck)):
                nn.init.zeros_(getattr(module, "bn3", module.bn2).weight)

    def _make_layer(
        self, block: type[Block], planes: int, blocks: int, stride: int = 1, dilate: bool = False
    ) -> nn.Sequential:
        outputs, before = planes * block.expansion, self.dilation
        if dilate:
            self.dilation *= stride
            stride = 1
        downsample = None
        if stride != 1 or self.inplanes != outputs:
            downsample = nn.Sequential(
                conv1x1(self.inplanes, outputs, stride), self._norm_layer(outputs)
            )

        def made(stride: int, downsample: nn.Module | None, dilation: int) -> nn.Module:
            shape = (self.groups, self.base_width, dilation, self._norm_layer)
            return block(self.inplanes, planes, stride, downsample, *shape)  # type: ignore[call-arg]

        # The first block still has the dilation of the previous stage.
        first = made(stride, downsample, before)
        self.inplanes = outputs
        return nn.Sequential(first, *(made(1, None, self.dilation) for _ in range(1, blocks)))

    def _forward_impl(self, x: metaop.Tensor) -> metaop.Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(self.avgpool(x).flatten(1))

    def forward(self, x: metaop.Tensor) -> metaop.Tensor:
        return self._forward_impl(x)


def resnet18(num_classes: int = 1000, stem: str = "imagenet") -> ResNet:
    return ResNet(BasicBlock, (2, 2, 2, 2), num_classes, stem=stem)


def resnet34(num_classes: int = 1000, stem: str = "imagenet") -> ResNet:
    return ResNet(BasicBlock, (3, 4, 6, 3), num_classes, stem=stem)


def resnet50(num_classes: int = 1000, stem: str = "imagenet", **options: Any) -> ResNet:
    return ResNet(Bottleneck, (3, 4, 6, 3), num_classes, stem=stem, **options)


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Learns digits of 32 × 32 pixels; returns the losses."""
    options = parse_options(
        __doc__, arguments, steps=60, batch_size=32, lr=1e-3, depth=(18, 34, 50)
    )
    depths = {18: resnet18, 34: resnet34, 50: resnet50}
    return learn_digits(depths[options.depth](10, "cifar"), options, 32)


if __name__ == "__main__":
    main()
