"""Llama: a decoder-only transformer with rotary positions, grouped queries and gated MLPs.

After H. Touvron and others, "LLaMA: open and efficient foundation language models", 2023. Rotary
embeddings encode positions (J. Su and others, "RoFormer", 2021), groups of query heads share keys
and values (J. Ainslie and others, "GQA", 2023), and the MLP is SwiGLU (N. Shazeer, "GLU variants
improve transformer", 2020). Parameters have the names of Hugging Face.

    python -m models.llama --steps 200
    python -m models.llama --write 500 --temperature 0.8 --top-k 10 --top-p 0.9
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import metaop
from metaop import nn
from metaop.errors import CheckpointError
from metaop.nn import functional as F

from .demonstration import parse_options
from .gpt import WRITING, Cache, CausalLanguageModel, KeyValues, attend, learn_text
from .published import adopt, read_config, read_weights


def apply_rotary(x: metaop.Tensor, positions: metaop.Tensor, base: float) -> metaop.Tensor:
    """Rotary embedding of x (batch, heads, length, head width) at positions (length,).

    Elements i and i + width / 2 form a point, which is rotated by the angle position *
    base^(-2 i / width). So the product of a query and a key depends on their distance only.
    """
    half = x.shape[-1] // 2
    dtype = metaop.promote_types(x.dtype, metaop.float32)
    powers = metaop.arange(half, device=x.device, dtype=dtype) / half
    angles = positions[:, None] * base**-powers
    cosine, sine = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    first, second = x[..., :half], x[..., half:]
    return metaop.cat((first * cosine - second * sine, second * cosine + first * sine), -1)


class Attention(nn.Module):
    """Causal grouped-query attention over (batch, length, width); see `attend`.

    There are `heads` heads of queries, and `kv_heads` heads of keys and values.
    """

    def __init__(self, width: int, heads: int, kv_heads: int, base: float) -> None:
        super().__init__()
        self.head, self.base = width // heads, base
        self.q_proj = nn.Linear(width, heads * self.head, bias=False)
        self.k_proj = nn.Linear(width, kv_heads * self.head, bias=False)
        self.v_proj = nn.Linear(width, kv_heads * self.head, bias=False)
        self.o_proj = nn.Linear(heads * self.head, width, bias=False)

    def forward(
        self, x: metaop.Tensor, positions: metaop.Tensor, cache: KeyValues | None = None
    ) -> metaop.Tensor:
        query, key, value = (
            layer(x).unflatten(-1, (-1, self.head)).transpose(1, 2)
            for layer in (self.q_proj, self.k_proj, self.v_proj)
        )
        query, key = (
            apply_rotary(query, positions, self.base),
            apply_rotary(key, positions, self.base),
        )
        return self.o_proj(attend(query, key, value, 0.0, positions, cache))


class Feedforward(nn.Module):
    """SwiGLU: down(silu(gate(x)) * up(x)), with `hidden` features inside."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(width, hidden, bias=False)
        self.up_proj = nn.Linear(width, hidden, bias=False)
        self.down_proj = nn.Linear(hidden, width, bias=False)

    def forward(self, x: metaop.Tensor) -> metaop.Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Block(nn.Module):
    """Pre-norm attention and MLP, each with a residual connection; (batch, length, width) stays."""

    def __init__(
        self, width: int, heads: int, kv_heads: int, hidden: int, base: float, eps: float
    ) -> None:
        super().__init__()
        self.self_attn = Attention(width, heads, kv_heads, base)
        self.mlp = Feedforward(width, hidden)
        self.input_layernorm = nn.RMSNorm(width, eps)
        self.post_attention_layernorm = nn.RMSNorm(width, eps)

    def forward(
        self, x: metaop.Tensor, positions: metaop.Tensor, cache: KeyValues | None = None
    ) -> metaop.Tensor:
        x = x + self.self_attn(self.input_layernorm(x), positions, cache)
        return x + self.mlp(self.post_attention_layernorm(x))


class Llama(CausalLanguageModel):
    """Tokens (batch, length), int64, to logits of the next ones (batch, length, vocabulary).

    With `cache`, the tokens continue the cached ones at `positions` (length,), int64. `base` is the
    θ of the rotary embedding.
    """

    def __init__(
        self,
        vocabulary: int,
        context: int = 2048,
        width: int = 4096,
        layers: int = 32,
        heads: int = 32,
        kv_heads: int = 32,
        hidden: int = 11008,
        base: float = 10000.0,
        eps: float = 1e-5,
    ) -> None:
        super().__init__()
        self.context = context
        self.model = nn.ModuleDict(
            {
                "embed_tokens": nn.Embedding(vocabulary, width),
                "layers": nn.ModuleList(
                    [Block(width, heads, kv_heads, hidden, base, eps) for _ in range(layers)]
                ),
                "norm": nn.RMSNorm(width, eps),
            }
        )
        self.lm_head = nn.Linear(width, vocabulary, bias=False)
        for name, parameter in self.named_parameters():
            if "norm" not in name:
                nn.init.normal_(parameter, 0.0, 0.02)

    def forward(
        self,
        tokens: metaop.Tensor,
        positions: metaop.Tensor | None = None,
        cache: Cache | None = None,
    ) -> metaop.Tensor:
        if positions is None:
            positions = metaop.arange(tokens.shape[1], device=tokens.device)
        x = self.model["embed_tokens"](tokens)
        for number, block in enumerate(self.model["layers"]):
            x = block(x, positions, None if cache is None else cache[number])
        return self.lm_head(self.model["norm"](x))

    @classmethod
    def from_pretrained(cls, folder: str | Path, context: int | None = None) -> Llama:
        """The network of a published folder, in evaluation mode.

        A smaller `context` than the published one needs a smaller cache. Raises CheckpointError for
        settings that this network does not have, RuntimeError for weights of other names or shapes.
        """
        config = read_config(
            folder,
            model_type="llama",
            hidden_act="silu",
            attention_bias=False,
            mlp_bias=False,
            rope_scaling=None,
            tie_word_embeddings=(False, True),
        )
        heads, width = config["num_attention_heads"], config["hidden_size"]
        read_config(folder, head_dim=(None, width // heads))
        rope = config.get("rope_parameters") or {"rope_theta": config.get("rope_theta", 1e4)}
        if rope.get("rope_type", "default") != "default":
            raise CheckpointError(f"{folder}: unknown rope_type {rope['rope_type']!r}")
        model = cls(
            config["vocab_size"], context or config["max_position_embeddings"], width,
            config["num_hidden_layers"], heads, config.get("num_key_value_heads") or heads,
            config["intermediate_size"], rope["rope_theta"], config["rms_norm_eps"],
        )  # fmt: skip
        tied = {"lm_head.weight": "model.embed_tokens.weight"}
        tied = tied if config["tie_word_embeddings"] else {}
        adopt(model, read_weights(folder), cls._renamed, tied)
        return model.eval()

    @staticmethod
    def _renamed(name: str) -> str | None:
        """Older files contain the rotary frequencies, which follow from the settings."""
        return None if name.endswith("rotary_emb.inv_freq") else name

    def cache_shapes(self, batch: int) -> list[tuple[int, ...]]:
        layers = [block.self_attn for block in self.model["layers"]]
        return [
            (batch, layer.k_proj.out_features // layer.head, self.context, layer.head)
            for layer in layers
        ]


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Learns a text letter by letter and generates some; returns the losses."""
    options = parse_options(
        __doc__, arguments, steps=200, batch_size=16, lr=3e-3, layers=2, width=64, heads=4,
        kv_heads=2, **WRITING,
    )  # fmt: skip

    def build(letters: int, options: argparse.Namespace) -> Llama:
        return Llama(
            letters, options.context, options.width, options.layers, options.heads,
            options.kv_heads, 8 * options.width // 3,
        )  # fmt: skip

    return learn_text(build, options)


if __name__ == "__main__":
    main()
