"""Swin: a hierarchical vision transformer with attention in shifted windows.

After Z. Liu and others, "Swin transformer: hierarchical vision transformer using shifted windows",
2021. Names of parameters are torchvision's.

    python -m models.swin --steps 200
"""

from __future__ import annotations

from collections.abc import Sequence

import metaop
from metaop import nn
from metaop.nn import functional as F
from metaop.vision.ops import MLP, Permute, StochasticDepth

from .demonstration import learn_digits, parse_options
from .parallel import OPTIONS, Part


def windows_of(x: metaop.Tensor, size: int) -> metaop.Tensor:
    """x (batch, height, width, channels) in windows (batch, windows, size², channels)."""
    batch, height, width, channels = x.shape
    x = x.view(batch, height // size, size, width // size, size, channels)
    return x.permute(0, 1, 3, 2, 4, 5).reshape(batch, -1, size * size, channels)


def image_of(windows: metaop.Tensor, size: int, height: int, width: int) -> metaop.Tensor:
    """The inverse of `windows_of`."""
    batch, channels = windows.shape[0], windows.shape[-1]
    x = windows.reshape(batch, height // size, width // size, size, size, channels)
    return x.permute(0, 1, 3, 2, 4, 5).reshape(batch, height, width, channels)


def relative_positions(size: int) -> metaop.Tensor:
    """Indices (size⁴,) of the relative position of each pair of pixels of a window."""
    places = metaop.arange(size * size)
    rows, columns = places // size, places % size
    down = rows[:, None] - rows + size - 1
    right = columns[:, None] - columns + size - 1
    return (down * (2 * size - 1) + right).flatten()


class ShiftedWindowAttention(nn.Module):
    """Attention within windows of x (batch, height, width, channels); the shape stays.

    Windows are shifted cyclically by `shift` pixels, and a mask separates pixels that were not
    neighbours before. Images are padded to whole windows.
    """

    def __init__(
        self, width: int, heads: int, window: int, shift: int, dropout: float, attention: float
    ) -> None:
        super().__init__()
        self.heads, self.window, self.shift = heads, window, shift
        self.dropout, self.attention_dropout = dropout, attention
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.describe_ways()
        self.register_buffer("relative_position_index", relative_positions(window))

    def describe_ways(self) -> None:
        """Creates the parameters of `ways`."""
        table = metaop.zeros((2 * self.window - 1) ** 2, self.heads)
        self.relative_position_bias_table = nn.Parameter(table)
        nn.init.trunc_normal_(self.relative_position_bias_table, std=0.02)

    def ways(self) -> metaop.Tensor:
        """The bias of each relative position: (positions, heads)."""
        return self.relative_position_bias_table

    def bias(self) -> metaop.Tensor:
        """The relative position bias of the scores: (heads, size², size²)."""
        count = self.window**2
        chosen = self.ways()[self.relative_position_index]
        return chosen.view(count, count, self.heads).permute(2, 0, 1)

    def projected(self, x: metaop.Tensor) -> metaop.Tensor:
        """Queries, keys and values of x (…, channels), concatenated: (…, 3 channels)."""
        return self.qkv(x)

    def attend(
        self, query: metaop.Tensor, key: metaop.Tensor, value: metaop.Tensor, scores: metaop.Tensor
    ) -> metaop.Tensor:
        """Attention with `scores` as an additive bias."""
        dropout = self.attention_dropout if self.training else 0.0
        return F.scaled_dot_product_attention(query, key, value, scores, dropout)

    def apart(
        self, height: int, width: int, down: int, right: int, like: metaop.Tensor
    ) -> metaop.Tensor:
        """The mask (windows, 1, size², size²): -100 for pairs that the shift has joined, else 0."""
        regions = []
        for length, shift in ((height, down), (width, right)):
            places = metaop.arange(length, device=like.device)
            # A shift splits the last window into two regions.
            cut = (places >= length - self.window).long() + (places >= length - shift).long()
            regions.append(cut if shift else places * 0)
        region = 3 * regions[0][:, None] + regions[1]
        region = windows_of(region[None, :, :, None], self.window)[0, :, :, 0]
        differ = region[:, None, :] != region[:, :, None]
        return -100.0 * differ.to(like.dtype)[:, None]

    def forward(self, x: metaop.Tensor) -> metaop.Tensor:
        height, width, channels = x.shape[1:]
        window = self.window
        x = F.pad(x, (0, 0, 0, -width % window, 0, -height % window))
        tall, wide = x.shape[1:3]
        down, right = (0 if window >= length else self.shift for length in (tall, wide))
        scores = self.bias()
        if down or right:
            x = metaop.roll(x, (-down, -right), (1, 2))
            scores = scores + self.apart(tall, wide, down, right, x)
        x = windows_of(x, window)
        qkv = self.projected(x).unflatten(-1, (3, self.heads, channels // self.heads))
        query, key, value = qkv.permute(3, 0, 1, 4, 2, 5).unbind(0)
        found = self.attend(query, key, value, scores)
        x = self.proj(found.transpose(2, 3).flatten(3))
        x = image_of(F.dropout(x, self.dropout, self.training), window, tall, wide)
        if down or right:
            x = metaop.roll(x, (down, right), (1, 2))
        return x[:, :height, :width]


class SwinTransformerBlock(nn.Module):
    """Pre-norm window attention and MLP, with residual connections; the shape stays."""

    attention = ShiftedWindowAttention

    def __init__(
        self,
        width: int,
        heads: int,
        window: int,
        shift: int,
        mlp_ratio: float,
        dropout: float,
        attention_dropout: float,
        drop: float,
    ) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attn = self.attention(width, heads, window, shift, dropout, attention_dropout)
        self.stochastic_depth = StochasticDepth(drop, "row")
        self.norm2 = nn.LayerNorm(width)
        self.mlp = MLP(
            width, [int(width * mlp_ratio), width], activation_layer=nn.GELU, dropout=dropout
        )

    def forward(self, x: metaop.Tensor) -> metaop.Tensor:
        x = x + self.stochastic_depth(self.attn(self.norm1(x)))
        return x + self.stochastic_depth(self.mlp(self.norm2(x)))


class PatchMerging(nn.Module):
    """Halves the image x (batch, height, width, channels) and doubles the channels."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.reduction = nn.Linear(4 * width, 2 * width, bias=False)
        self.norm = nn.LayerNorm(4 * width)

    @staticmethod
    def corners(x: metaop.Tensor) -> metaop.Tensor:
        """Concatenates the channels of 2 × 2 pixels: (batch, height/2, width/2, 4 channels)."""
        x = F.pad(x, (0, 0, 0, x.shape[2] % 2, 0, x.shape[1] % 2))
        return metaop.cat([x[:, row::2, column::2] for column in (0, 1) for row in (0, 1)], -1)

    def forward(self, x: metaop.Tensor) -> metaop.Tensor:
        return self.reduction(self.norm(self.corners(x)))


class SwinTransformer(nn.Module):
    """Images (batch, 3, height, width) to logits (batch, classes).

    `depths` and `num_heads` are the numbers of blocks and heads of each stage; each stage halves
    the image and doubles the channels. The probability of stochastic depth grows linearly with
    depth, up to `stochastic_depth_prob`.
    """

    block, merging = SwinTransformerBlock, PatchMerging
    columns = ("attn.qkv.weight", "mlp.0.weight", "mlp.0.bias")
    rows = ("attn.proj.weight", "mlp.3.weight")

    def __init__(
        self,
        patch_size: int = 4,
        embed_dim: int = 96,
        depths: Sequence[int] = (2, 2, 6, 2),
        num_heads: Sequence[int] = (3, 6, 12, 24),
        window_size: int = 7,
        mlp_ratio: float = 4.0,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        stochastic_depth_prob: float = 0.2,
        num_classes: int = 1000,
    ) -> None:
        super().__init__()
        width, passed = embed_dim, 0
        features: list[nn.Module] = [
            nn.Sequential(
                nn.Conv2d(3, width, patch_size, patch_size),
                Permute((0, 2, 3, 1)),
                nn.LayerNorm(width),
            )
        ]
        for stage, (depth, heads) in enumerate(zip(depths, num_heads)):
            if stage > 0:
                features.append(self.merging(width))
                width *= 2
            blocks = []
            for number in range(depth):
                drop = stochastic_depth_prob * passed / (sum(depths) - 1)
                shift = number % 2 * (window_size // 2)
                blocks.append(
                    self.block(
                        width,
                        heads,
                        window_size,
                        shift,
                        mlp_ratio,
                        dropout,
                        attention_dropout,
                        drop,
                    )
                )
                passed += 1
            features.append(nn.Sequential(*blocks))
        self.features = nn.Sequential(*features)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def forward(self, images: metaop.Tensor) -> metaop.Tensor:
        return self.classify(self.features(images))

    def classify(self, x: metaop.Tensor) -> metaop.Tensor:
        """Pixels (batch, height, width, channels) to logits (batch, classes)."""
        return self.head(self.norm(x).mean((1, 2)))

    def in_order(self) -> list[nn.Module]:
        """The network as a sequence of modules, by which a pipeline is cut."""
        inner = [layer for part in self.features for layer in _layers(part)]
        return [*inner, Part(self.classify, self.norm, self.head)]


def _layers(part: nn.Module) -> list[nn.Module]:
    return list(part) if isinstance(part, nn.Sequential) else [part]


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Learns digits of 32 × 32 pixels; returns the losses."""
    options = parse_options(
        __doc__, arguments, steps=200, batch_size=32, lr=2e-3, width=64,
        log="", **OPTIONS,
    )  # fmt: skip
    model = SwinTransformer(
        4, options.width, (2, 2), (2, 4), 4, stochastic_depth_prob=0.0, num_classes=10
    )
    return learn_digits(model, options, 32)


if __name__ == "__main__":
    main()
