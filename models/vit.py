"""ViT: a transformer encoder that classifies an image as a sequence of patches.

After A. Dosovitskiy and others, "An image is worth 16x16 words: transformers for image recognition
at scale", 2020. Parameters have torchvision's names.

    python -m models.vit --steps 150
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import metaop
from metaop import nn

from .demonstration import learn_digits, parse_options
from .parallel import OPTIONS, Part


class MLPBlock(nn.Sequential):
    """The MLP: one hidden layer with GELU."""

    def __init__(self, width: int, hidden: int, dropout: float) -> None:
        super().__init__(
            nn.Linear(width, hidden),
            nn.GELU(),
            nn.Dropout(dropout),
            nn.Linear(hidden, width),
            nn.Dropout(dropout),
        )
        for layer in (self[0], self[3]):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.normal_(layer.bias, std=1e-6)


class EncoderBlock(nn.Module):
    """Pre-norm attention and MLP, each with a residual connection; (batch, length, width) stays."""

    def __init__(self, heads: int, width: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(width, eps=1e-6)
        self.self_attention = nn.MultiheadAttention(width, heads, dropout, batch_first=True)
        self.dropout = nn.Dropout(dropout)
        self.ln_2 = nn.LayerNorm(width, eps=1e-6)
        self.mlp = MLPBlock(width, hidden, dropout)

    def forward(self, x: metaop.Tensor) -> metaop.Tensor:
        normal = self.ln_1(x)
        attended, _ = self.self_attention(normal, normal, normal, need_weights=False)
        x = x + self.dropout(attended)
        return x + self.mlp(self.ln_2(x))


class Encoder(nn.Module):
    """Learned position embeddings, the blocks and a final norm; (batch, length, width) stays."""

    def __init__(
        self, length: int, layers: int, heads: int, width: int, hidden: int, dropout: float
    ) -> None:
        super().__init__()
        self.pos_embedding = nn.Parameter(metaop.empty(1, length, width).normal_(std=0.02))
        self.dropout = nn.Dropout(dropout)
        blocks = OrderedDict(
            (f"encoder_layer_{number}", EncoderBlock(heads, width, hidden, dropout))
            for number in range(layers)
        )
        self.layers = nn.Sequential(blocks)
        self.ln = nn.LayerNorm(width, eps=1e-6)

    def forward(self, x: metaop.Tensor) -> metaop.Tensor:
        return self.ln(self.layers(self.dropout(x + self.pos_embedding)))


class VisionTransformer(nn.Module):
    """Images (batch, 3, image_size, image_size) to logits (batch, classes)."""

    columns = ("in_proj_weight", "mlp.0.weight", "mlp.0.bias")
    rows = ("out_proj.weight", "mlp.3.weight")

    def __init__(
        self,
        image_size: int = 224,
        patch_size: int = 16,
        num_layers: int = 12,
        num_heads: int = 12,
        hidden_dim: int = 768,
        mlp_dim: int = 3072,
        dropout: float = 0.0,
        num_classes: int = 1000,
    ) -> None:
        super().__init__()
        self.class_token = nn.Parameter(metaop.zeros(1, 1, hidden_dim))
        self.conv_proj = nn.Conv2d(3, hidden_dim, patch_size, patch_size)
        length = (image_size // patch_size) ** 2 + 1
        self.encoder = Encoder(length, num_layers, num_heads, hidden_dim, mlp_dim, dropout)
        self.heads = nn.Sequential(OrderedDict(head=nn.Linear(hidden_dim, num_classes)))
        nn.init.trunc_normal_(self.conv_proj.weight, std=(3 * patch_size**2) ** -0.5)
        nn.init.zeros_(self.conv_proj.bias)
        nn.init.zeros_(self.heads.head.weight)
        nn.init.zeros_(self.heads.head.bias)

    def embed(self, images: metaop.Tensor) -> metaop.Tensor:
        """Patch embeddings after the class token: (batch, 1 + patches, width)."""
        patches = self.conv_proj(images).flatten(2).transpose(1, 2)
        token = self.class_token.expand(len(images), -1, -1)
        return metaop.cat((token, patches), 1)

    def forward(self, images: metaop.Tensor) -> metaop.Tensor:
        return self.heads(self.encoder(self.embed(images))[:, 0])

    def in_order(self) -> list[nn.Module]:
        """The network as a sequence of modules, by which a pipeline is cut."""
        encoder = self.encoder
        places = encoder.pos_embedding
        return [
            Part(self.embed, self.conv_proj, self.class_token),
            Part(lambda x: encoder.dropout(x + places), encoder.dropout, places),
            *encoder.layers,
            Part(lambda x: self.heads(encoder.ln(x)[:, 0]), encoder.ln, self.heads),
        ]


def vit_b_16(num_classes: int = 1000) -> VisionTransformer:
    return VisionTransformer(num_classes=num_classes)


def vit_s_16(num_classes: int = 1000) -> VisionTransformer:
    return VisionTransformer(224, 16, 12, 6, 384, 1536, num_classes=num_classes)


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Learns digits of 32 × 32 pixels; returns the losses."""
    options = parse_options(
        __doc__, arguments, steps=150, batch_size=32, lr=1e-3, width=64,
        log="", **OPTIONS,
    )  # fmt: skip
    model = VisionTransformer(32, 8, 3, 4, options.width, 2 * options.width, num_classes=10)
    return learn_digits(model, options, 32)


if __name__ == "__main__":
    main()
