"""The layers of YOLOX: the CSPDarknet backbone, the PAFPN neck and the decoupled heads.

After Z. Ge, S. Liu, F. Wang, Z. Li, J. Sun, "YOLOX: exceeding YOLO series in 2021", 2021.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import metaop
from metaop import nn
from metaop.nn import functional as F
from metaop.vision.ops import Conv2dNormActivation


def convolution(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Module:
    return Conv2dNormActivation(inputs, outputs, size, stride, activation_layer=nn.SiLU)


class Bottleneck(nn.Module):
    """1x1 and 3x3 convolutions, with a residual connection if `shortcut`."""

    def __init__(self, channels: int, shortcut: bool) -> None:
        super().__init__()
        self.conv1 = convolution(channels, channels, 1)
        self.conv2 = convolution(channels, channels, 3)
        self.shortcut = shortcut

    def forward(self, x: metaop.Tensor) -> metaop.Tensor:
        found = self.conv2(self.conv1(x))
        return found + x if self.shortcut else found


class CSPLayer(nn.Module):
    """Half of the channels pass through `count` bottlenecks, the other half bypasses them."""

    def __init__(self, inputs: int, outputs: int, count: int, shortcut: bool = True) -> None:
        super().__init__()
        half = outputs // 2
        self.conv1 = convolution(inputs, half, 1)
        self.conv2 = convolution(inputs, half, 1)
        self.conv3 = convolution(2 * half, outputs, 1)
        self.m = nn.Sequential(*(Bottleneck(half, shortcut) for _ in range(count)))

    def forward(self, x: metaop.Tensor) -> metaop.Tensor:
        return self.conv3(metaop.cat((self.m(self.conv1(x)), self.conv2(x)), 1))


class SPPBottleneck(nn.Module):
    """Spatial pyramid pooling: the map concatenated with its max-poolings of three sizes."""

    def __init__(self, inputs: int, outputs: int, sizes: Sequence[int] = (5, 9, 13)) -> None:
        super().__init__()
        half = inputs // 2
        self.conv1 = convolution(inputs, half, 1)
        self.pools = nn.ModuleList(nn.MaxPool2d(size, 1, size // 2) for size in sizes)
        self.conv2 = convolution(half * (len(sizes) + 1), outputs, 1)

    def forward(self, x: metaop.Tensor) -> metaop.Tensor:
        x = self.conv1(x)
        return self.conv2(metaop.cat((x, *(pool(x) for pool in self.pools)), 1))


class CSPDarknet(nn.Module):
    """Images to three maps with the strides 8, 16 and 32, and 4, 8 and 16 times `width` channels.

    The first layer (Focus) moves squares of `stem` × `stem` pixels into channels; with 1 instead of
    2 all strides are halved.
    """

    def __init__(self, width: int, depth: int, stem: int = 2) -> None:
        super().__init__()
        self.square = stem
        self.stem = convolution(3 * stem * stem, width, 3)
        widths = [width * 2**k for k in range(5)]
        counts = (depth, 3 * depth, 3 * depth)
        self.stages = nn.ModuleList(
            nn.Sequential(
                convolution(above, below, 3, 2),
                CSPLayer(below, below, count),
            )
            for above, below, count in zip(widths[:3], widths[1:4], counts)
        )
        self.last = nn.Sequential(
            convolution(widths[3], widths[4], 3, 2),
            SPPBottleneck(widths[4], widths[4]),
            CSPLayer(widths[4], widths[4], depth, shortcut=False),
        )

    def forward(self, images: metaop.Tensor) -> list[metaop.Tensor]:
        x = self.stem(F.pixel_unshuffle(images, self.square))
        found = []
        for stage in (*self.stages, self.last):
            x = stage(x)
            found.append(x)
        return found[1:]


class PAFPN(nn.Module):
    """The PAFPN neck: a top-down and a bottom-up path over three maps."""

    def __init__(self, width: int, depth: int, stem: int = 2) -> None:
        super().__init__()
        small, middle, large = 4 * width, 8 * width, 16 * width
        self.backbone = CSPDarknet(width, depth, stem)
        self.lateral = convolution(large, middle, 1)
        self.down_middle = CSPLayer(2 * middle, middle, depth, False)
        self.reduce = convolution(middle, small, 1)
        self.down_small = CSPLayer(2 * small, small, depth, False)
        self.up_middle = convolution(small, small, 3, 2)
        self.mix_middle = CSPLayer(2 * small, middle, depth, False)
        self.up_large = convolution(middle, middle, 3, 2)
        self.mix_large = CSPLayer(2 * middle, large, depth, False)
        self.out_channels = (small, middle, large)

    def forward(self, images: metaop.Tensor) -> dict[str, metaop.Tensor]:
        first, second, third = self.backbone(images)
        top = self.lateral(third)
        wide = F.interpolate(top, size=second.shape[-2:], mode="nearest")
        between = self.reduce(self.down_middle(metaop.cat((wide, second), 1)))
        wide = F.interpolate(between, size=first.shape[-2:], mode="nearest")
        small = self.down_small(metaop.cat((wide, first), 1))
        middle = self.mix_middle(metaop.cat((self.up_middle(small), between), 1))
        large = self.mix_large(metaop.cat((self.up_large(middle), top), 1))
        return {"0": small, "1": middle, "2": large}


class Head(nn.Module):
    """The decoupled head of a map: box, objectness and class logits.

    Classification and regression have separate convolutions.
    """

    def __init__(self, inputs: int, width: int, classes: int, prior: float = 0.01) -> None:
        super().__init__()

        def branch() -> nn.Sequential:
            return nn.Sequential(convolution(width, width, 3), convolution(width, width, 3))

        self.stem = convolution(inputs, width, 1)
        self.classes, self.boxes = branch(), branch()
        self.cls_pred = nn.Conv2d(width, classes, 1)
        self.reg_pred = nn.Conv2d(width, 4, 1)
        self.obj_pred = nn.Conv2d(width, 1, 1)
        for layer in (self.cls_pred, self.obj_pred):
            nn.init.constant_(layer.bias, -math.log((1 - prior) / prior))

    def forward(self, x: metaop.Tensor) -> metaop.Tensor:
        """(batch, places, 4 + 1 + classes)."""
        x = self.stem(x)
        seen, boxes = self.classes(x), self.boxes(x)
        parts = self.reg_pred(boxes), self.obj_pred(boxes), self.cls_pred(seen)
        return metaop.cat(parts, 1).flatten(2).transpose(1, 2)
