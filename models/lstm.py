"""LSTM: a recurrent language model that predicts the next letter of a text.

After S. Hochreiter and J. Schmidhuber, "Long short-term cache", 1997, and W. Zaremba, I.
Sutskever, O. Vinyals, "Recurrent neural network regularization", 2014.

    python -m models.lstm --steps 200 --checkpoint runs/lstm.pth
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import metaop
from metaop import nn
from metaop.nn import functional as F

from .demonstration import drawn_rows, parse_options
from .gpt import PROVERBS, sample, sampling
from .trainer import Trainer, Training, Values

# The state of an LSTM (hidden and cell), or of a GRU (hidden).
State = tuple[metaop.Tensor, metaop.Tensor] | metaop.Tensor


class LanguageModel(nn.Module):
    """Tokens (length, batch) to logits (length, batch, vocabulary), and the last state.

    `kind` is the recurrent layer, `nn.LSTM` or `nn.GRU`. A given state continues a sequence.
    """

    def __init__(
        self,
        vocabulary: int,
        width: int = 200,
        layers: int = 2,
        dropout: float = 0.0,
        kind: Callable[..., nn.Module] = nn.LSTM,
    ) -> None:
        super().__init__()
        self.drop = nn.Dropout(dropout)
        self.encoder = nn.Embedding(vocabulary, width)
        self.rnn = kind(width, width, layers, dropout=dropout)
        self.decoder = nn.Linear(width, vocabulary)
        nn.init.uniform_(self.encoder.weight, -0.1, 0.1)
        nn.init.uniform_(self.decoder.weight, -0.1, 0.1)
        nn.init.zeros_(self.decoder.bias)

    def forward(
        self, tokens: metaop.Tensor, state: State | None = None
    ) -> tuple[metaop.Tensor, State]:
        outputs, state = self.rnn(self.drop(self.encoder(tokens)), state)
        return self.decoder(self.drop(outputs)), state

    def write(
        self,
        token: int,
        count: int,
        temperature: float = 0.0,
        top_k: int | None = None,
        top_p: float | None = None,
    ) -> list[int]:
        """A token and `count` sampled ones that follow it; greedy by default."""
        written, state = [token], None
        with metaop.no_grad():
            for _ in range(count):
                logits, state = self(metaop.tensor([[written[-1]]]), state)
                written.append(int(sample(logits[-1], temperature, top_k, top_p).item()))
        return written


def learn_proverbs(
    title: str, kind: Callable[..., nn.Module], options: argparse.Namespace
) -> list[float]:
    """Learns proverbs letter by letter and generates some; returns the losses."""
    letters = sorted(set(PROVERBS))
    codes = np.searchsorted(letters, list(PROVERBS))
    windows = np.lib.stride_tricks.sliding_window_view(codes, options.length + 1)
    model = LanguageModel(len(letters), options.width, options.layers, kind=kind)
    optimizer = metaop.optim.Adam(model.parameters(), lr=options.lr)

    def batch(number: int) -> list[metaop.Tensor]:
        return drawn_rows(windows, size=options.batch_size, seed=(options.seed, number))

    def values(network: Any, rows: metaop.Tensor) -> Values:
        tokens = rows.t()
        logits, _ = network(tokens[:-1])
        return {"loss": F.cross_entropy(logits.flatten(0, 1), tokens[1:].flatten())}

    history = Trainer(model, optimizer, batch, values, Training.of(options, clip=1.0)).fit(title)
    written = model.eval().write(int(codes[0]), options.write, *sampling(options))
    print("".join(letters[code] for code in written))
    return history["loss"]


# The options of `learn_proverbs`.
LEARNING: dict[str, Any] = {
    **{"steps": 200, "batch_size": 16, "lr": 5e-3, "width": 64, "layers": 2, "length": 32},
    **{"write": 80, "temperature": 0.0, "top_k": 0, "top_p": 1.0, "log": ""},
}


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Learns proverbs letter by letter and generates some; returns the losses."""
    return learn_proverbs("LSTM", nn.LSTM, parse_options(__doc__, arguments, **LEARNING))


if __name__ == "__main__":
    main()
