"""A GPT learns proverbs letter by letter, and writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import metaop
from metaop import nn
from metaop.nn import functional as F
from models.demonstration import random_batches, train
from models.gpt import GPT, PROVERBS

CONTEXT = 48


def main(steps: int, compiled: Callable[..., Any]) -> list[float]:
    metaop.manual_seed(0)
    letters = sorted(set(PROVERBS))
    codes = np.searchsorted(letters, list(PROVERBS))
    windows = np.lib.stride_tricks.sliding_window_view(codes, CONTEXT + 1)
    batches = random_batches(windows, size=12, seed=0)
    model = GPT(len(letters), CONTEXT, 64, 3, 4, dropout=0.1)
    optimizer = metaop.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.1)
    schedule = metaop.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)

    @compiled
    def loss_of(batch: metaop.Tensor) -> metaop.Tensor:
        return F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())

    def step(number: int) -> dict[str, metaop.Tensor]:
        (batch,) = next(batches)
        loss = loss_of(batch)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        return {"loss": loss.detach()}

    losses = train(step, steps, "GPT")["loss"]
    model.eval().generate(metaop.tensor(codes[None, :8]), 32, 0.8, top_k=8)
    return losses
