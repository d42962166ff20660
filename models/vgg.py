"""VGG: plain stacks of 3x3 convolutions.

After K. Simonyan and A. Zisserman, "Very deep convolutional networks for large-scale image
recognition", 2014. Names of parameters are torchvision's.

    python -m models.vgg --depth 11 --steps 50
"""

from __future__ import annotations

from collections.abc import Sequence

import metaop
from metaop import nn

from .demonstration import learn_digits, parse_options

# Output channels of the convolutions; 0 is a max-pooling layer, which halves the image.
PLANS = {
    11: (64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0),
    13: (64, 64, 0, 128, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0),
    16: (64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0),
    19: (
        *(64, 64, 0, 128, 128, 0, 256, 256, 256, 256, 0),
        *(512, 512, 512, 512, 0, 512, 512, 512, 512, 0),
    ),
}


def convolutions(plan: Sequence[int], batch_norm: bool) -> nn.Sequential:
    """The convolutions of a plan: images (batch, 3, …) to features (batch, plan[-2], …)."""
    layers: list[nn.Module] = []
    inputs = 3
    for outputs in plan:
        if not outputs:
            layers.append(nn.MaxPool2d(2))
            continue
        layers.append(nn.Conv2d(inputs, outputs, 3, padding=1))
        if batch_norm:
            layers.append(nn.BatchNorm2d(outputs))
        layers.append(nn.ReLU(inplace=True))
        inputs = outputs
    return nn.Sequential(*layers)


class VGG(nn.Module):
    """Images (batch, 3, height, width) to logits (batch, classes).

    `pooled` is the size of the feature map before the classifier, and `width` that of the fully
    connected layers: 7 and 4096 for images of 224 pixels, 1 and 512 for small ones.
    """

    def __init__(
        self,
        depth: int = 16,
        num_classes: int = 1000,
        batch_norm: bool = False,
        dropout: float = 0.5,
        pooled: int = 7,
        width: int = 4096,
    ) -> None:
        super().__init__()
        self.features = convolutions(PLANS[depth], batch_norm)
        self.avgpool = nn.AdaptiveAvgPool2d(pooled)
        self.classifier = nn.Sequential(
            nn.Linear(512 * pooled * pooled, width),
            nn.ReLU(inplace=True),
            nn.Dropout(dropout),
            nn.Linear(width, width),
            nn.ReLU(inplace=True),
            nn.Dropout(dropout),
            nn.Linear(width, num_classes),
        )
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
                nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, 0, 0.01)
                nn.init.zeros_(module.bias)

    def forward(self, images: metaop.Tensor) -> metaop.Tensor:
        return self.classifier(self.avgpool(self.features(images)).flatten(1))


def vgg16(num_classes: int = 1000) -> VGG:
    return VGG(16, num_classes)


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Learns digits of 32 × 32 pixels; returns the losses."""
    options = parse_options(
        __doc__, arguments, steps=60, batch_size=32, lr=3e-4, depth=tuple(PLANS)
    )
    model = VGG(options.depth, 10, batch_norm=True, dropout=0.1, pooled=1, width=512)
    return learn_digits(model, options, 32)


if __name__ == "__main__":
    main()
