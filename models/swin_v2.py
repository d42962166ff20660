"""Swin v2: Swin with scaled cosine attention and a continuous relative position bias.

After Z. Liu and others, "Swin transformer V2: scaling up capacity and resolution", 2021. Names of
parameters are torchvision's.

    python -m models.swin_v2 --steps 200
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import metaop
from metaop import nn
from metaop.nn import functional as F

from .demonstration import learn_digits, parse_options
from .swin import PatchMerging, ShiftedWindowAttention, SwinTransformer, SwinTransformerBlock


class ShiftedWindowAttentionV2(ShiftedWindowAttention):
    """Scaled cosine attention with a position bias by an MLP of log-spaced coordinates.

    The bias of keys is fixed at 0, although its parameter exists.
    """

    def describe_ways(self) -> None:
        steps = metaop.arange(1 - self.window, self.window).float() * 8 / (self.window - 1)
        lengths = steps.sign() * (steps.abs() + 1).log2() / 3
        down, right = lengths[:, None].expand(-1, len(steps)), lengths.expand(len(steps), -1)
        self.register_buffer("relative_coords_table", metaop.stack((down, right), -1)[None])
        self.logit_scale = nn.Parameter(metaop.full((self.heads, 1, 1), math.log(10.0)))
        self.cpb_mlp = nn.Sequential(
            nn.Linear(2, 512), nn.ReLU(inplace=True), nn.Linear(512, self.heads, bias=False)
        )

    def ways(self) -> metaop.Tensor:
        return 16 * self.cpb_mlp(self.relative_coords_table).view(-1, self.heads).sigmoid()

    def projected(self, x: metaop.Tensor) -> metaop.Tensor:
        query, key, value = self.qkv.bias.chunk(3)
        return F.linear(x, self.qkv.weight, metaop.cat((query, metaop.zeros_like(key), value)))

    def attend(
        self, query: metaop.Tensor, key: metaop.Tensor, value: metaop.Tensor, scores: metaop.Tensor
    ) -> metaop.Tensor:
        scale = self.logit_scale.clamp(max=math.log(100.0)).exp()
        query, key = F.normalize(query, dim=-1) * scale, F.normalize(key, dim=-1)
        dropout = self.attention_dropout if self.training else 0.0
        return F.scaled_dot_product_attention(query, key, value, scores, dropout, scale=1.0)


class SwinTransformerBlockV2(SwinTransformerBlock):
    """Window attention and MLP with res-post-norm: results are normalised, then added."""

    attention = ShiftedWindowAttentionV2

    def forward(self, x: metaop.Tensor) -> metaop.Tensor:
        x = x + self.stochastic_depth(self.norm1(self.attn(x)))
        return x + self.stochastic_depth(self.norm2(self.mlp(x)))


class PatchMergingV2(PatchMerging):
    """Patch merging that normalises after the reduction."""

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.norm = nn.LayerNorm(2 * width)

    def forward(self, x: metaop.Tensor) -> metaop.Tensor:
        return self.norm(self.reduction(self.corners(x)))


class SwinTransformerV2(SwinTransformer):
    """Images (batch, 3, height, width) to logits (batch, classes), as `SwinTransformer` does."""

    block, merging = SwinTransformerBlockV2, PatchMergingV2


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Learns digits of 32 × 32 pixels; returns the losses."""
    options = parse_options(__doc__, arguments, steps=200, batch_size=32, lr=2e-3, width=64)
    model = SwinTransformerV2(
        4, options.width, (2, 2), (2, 4), 4, stochastic_depth_prob=0.0, num_classes=10
    )
    return learn_digits(model, options, 32)


if __name__ == "__main__":
    main()
