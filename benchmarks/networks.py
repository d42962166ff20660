"""Networks that are measured and have no file in models/ of their own."""

from __future__ import annotations

import metaop
from metaop import nn
from metaop.nn import functional as F


def _normalised(
    inputs: int, outputs: int, size: int, stride: int = 1, groups: int = 1
) -> nn.Module:
    convolution = nn.Conv2d(
        inputs, outputs, size, stride, padding=size // 2, groups=groups, bias=False
    )
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs))


class _InvertedResidual(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int, expansion: int) -> None:
        super().__init__()
        inner = inputs * expansion
        layers: list[nn.Module] = []
        if expansion != 1:
            layers += [_normalised(inputs, inner, 1), nn.ReLU6()]
        layers += [_normalised(inner, inner, 3, stride, inner), nn.ReLU6()]
        self.layers = nn.Sequential(*layers, _normalised(inner, outputs, 1))
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x: metaop.Tensor) -> metaop.Tensor:
        y = self.layers(x)
        return x + y if self.residual else y


class MobileNetV2(nn.Module):
    """Images (batch, 3, height, width) to logits (batch, 1000)."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [_normalised(3, 32, 3, 2), nn.ReLU6()]
        inputs = 32
        for expansion, outputs, count, stride in (
            *((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2)),
            *((6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)),
        ):
            for number in range(count):
                step = stride if number == 0 else 1
                layers.append(_InvertedResidual(inputs, outputs, step, expansion))
                inputs = outputs
        layers += [_normalised(320, 1280, 1), nn.ReLU6(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
        self.layers = nn.Sequential(*layers, nn.Linear(1280, 1000))

    def forward(self, images: metaop.Tensor) -> metaop.Tensor:
        return self.layers(images)


class _TransformerBlock(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.before_attention = nn.LayerNorm(width)
        self.projections = nn.Linear(width, 3 * width)
        self.mixed = nn.Linear(width, width)
        self.before_layers = nn.LayerNorm(width)
        self.layers = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        self.heads = heads

    def forward(self, x: metaop.Tensor) -> metaop.Tensor:
        batch, length, width = x.shape
        projected = self.projections(self.before_attention(x))
        split = projected.view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(query, key, value)
        x = x + self.mixed(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.layers(self.before_layers(x))


class ViT(nn.Module):
    """Images (batch, 3, 224, 224) in patches of 16 to logits (batch, 1000)."""

    def __init__(self, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.start = nn.Parameter(0.02 * metaop.randn(1, 1, width))
        self.positions = nn.Parameter(0.02 * metaop.randn(197, width))
        blocks = [_TransformerBlock(width, heads) for _ in range(layers)]
        self.blocks = nn.Sequential(*blocks, nn.LayerNorm(width))
        self.head = nn.Linear(width, 1000)

    def forward(self, images: metaop.Tensor) -> metaop.Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = metaop.cat([self.start.expand(x.shape[0], -1, -1), x], 1) + self.positions
        return self.head(self.blocks(x)[:, 0])


class UNet(nn.Module):
    """Images (batch, 3, height, width) to class logits of every pixel (batch, 2, …)."""

    def __init__(self, width: int = 32, depth: int = 3) -> None:
        super().__init__()
        widths = [width << level for level in range(depth + 1)]
        self.down = nn.ModuleList(
            self._pair(inputs, outputs) for inputs, outputs in zip([3, *widths], widths)
        )
        self.up = nn.ModuleList(
            nn.ConvTranspose2d(2 * outputs, outputs, 2, 2) for outputs in widths[-2::-1]
        )
        self.join = nn.ModuleList(self._pair(2 * outputs, outputs) for outputs in widths[-2::-1])
        self.last = nn.Conv2d(width, 2, 1)

    @staticmethod
    def _pair(inputs: int, outputs: int) -> nn.Module:
        return nn.Sequential(
            _normalised(inputs, outputs, 3), nn.ReLU(), _normalised(outputs, outputs, 3), nn.ReLU()
        )

    def forward(self, x: metaop.Tensor) -> metaop.Tensor:
        levels = []
        for layer in self.down:
            x = layer(F.max_pool2d(x, 2) if levels else x)
            levels.append(x)
        for enlarge, join, level in zip(self.up, self.join, levels[-2::-1]):
            x = join(metaop.cat([enlarge(x), level], 1))
        return self.last(x)


class LSTMClassifier(nn.Module):
    """Sequences (batch, length, inputs) to logits (batch, 10)."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.recurrent = nn.LSTM(inputs, hidden, num_layers=2, batch_first=True)
        self.head = nn.Linear(hidden, 10)

    def forward(self, x: metaop.Tensor) -> metaop.Tensor:
        return self.head(self.recurrent(x)[0][:, -1])


class Generator(nn.Module):
    """The generator of DCGAN: noise (batch, 100, 1, 1) to images (batch, 3, 64, 64)."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        inputs = 100
        for number, factor in enumerate((8, 4, 2, 1)):
            stride, padding = (1, 0) if number == 0 else (2, 1)
            layers += [
                nn.ConvTranspose2d(inputs, factor * width, 4, stride, padding, bias=False),
                nn.BatchNorm2d(factor * width),
                nn.ReLU(),
            ]
            inputs = factor * width
        self.layers = nn.Sequential(*layers, nn.ConvTranspose2d(inputs, 3, 4, 2, 1), nn.Tanh())

    def forward(self, noise: metaop.Tensor) -> metaop.Tensor:
        return self.layers(noise)
