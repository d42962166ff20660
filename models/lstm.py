"""LSTM: a recurrent network that predicts the next letter of a text.

After S. Hochreiter and J. Schmidhuber, "Long short-term memory", 1997, and W. Zaremba, I.
Sutskever, O. Vinyals, "Recurrent neural network regularization", 2014.

    python -m models.lstm --steps 200
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import metaop
from metaop import nn
from metaop.nn import functional as F

from .demonstration import parse_options, random_batches, train
from .gpt import PROVERBS

State = tuple[metaop.Tensor, metaop.Tensor]


class LanguageModel(nn.Module):
    """Tokens (length, batch) to logits (length, batch, vocabulary), with a state to go on from."""

    def __init__(
        self, vocabulary: int, width: int = 200, layers: int = 2, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.drop = nn.Dropout(dropout)
        self.encoder = nn.Embedding(vocabulary, width)
        self.rnn = nn.LSTM(width, width, layers, dropout=dropout)
        self.decoder = nn.Linear(width, vocabulary)
        nn.init.uniform_(self.encoder.weight, -0.1, 0.1)
        nn.init.uniform_(self.decoder.weight, -0.1, 0.1)
        nn.init.zeros_(self.decoder.bias)

    def forward(
        self, tokens: metaop.Tensor, state: State | None = None
    ) -> tuple[metaop.Tensor, State]:
        outputs, state = self.rnn(self.drop(self.encoder(tokens)), state)
        return self.decoder(self.drop(outputs)), state

    def write(self, token: int, count: int) -> list[int]:
        """The likeliest continuation of a token, letter by letter."""
        written, state = [token], None
        with metaop.no_grad():
            for _ in range(count):
                logits, state = self(metaop.tensor([[written[-1]]]), state)
                written.append(int(logits.argmax().item()))
        return written


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Learns proverbs letter by letter and writes some; returns the losses."""
    options = parse_options(
        __doc__,
        arguments,
        steps=200,
        batch_size=16,
        lr=5e-3,
        width=64,
        layers=2,
        length=32,
        write=80,
    )
    letters = sorted(set(PROVERBS))
    codes = np.searchsorted(letters, list(PROVERBS))
    windows = np.lib.stride_tricks.sliding_window_view(codes, options.length + 1)
    batches = random_batches(windows, size=options.batch_size, seed=options.seed)
    model = LanguageModel(len(letters), options.width, options.layers)
    optimizer = metaop.optim.Adam(model.parameters(), lr=options.lr)

    def step(number: int) -> dict[str, metaop.Tensor]:
        tokens = next(batches)[0].t()
        logits, _ = model(tokens[:-1])
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return {"loss": loss.detach()}

    history = train(step, options.steps, "LSTM")
    print("".join(letters[code] for code in model.eval().write(int(codes[0]), options.write)))
    return history["loss"]


if __name__ == "__main__":
    main()
