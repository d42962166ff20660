"""An LSTM learns to continue sentences; its state goes on from one piece of text to the next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import metaop
from metaop import nn
from metaop.nn import functional as F
from models.demonstration import train
from models.gpt import PROVERBS

BATCH, LENGTH, HIDDEN = 8, 16, 64


class Language(nn.Module):
    """Letters (batch, length) and a state to logits (batch, letters, length) and the next state."""

    def __init__(self, letters: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(letters, HIDDEN)
        self.recurrent = nn.LSTM(HIDDEN, HIDDEN, batch_first=True)
        self.dropout = nn.Dropout(0.2)
        self.head = nn.Linear(HIDDEN, letters)

    def forward(self, x: metaop.Tensor, state: Any) -> tuple[metaop.Tensor, Any]:
        hidden, state = self.recurrent(self.dropout(self.embedding(x)), state)
        return self.head(self.dropout(hidden)).transpose(1, 2), state


def main(steps: int, compiled: Callable[..., Any]) -> list[float]:
    metaop.manual_seed(0)
    letters = sorted(set(PROVERBS))
    codes = np.searchsorted(letters, list(PROVERBS * 4))
    rows = codes[: len(codes) // BATCH * BATCH].reshape(BATCH, -1)
    model = Language(len(letters))
    optimizer = metaop.optim.SGD(model.parameters(), lr=2.0)
    start = (metaop.zeros(1, BATCH, HIDDEN), metaop.zeros(1, BATCH, HIDDEN))
    state = start

    @compiled
    def forward(x: metaop.Tensor, y: metaop.Tensor, state: Any) -> tuple[metaop.Tensor, Any]:
        logits, state = model(x, state)
        return F.cross_entropy(logits, y), state

    def piece(number: int) -> tuple[metaop.Tensor, metaop.Tensor]:
        first = number * LENGTH % (rows.shape[1] - LENGTH)
        window = metaop.tensor(rows[:, first : first + LENGTH + 1])
        return window[:, :-1], window[:, 1:]

    def step(number: int) -> dict[str, metaop.Tensor]:
        nonlocal state
        optimizer.zero_grad()
        loss, state = forward(*piece(number), state)
        state = tuple(part.detach() for part in state)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        return {"loss": loss.detach()}

    losses = train(step, steps, "LSTM")["loss"]
    model.eval()
    with metaop.no_grad():
        held = start
        for number in range(8):
            loss, held = forward(*piece(number), held)
            losses.append(loss.item())
    return losses
