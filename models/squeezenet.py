"""SqueezeNet: a small network of fire modules, which squeeze channels and expand them.

After F. Iandola and others, "SqueezeNet: AlexNet-level accuracy with 50x fewer parameters", 2016.
Names of parameters are torchvision's.

    python -m models.squeezenet --steps 100
"""

from __future__ import annotations

from collections.abc import Sequence

import metaop
from metaop import nn

from .demonstration import learn_digits, parse_options


class Fire(nn.Module):
    """A 1x1 squeeze layer, then 1x1 and 3x3 expand layers side by side.

    (batch, inputs, height, width) to (batch, 2 expanded, height, width).
    """

    def __init__(self, inputs: int, squeezed: int, expanded: int) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(inputs, squeezed, 1)
        self.expand1x1 = nn.Conv2d(squeezed, expanded, 1)
        self.expand3x3 = nn.Conv2d(squeezed, expanded, 3, padding=1)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: metaop.Tensor) -> metaop.Tensor:
        x = self.relu(self.squeeze(x))
        return self.relu(metaop.cat((self.expand1x1(x), self.expand3x3(x)), 1))


def layers_of(version: str) -> list[nn.Module]:
    """The layers of version "1_0" or "1_1", which pools earlier."""

    def pool() -> nn.Module:
        return nn.MaxPool2d(3, 2, ceil_mode=True)

    if version == "1_0":
        stem = (nn.Conv2d(3, 96, 7, 2), nn.ReLU(inplace=True), pool())
        return [
            *stem, Fire(96, 16, 64), Fire(128, 16, 64), Fire(128, 32, 128), pool(),
            Fire(256, 32, 128), Fire(256, 48, 192), Fire(384, 48, 192), Fire(384, 64, 256), pool(),
            Fire(512, 64, 256),
        ]  # fmt: skip
    return [
        nn.Conv2d(3, 64, 3, 2), nn.ReLU(inplace=True), pool(), Fire(64, 16, 64),
        Fire(128, 16, 64), pool(), Fire(128, 32, 128), Fire(256, 32, 128), pool(),
        Fire(256, 48, 192), Fire(384, 48, 192), Fire(384, 64, 256), Fire(512, 64, 256),
    ]  # fmt: skip


class SqueezeNet(nn.Module):
    """Images (batch, 3, height, width) to logits (batch, classes)."""

    def __init__(self, version: str = "1_0", num_classes: int = 1000, dropout: float = 0.5) -> None:
        super().__init__()
        self.features = nn.Sequential(*layers_of(version))
        last = nn.Conv2d(512, num_classes, 1)
        self.classifier = nn.Sequential(
            nn.Dropout(dropout), last, nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1)
        )
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                if module is last:
                    nn.init.normal_(module.weight, 0.0, 0.01)
                else:
                    nn.init.kaiming_uniform_(module.weight)
                nn.init.zeros_(module.bias)

    def forward(self, images: metaop.Tensor) -> metaop.Tensor:
        return self.classifier(self.features(images)).flatten(1)


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Learns digits of 64 × 64 pixels; returns the losses."""
    options = parse_options(__doc__, arguments, steps=100, batch_size=32, lr=5e-4)
    return learn_digits(SqueezeNet("1_1", 10, dropout=0.1), options, 64)


if __name__ == "__main__":
    main()
