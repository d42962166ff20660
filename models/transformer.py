"""Transformer: the encoder-decoder network that consists of attention and MLPs only.

After A. Vaswani and others, "Attention is all you need", 2017. The demonstration sorts numbers: the
decoder generates the encoder's input in ascending order.

    python -m models.transformer --steps 400 --checkpoint runs/transformer.pth
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import metaop
from metaop import nn
from metaop.nn import functional as F

from .demonstration import parse_options
from .trainer import Trainer, Training, Values


def positional_encoding(length: int, width: int) -> metaop.Tensor:
    """Sinusoidal positional encodings (length, width): sine and cosine alternate."""
    powers = metaop.arange(0, width, 2) / width
    angles = metaop.arange(length)[:, None] / 10000.0**powers
    return metaop.stack((angles.sin(), angles.cos()), 2).flatten(1)


class Transformer(nn.Module):
    """Input tokens (batch, length) and output tokens so far (batch, written) to logits.

    The logits (batch, written, vocabulary) predict the next output token at each position.
    `context` is the maximal length of both sequences. The token `vocabulary` is the start token.
    """

    def __init__(
        self,
        vocabulary: int,
        context: int,
        width: int = 512,
        heads: int = 8,
        layers: int = 6,
        hidden: int = 2048,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        self.start = vocabulary
        self.embedding = nn.Embedding(vocabulary + 1, width)
        self.transformer = nn.Transformer(
            width, heads, layers, layers, hidden, dropout, batch_first=True
        )
        self.head = nn.Linear(width, vocabulary)
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("positions", positional_encoding(context, width))
        for parameter in self.transformer.parameters():
            if parameter.ndim > 1:
                nn.init.xavier_uniform_(parameter)
        nn.init.normal_(self.embedding.weight, 0.0, width**-0.5)

    def embed(self, tokens: metaop.Tensor) -> metaop.Tensor:
        """Token embeddings plus positional encodings (batch, length, width)."""
        found = self.embedding(tokens) * math.sqrt(self.embedding.embedding_dim)
        return self.dropout(found + self.positions[: tokens.shape[1]])

    def forward(self, read: metaop.Tensor, written: metaop.Tensor) -> metaop.Tensor:
        length = written.shape[1]
        later = metaop.ones(length, length, dtype=metaop.bool, device=read.device).triu(1)
        found = self.transformer(self.embed(read), self.embed(written), tgt_mask=later)
        return self.head(found)

    def shifted(self, target: metaop.Tensor) -> metaop.Tensor:
        """The target shifted right by the start token: the decoder's input in training."""
        start = metaop.full_like(target[:, :1], self.start)
        return metaop.cat((start, target[:, :-1]), 1)

    def write(self, read: metaop.Tensor, length: int) -> metaop.Tensor:
        """Greedy decoding: tokens (batch, length), int64."""
        written = metaop.zeros(len(read), length, dtype=metaop.int64, device=read.device)
        with metaop.no_grad():
            for place in range(length):
                # The causal mask hides the zeros after this position.
                logits = self(read, self.shifted(written))
                written[:, place] = logits[:, place].argmax(-1)
        return written


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Learns to sort sequences; returns the losses."""
    options = parse_options(
        __doc__, arguments, steps=400, batch_size=32, lr=1e-3, length=8, numbers=16, layers=1,
        width=64, log="",
    )  # fmt: skip
    hidden = 2 * options.width
    model = Transformer(
        options.numbers, options.length, options.width, 4, options.layers, hidden, 0.0
    )
    optimizer = metaop.optim.AdamW(model.parameters(), lr=options.lr)

    def draw(count: int, *seed: int) -> tuple[metaop.Tensor, metaop.Tensor]:
        random = np.random.default_rng((options.seed, *seed))
        numbers = random.integers(0, options.numbers, (count, options.length))
        return metaop.from_numpy(numbers), metaop.from_numpy(np.sort(numbers, 1))

    def batch(number: int) -> tuple[metaop.Tensor, metaop.Tensor]:
        return draw(options.batch_size, number)

    def values(network: Any, read: metaop.Tensor, target: metaop.Tensor) -> Values:
        logits = network(read, network.shifted(target))
        right = (logits.argmax(-1) == target).float().mean()
        loss = F.cross_entropy(logits.flatten(0, 1), target.flatten())
        return {"loss": loss, "accuracy": right}

    trainer = Trainer(model, optimizer, batch, values, Training.of(options))
    history = trainer.fit("Transformer")
    read, target = draw(100, options.steps, 1)
    right = (model.eval().write(read, options.length) == target).all(1)
    print(f"{int(right.sum().item())} of 100 sequences are sorted without a mistake")
    return history["loss"]


if __name__ == "__main__":
    main()
