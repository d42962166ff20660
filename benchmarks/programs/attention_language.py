"""PyTorch's transformer layers learn under a causal mask to count on, and are evaluated."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import metaop
from metaop import nn
from metaop.nn import functional as F
from models.demonstration import train, update

WORDS, LENGTH, WIDTH = 40, 24, 64


class Language(nn.Module):
    """Words (batch, length) to logits of the next ones; sines tell the positions."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 128, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(WIDTH, WORDS)
        times = metaop.arange(LENGTH)[:, None].float()
        rates = metaop.exp(metaop.arange(0, WIDTH, 2).float() * (-math.log(1e4) / WIDTH))
        waves = metaop.stack(((times * rates).sin(), (times * rates).cos()), -1)
        self.register_buffer("positions", waves.flatten(1))

    def forward(self, x: metaop.Tensor) -> metaop.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        x = self.embedding(x) * math.sqrt(WIDTH) + self.positions[: x.shape[1]]
        return self.head(self.encoder(x, mask=mask, is_causal=True))


def _sentences(random: np.random.Generator, count: int) -> metaop.Tensor:
    """Words that count on by a step of each sentence's own."""
    start, stride = random.integers(0, WORDS, (count, 1)), random.integers(1, 5, (count, 1))
    return metaop.tensor((start + stride * np.arange(LENGTH + 1)) % WORDS)


def main(steps: int, compiled: Callable[..., Any]) -> list[float]:
    metaop.manual_seed(0)
    random = np.random.default_rng(0)
    model = Language()
    optimizer = metaop.optim.Adam(model.parameters(), lr=2e-3)

    @compiled
    def loss_of(words: metaop.Tensor) -> metaop.Tensor:
        return F.cross_entropy(model(words[:, :-1]).flatten(0, 1), words[:, 1:].flatten())

    def step(number: int) -> dict[str, metaop.Tensor]:
        return {"loss": update(optimizer, loss_of(_sentences(random, 16)))}

    losses = train(step, steps, "transformer")["loss"]
    model.eval()
    with metaop.no_grad():
        return [*losses, *(loss_of(_sentences(random, 16)).item() for _ in range(4))]
