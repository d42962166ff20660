"""Synthetic clicks with known probabilities, and the training of click predictors.

The probability of a click depends on the product of latent vectors of person and thing, on the hour
and the price, and on the pair of country and category, which no single feature predicts.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

import metaop
from metaop import nn
from metaop.nn import functional as F

from .demonstration import Checkpoint, drawn_rows, train, update

# How many values each feature has: person, thing, country, category.
SIZES = (60, 80, 6, 8)
NUMBERS = 3


class Clicks(NamedTuple):
    """Features of each row, whether there was a click, and its probability `chance`.

    `numbers` (rows, 3), float32, are dense: sine and cosine of the hour, and the price. `kinds`
    (rows, 4), int64, are categorical: person, thing, country and category.
    """

    numbers: np.ndarray
    kinds: np.ndarray
    clicked: np.ndarray
    chance: np.ndarray

    def part(self, rows: slice) -> Clicks:
        """Some of the rows."""
        return Clicks(*(column[rows] for column in self))


def draw_clicks(count: int, seed: int) -> Clicks:
    """`count` random rows of a synthetic shop, determined by `seed`."""
    random = np.random.default_rng(seed)
    tastes, traits = random.normal(size=(SIZES[0], 4)), random.normal(size=(SIZES[1], 4))
    countries, categories = (random.integers(0, size, rows) for size, rows in ((6, 60), (8, 80)))
    pairs = random.choice([-1.0, 1.0], (SIZES[2], SIZES[3]))
    people, things = random.integers(0, SIZES[0], count), random.integers(0, SIZES[1], count)
    hours, prices = random.uniform(0, 2 * np.pi, count), random.normal(size=count)
    kinds = np.stack([people, things, countries[people], categories[things]], 1)
    logit = (tastes[people] * traits[things]).sum(1) + pairs[kinds[:, 2], kinds[:, 3]]
    logit += 1.5 * np.sin(hours) - prices - 0.5
    chance = 1 / (1 + np.exp(-logit))
    numbers = np.stack([np.sin(hours), np.cos(hours), prices], 1).astype(np.float32)
    clicked = random.uniform(size=count) < chance
    return Clicks(numbers, kinds.astype(np.int64), clicked.astype(np.float32), chance)


def ranking(scores: np.ndarray, clicked: np.ndarray) -> float:
    """The area under the ROC curve: the probability that a click has the higher score.

    Ties count half. NaN if all rows have the same label.
    """
    values, places, counts = np.unique(scores, return_inverse=True, return_counts=True)
    del values
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[places]
    hits = int(clicked.sum())
    misses = len(clicked) - hits
    if hits == 0 or misses == 0:
        return float("nan")
    return float((ranks[clicked > 0].sum() - hits * (hits + 1) / 2) / (hits * misses))


def learn_clicks(
    model: nn.Module,
    options: argparse.Namespace,
    rule: Callable[..., metaop.optim.Optimizer] = metaop.optim.Adam,
) -> float:
    """Trains on most rows; returns the area under the ROC curve of the others.

    The model maps numbers and kinds to logits (rows,); `rule` makes its optimizer. The area of the
    true probabilities is printed too, as the expected upper bound.
    """
    rows = draw_clicks(options.rows, options.seed)
    kept = len(rows.clicked) // 5
    new, known = rows.part(slice(kept)), rows.part(slice(kept, None))
    optimizer = rule(model.parameters(), lr=options.lr)

    def step(number: int) -> dict[str, metaop.Tensor]:
        numbers, kinds, clicked = drawn_rows(
            *known[:3], size=options.batch_size, seed=(options.seed, number)
        )
        loss = F.binary_cross_entropy_with_logits(model(numbers, kinds), clicked)
        return {"loss": update(optimizer, loss)}

    checkpoint = Checkpoint(options.checkpoint, model=model, optimizer=optimizer)
    train(step, options.steps, type(model).__name__, checkpoint)
    with metaop.no_grad():
        scores = model.eval()(*map(metaop.from_numpy, new[:2])).numpy()
    found, most = ranking(scores, new.clicked), ranking(new.chance, new.clicked)
    print(f"area under the curve {found:.3f} of new rows; {most:.3f} with the true probabilities")
    return found
