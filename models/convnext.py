"""ConvNeXt: a convolutional network with the design choices of vision transformers.

After Z. Liu and others, "A ConvNet for the 2020s", 2022. Names of parameters are torchvision's.

    python -m models.convnext --steps 100
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import metaop
from metaop import nn
from metaop.vision.ops import Conv2dNormActivation, Permute, StochasticDepth

from .demonstration import learn_digits, parse_options


class LayerNorm2d(nn.LayerNorm):
    """Layer norm over the channels of (batch, channels, height, width)."""

    def forward(self, x: metaop.Tensor) -> metaop.Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class CNBlock(nn.Module):
    """A depthwise 7x7 convolution and a pointwise MLP, with a residual connection.

    `layer_scale` is the initial value of the learned scale per channel, `drop` the probability of
    stochastic depth. The shape (batch, width, height, width) stays.
    """

    def __init__(self, width: int, layer_scale: float, drop: float) -> None:
        super().__init__()
        self.block = nn.Sequential(
            nn.Conv2d(width, width, 7, padding=3, groups=width),
            Permute((0, 2, 3, 1)),
            nn.LayerNorm(width, eps=1e-6),
            nn.Linear(width, 4 * width),
            nn.GELU(),
            nn.Linear(4 * width, width),
            Permute((0, 3, 1, 2)),
        )
        self.layer_scale = nn.Parameter(metaop.full((width, 1, 1), layer_scale))
        self.stochastic_depth = StochasticDepth(drop, "row")

    def forward(self, x: metaop.Tensor) -> metaop.Tensor:
        return x + self.stochastic_depth(self.layer_scale * self.block(x))


class ConvNeXt(nn.Module):
    """Images (batch, 3, height, width) to logits (batch, classes).

    `depths` and `widths` are the numbers of blocks and channels of each stage; the image is halved
    between stages. The probability of stochastic depth grows linearly with depth, up to
    `stochastic_depth_prob`.
    """

    def __init__(
        self,
        depths: Sequence[int] = (3, 3, 9, 3),
        widths: Sequence[int] = (96, 192, 384, 768),
        num_classes: int = 1000,
        stochastic_depth_prob: float = 0.1,
        layer_scale: float = 1e-6,
    ) -> None:
        super().__init__()
        norm = partial(LayerNorm2d, eps=1e-6)
        features: list[nn.Module] = [
            Conv2dNormActivation(
                3, widths[0], 4, 4, padding=0, norm_layer=norm, activation_layer=None, bias=True
            )
        ]
        passed = 0
        for number, (depth, width) in enumerate(zip(depths, widths)):
            if number > 0:
                narrow = widths[number - 1]
                features.append(nn.Sequential(norm(narrow), nn.Conv2d(narrow, width, 2, 2)))
            drops = [stochastic_depth_prob * (passed + i) / (sum(depths) - 1) for i in range(depth)]
            features.append(nn.Sequential(*(CNBlock(width, layer_scale, drop) for drop in drops)))
            passed += depth
        self.features = nn.Sequential(*features)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(
            norm(widths[-1]), nn.Flatten(1), nn.Linear(widths[-1], num_classes)
        )
        for module in self.modules():
            if isinstance(module, (nn.Conv2d, nn.Linear)):
                nn.init.trunc_normal_(module.weight, std=0.02)
                nn.init.zeros_(module.bias)

    def forward(self, images: metaop.Tensor) -> metaop.Tensor:
        return self.classifier(self.avgpool(self.features(images)))


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Learns digits of 32 × 32 pixels; returns the losses."""
    options = parse_options(__doc__, arguments, steps=100, batch_size=32, lr=2e-3, width=32)
    widths = (options.width, 2 * options.width)
    return learn_digits(ConvNeXt((2, 2), widths, 10, layer_scale=0.1), options, 32)


if __name__ == "__main__":
    main()
