"""A small decoder with a memory of keys and values, whose rows stand at places of their own."""

from __future__ import annotations

import numpy as np

import metaop
from metaop import nn
from metaop.nn import functional as F

VOCABULARY, CONTEXT, WIDTH, HEADS = 11, 12, 8, 2


class Writer(nn.Module):
    """Tokens (batch, 1) at positions (batch,), keys and values so far, to logits and new ones."""

    def __init__(self) -> None:
        super().__init__()
        self.letters = nn.Embedding(VOCABULARY, WIDTH)
        self.places = nn.Embedding(CONTEXT, WIDTH)
        self.parts = nn.Linear(WIDTH, 3 * WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def _split(self, x: metaop.Tensor) -> metaop.Tensor:
        batch, length, _ = x.shape
        return self.parts(x).view(batch, length, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)

    def forward(
        self,
        tokens: metaop.Tensor,
        positions: metaop.Tensor,
        keys: metaop.Tensor,
        values: metaop.Tensor,
    ) -> tuple[metaop.Tensor, metaop.Tensor, metaop.Tensor]:
        x = self.letters(tokens) + self.places(positions)[:, None]
        query, key, value = self._split(x).unbind(0)
        places, here = metaop.arange(CONTEXT), positions[:, None, None, None]
        keys = metaop.where(places[:, None] == here, key, keys)
        values = metaop.where(places[:, None] == here, value, values)
        found = F.scaled_dot_product_attention(query, keys, values, places <= here)
        return self.head(x[:, 0] + found.transpose(1, 2).flatten(1)), keys, values

    def whole(self, tokens: list[int]) -> np.ndarray:
        """The logits behind all tokens at once, by NumPy in float64."""
        weights = {k: v.detach().numpy().astype(np.float64) for k, v in self.named_parameters()}
        length = len(tokens)
        x = weights["letters.weight"][tokens] + weights["places.weight"][:length]
        split = x @ weights["parts.weight"].T + weights["parts.bias"]
        shape = (length, 3, HEADS, WIDTH // HEADS)
        query, key, value = split.reshape(shape).transpose(1, 2, 0, 3)
        scores = query @ key.transpose(0, 2, 1) / (WIDTH // HEADS) ** 0.5
        scores = np.where(np.tri(length, dtype=bool), scores, -np.inf)
        likely = np.exp(scores - scores.max(-1, keepdims=True))
        found = likely / likely.sum(-1, keepdims=True) @ value
        x = x + found.transpose(1, 0, 2).reshape(length, WIDTH)
        return (x @ weights["head.weight"].T + weights["head.bias"])[-1]
