"""DLRM: click prediction from dot products of all pairs of feature embeddings.

After M. Naumov and others, "Deep learning recommendation model for personalization and
recommendation systems", 2019. Names of parameters are those of the authors' program. Its embedding
tables have sparse gradients, so the cost of a step does not depend on their sizes. Adagrad supports
sparse and dense gradients.

    python -m models.dlrm --steps 600
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import metaop
from metaop import nn

from .clicks import NUMBERS, SIZES, learn_clicks
from .demonstration import parse_options


def layers(sizes: Sequence[int], last: bool) -> nn.Sequential:
    """Fully connected layers with ReLU in between, and after the last one if `last`."""
    found: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(sizes):
        layer = nn.Linear(inputs, outputs)
        nn.init.normal_(layer.weight, 0.0, math.sqrt(2 / (inputs + outputs)))
        nn.init.normal_(layer.bias, 0.0, math.sqrt(1 / outputs))
        found += [layer, nn.ReLU()]
    return nn.Sequential(*(found if last else found[:-1]))


class DLRM(nn.Module):
    """Dense features (batch, numbers) and categorical ones (batch, features) to logits (batch,).

    `bottom` are the widths of the MLP of dense features, `top` those of the MLP of interactions.
    In the authors' program a categorical feature is a bag of values; here it has one value.
    """

    def __init__(
        self, numbers: int, sizes: Sequence[int], bottom: Sequence[int], top: Sequence[int]
    ) -> None:
        super().__init__()
        width = bottom[-1]
        self.emb_l = nn.ModuleList(
            [nn.EmbeddingBag(size, width, mode="sum", sparse=True) for size in sizes]
        )
        for table, size in zip(self.emb_l, sizes):
            nn.init.uniform_(table.weight, -math.sqrt(1 / size), math.sqrt(1 / size))
        self.bot_l = layers((numbers, *bottom), last=True)
        vectors = len(sizes) + 1
        self.top_l = layers((width + vectors * (vectors - 1) // 2, *top, 1), last=False)

    def forward(self, numbers: metaop.Tensor, kinds: metaop.Tensor) -> metaop.Tensor:
        dense = self.bot_l(numbers)
        columns = kinds.unsqueeze(2).unbind(1)
        vectors = [dense, *(table(column) for table, column in zip(self.emb_l, columns))]
        stacked = metaop.stack(vectors, 1)
        products = stacked @ stacked.transpose(1, 2)
        below = metaop.tril_indices(len(vectors), len(vectors), -1, device=kinds.device)
        pairs = products[:, below[0], below[1]]
        return self.top_l(metaop.cat((dense, pairs), 1)).squeeze(1)


def main(arguments: Sequence[str] | None = None) -> float:
    """Learns synthetic clicks; returns the area under the ROC curve of new rows."""
    options = parse_options(
        __doc__, arguments, steps=600, batch_size=256, lr=1e-1, rows=20_000, width=8
    )
    model = DLRM(NUMBERS, SIZES, (4 * options.width, options.width), (8 * options.width, 32))
    return learn_clicks(model, options, metaop.optim.Adagrad)


if __name__ == "__main__":
    main()
