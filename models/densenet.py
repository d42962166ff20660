"""DenseNet: the input of each layer is the concatenated output of all previous layers.

After G. Huang, Z. Liu, L. van der Maaten, K. Weinberger, "Densely connected convolutional
networks", 2016. Names of parameters are torchvision's.

    python -m models.densenet --steps 60
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import metaop
from metaop import nn
from metaop.nn import functional as F
from metaop.utils.checkpoint import checkpoint

from .demonstration import learn_digits, parse_options


class DenseLayer(nn.Module):
    """All previous features (batch, inputs, height, width) to `growth_rate` new channels.

    A 1x1 bottleneck reduces the channels to `bn_size * growth_rate` before the 3x3 convolution.
    `memory_efficient` recomputes the concatenation and the bottleneck in the backward pass.
    """

    def __init__(
        self, inputs: int, growth_rate: int, bn_size: int, drop_rate: float, memory_efficient: bool
    ) -> None:
        super().__init__()
        narrow = bn_size * growth_rate
        self.norm1 = nn.BatchNorm2d(inputs)
        self.conv1 = nn.Conv2d(inputs, narrow, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(narrow)
        self.conv2 = nn.Conv2d(narrow, growth_rate, 3, padding=1, bias=False)
        self.drop_rate, self.memory_efficient = drop_rate, memory_efficient

    def narrowed(self, *features: metaop.Tensor) -> metaop.Tensor:
        return self.conv1(self.norm1(metaop.cat(features, 1)).relu())

    def forward(self, features: Sequence[metaop.Tensor]) -> metaop.Tensor:
        if self.memory_efficient:
            x = checkpoint(self.narrowed, *features, use_reentrant=False)
        else:
            x = self.narrowed(*features)
        x = self.conv2(self.norm2(x).relu())
        return F.dropout(x, self.drop_rate, self.training)


class DenseBlock(nn.ModuleDict):
    """Dense layers: (batch, inputs, …) to (batch, inputs + layers * growth_rate, …)."""

    def __init__(
        self,
        layers: int,
        inputs: int,
        growth_rate: int,
        bn_size: int,
        drop_rate: float,
        memory_efficient: bool,
    ) -> None:
        super().__init__(
            {
                f"denselayer{number + 1}": DenseLayer(
                    inputs + number * growth_rate, growth_rate, bn_size, drop_rate, memory_efficient
                )
                for number in range(layers)
            }
        )

    def forward(self, x: metaop.Tensor) -> metaop.Tensor:
        features = [x]
        for layer in self.values():
            features.append(layer(features))
        return metaop.cat(features, 1)


def transition(inputs: int) -> nn.Sequential:
    """The transition layer between blocks, which halves the channels and the image."""
    return nn.Sequential(
        OrderedDict(
            norm=nn.BatchNorm2d(inputs),
            relu=nn.ReLU(inplace=True),
            conv=nn.Conv2d(inputs, inputs // 2, 1, bias=False),
            pool=nn.AvgPool2d(2),
        )
    )


class DenseNet(nn.Module):
    """Images (batch, 3, height, width) to logits (batch, classes).

    `block_config` has the number of layers of each block; each layer adds `growth_rate` channels.
    `bn_size`, `drop_rate` and `memory_efficient` are those of `DenseLayer`.
    """

    def __init__(
        self,
        growth_rate: int = 32,
        block_config: Sequence[int] = (6, 12, 24, 16),
        num_init_features: int = 64,
        bn_size: int = 4,
        drop_rate: float = 0.0,
        num_classes: int = 1000,
        memory_efficient: bool = False,
    ) -> None:
        super().__init__()
        channels = num_init_features
        features: OrderedDict[str, nn.Module] = OrderedDict(
            conv0=nn.Conv2d(3, channels, 7, 2, 3, bias=False),
            norm0=nn.BatchNorm2d(channels),
            relu0=nn.ReLU(inplace=True),
            pool0=nn.MaxPool2d(3, 2, padding=1),
        )
        for number, layers in enumerate(block_config, 1):
            block = DenseBlock(layers, channels, growth_rate, bn_size, drop_rate, memory_efficient)
            features[f"denseblock{number}"] = block
            channels += layers * growth_rate
            if number < len(block_config):
                features[f"transition{number}"] = transition(channels)
                channels //= 2
        features["norm5"] = nn.BatchNorm2d(channels)
        self.features = nn.Sequential(features)
        self.classifier = nn.Linear(channels, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight)
        nn.init.zeros_(self.classifier.bias)

    def forward(self, images: metaop.Tensor) -> metaop.Tensor:
        return self.classifier(self.features(images).relu().mean((2, 3)))


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Learns digits of 32 × 32 pixels; returns the losses."""
    options = parse_options(__doc__, arguments, steps=60, batch_size=32, lr=2e-3, growth=12)
    model = DenseNet(options.growth, (2, 4, 4), 24, num_classes=10)
    return learn_digits(model, options, 32)


if __name__ == "__main__":
    main()
