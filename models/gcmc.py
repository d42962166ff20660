"""GCMC: matrix completion with a graph autoencoder of users and items.

After R. van den Berg, T. Kipf, M. Welling, "Graph convolutional matrix completion", 2017. Each
rating level has its own message weights. The demonstration has synthetic ratings, of which some are
held out.

    python -m models.gcmc --steps 300
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import metaop
from metaop import nn
from metaop.nn import functional as F

from .demonstration import Checkpoint, parse_options, train, update


class GCMC(nn.Module):
    """Normalised adjacency matrices to logits (people, things, ratings) of all pairs.

    `links` (ratings, people, things) are those of `links_of`. Input features are one-hot. Weights
    are shared between levels by sums: those of a level include all lower ones. The decoder is
    bilinear, with `bases` basis matrices.
    """

    def __init__(
        self, people: int, things: int, ratings: int, hidden: int = 64, width: int = 16,
        bases: int = 2, dropout: float = 0.3,
    ) -> None:  # fmt: skip
        super().__init__()
        self.dropout = dropout
        self.people = nn.Parameter(metaop.empty(ratings, people, hidden))
        self.things = nn.Parameter(metaop.empty(ratings, things, hidden))
        self.person = nn.Linear(hidden, width, bias=False)
        self.thing = nn.Linear(hidden, width, bias=False)
        self.pairs = nn.Parameter(metaop.empty(bases, width, width))
        self.shares = nn.Parameter(metaop.empty(ratings, bases))
        for table in (self.people, self.things, self.pairs, self.shares):
            nn.init.xavier_uniform_(table)

    def forward(self, links: metaop.Tensor) -> metaop.Tensor:
        # Node dropout of the paper, here per message.
        links = F.dropout(links, self.dropout, self.training)
        rated = F.relu((links @ self.things.cumsum(0)).sum(0))
        raters = F.relu((links.transpose(1, 2) @ self.people.cumsum(0)).sum(0))
        person, thing = self.person(rated), self.thing(raters)
        found = person @ self.pairs @ thing.t()
        return metaop.einsum("rb,bpt->ptr", self.shares, found)


def links_of(rows: np.ndarray, people: int, things: int, ratings: int) -> np.ndarray:
    """Rows (count, 3) of person, thing and rating as matrices (ratings, people, things).

    The normalisation is symmetric: 1 / sqrt(degree of the person * degree of the thing).
    """
    links = np.zeros((ratings, people, things))
    links[rows[:, 2], rows[:, 0], rows[:, 1]] = 1
    given, got = links.sum((0, 2)), links.sum((0, 1))
    scale = np.sqrt(np.maximum(given, 1)[:, None] * np.maximum(got, 1))
    return (links / scale).astype(np.float32)


def made_up(people: int, things: int, share: float, random: np.random.Generator) -> np.ndarray:
    """Synthetic rows (count, 3), int64, with ratings from 0 to 4.

    They are rounded from a low-rank matrix with biases and normal noise of deviation 0.4.
    """
    tastes, traits = random.normal(size=(people, 2)), random.normal(size=(things, 2))
    liking = 2 + 0.7 * tastes @ traits.T + 0.6 * random.normal(size=things)
    liking += 0.4 * random.normal(size=liking.shape)
    rated = np.argwhere(random.uniform(size=liking.shape) < share)
    ratings = liking[tuple(rated.T)].round().clip(0, 4)
    return np.concatenate([rated, ratings[:, None]], 1).astype(np.int64)


def main(arguments: Sequence[str] | None = None) -> float:
    """Learns most ratings; returns the root mean squared error of held-out ones."""
    options = parse_options(
        __doc__, arguments, steps=300, batch_size=2048, lr=3e-2, people=100, things=80, share=0.4,
        hidden=32,
    )  # fmt: skip
    random = np.random.default_rng(options.seed)
    rows = random.permutation(made_up(options.people, options.things, options.share, random))
    hidden, known = np.split(rows, [len(rows) // 10])
    links = metaop.from_numpy(links_of(known, options.people, options.things, 5))
    model = GCMC(options.people, options.things, 5, options.hidden)
    optimizer = metaop.optim.Adam(model.parameters(), lr=options.lr)

    def step(number: int) -> dict[str, metaop.Tensor]:
        drawn = np.random.default_rng((options.seed, number))
        person, thing, rating = metaop.from_numpy(
            known[drawn.integers(0, len(known), options.batch_size)]
        ).unbind(1)
        return {"loss": update(optimizer, F.cross_entropy(model(links)[person, thing], rating))}

    checkpoint = Checkpoint(options.checkpoint, model=model, optimizer=optimizer)
    train(step, options.steps, "GCMC", checkpoint)
    with metaop.no_grad():
        expected = (model.eval()(links).softmax(2) * metaop.arange(5)).sum(2).numpy()

    def error(guesses: np.ndarray | float) -> float:
        return float(np.sqrt(np.mean((guesses - hidden[:, 2]) ** 2)))

    found = error(expected[hidden[:, 0], hidden[:, 1]])
    print(f"error {found:.3f} of held-out ratings; {error(known[:, 2].mean()):.3f} with their mean")
    return found


if __name__ == "__main__":
    main()
