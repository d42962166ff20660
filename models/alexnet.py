"""AlexNet: the convolutional network that brought deep learning to image classification.

After A. Krizhevsky, "One weird trick for parallelizing convolutional neural networks", 2014.
Parameters have torchvision's names.

    python -m models.alexnet --steps 60
"""

from __future__ import annotations

from collections.abc import Sequence

import metaop
from metaop import nn

from .demonstration import learn_digits, parse_options


class AlexNet(nn.Module):
    """Images (batch, 3, height, width) of at least 63 pixels to logits (batch, classes).

    `width` is that of the fully connected layers.
    """

    def __init__(self, num_classes: int = 1000, dropout: float = 0.5, width: int = 4096) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 64, 11, stride=4, padding=2),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2),
            nn.Conv2d(64, 192, 5, padding=2),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2),
            nn.Conv2d(192, 384, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(384, 256, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(256, 256, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2),
        )
        self.avgpool = nn.AdaptiveAvgPool2d(6)
        self.classifier = nn.Sequential(
            nn.Dropout(dropout),
            nn.Linear(256 * 6 * 6, width),
            nn.ReLU(inplace=True),
            nn.Dropout(dropout),
            nn.Linear(width, width),
            nn.ReLU(inplace=True),
            nn.Linear(width, num_classes),
        )

    def forward(self, images: metaop.Tensor) -> metaop.Tensor:
        return self.classifier(self.avgpool(self.features(images)).flatten(1))


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Learns digits of 64 × 64 pixels; returns the losses."""
    options = parse_options(__doc__, arguments, steps=60, batch_size=32, lr=5e-4, width=256)
    return learn_digits(AlexNet(10, 0.1, options.width), options, 64)


if __name__ == "__main__":
    main()
