"""Wide & Deep: click prediction by a linear model of crossed features plus an MLP.

After H.-T. Cheng and others, "Wide & deep learning for recommender systems", 2016. The wide part is
linear in features and in crossed pairs of them; the deep part reads embeddings.

    python -m models.wide_deep --steps 600
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import metaop
from metaop import nn

from .clicks import NUMBERS, SIZES, learn_clicks
from .demonstration import parse_options


class WideDeep(nn.Module):
    """Dense features (batch, numbers) and categorical ones (batch, features) to logits (batch,).

    `sizes` are the numbers of values of the categorical features; `crossed` has the pairs of
    features to cross: each pair of their values has its own weight.
    """

    def __init__(
        self,
        numbers: int,
        sizes: Sequence[int],
        crossed: Sequence[tuple[int, int]],
        width: int = 8,
        hidden: Sequence[int] = (64, 32),
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.sizes, self.crossed = tuple(sizes), tuple(crossed)
        pairs = [sizes[first] * sizes[second] for first, second in crossed]
        self.wide = nn.ModuleList([nn.Embedding(size, 1) for size in (*sizes, *pairs)])
        for table in self.wide:
            nn.init.zeros_(table.weight)
        self.embeddings = nn.ModuleList([nn.Embedding(size, width) for size in sizes])
        layers: list[nn.Module] = []
        for inputs, outputs in itertools.pairwise((numbers + width * len(sizes), *hidden)):
            layers += [nn.Linear(inputs, outputs), nn.ReLU(), nn.Dropout(dropout)]
        self.deep = nn.Sequential(*layers, nn.Linear(hidden[-1], 1))

    def forward(self, numbers: metaop.Tensor, kinds: metaop.Tensor) -> metaop.Tensor:
        columns = list(kinds.unbind(1))
        pairs = [
            columns[first] * self.sizes[second] + columns[second] for first, second in self.crossed
        ]
        wide = [table(column) for table, column in zip(self.wide, (*columns, *pairs))]
        read = [table(column) for table, column in zip(self.embeddings, columns)]
        deep = self.deep(metaop.cat((numbers, *read), 1))
        return (metaop.cat(wide, 1).sum(1, keepdim=True) + deep).squeeze(1)


def main(arguments: Sequence[str] | None = None) -> float:
    """Learns synthetic clicks; returns the area under the ROC curve of new rows."""
    options = parse_options(
        __doc__, arguments, steps=600, batch_size=256, lr=1e-2, rows=20_000, width=8
    )
    # Person by category, country by thing, country by category.
    crossed = (0, 3), (2, 1), (2, 3)
    return learn_clicks(WideDeep(NUMBERS, SIZES, crossed, options.width), options)


if __name__ == "__main__":
    main()
