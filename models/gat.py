"""GAT: a graph network that weights neighbours by attention.

After P. Veličković and others, "Graph attention networks", 2017. The demonstration is that of
gcn.py.

    python -m models.gat --steps 100
"""

from __future__ import annotations

from collections.abc import Sequence

import metaop
from metaop import graph as graphs
from metaop import nn
from metaop.nn import functional as F

from .demonstration import parse_options
from .gcn import learn_sides


class GAT(nn.Module):
    """A graph and features (nodes, inputs) to logits (nodes, classes).

    The heads of the first layer are concatenated, those of the last one averaged.
    """

    def __init__(
        self, inputs: int, hidden: int, num_classes: int, heads: int = 8, dropout: float = 0.6
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            (
                graphs.nn.GATConv(inputs, hidden, heads, dropout, dropout, activation=F.elu),
                graphs.nn.GATConv(heads * hidden, num_classes, 1, dropout, dropout),
            )
        )

    def forward(self, graph: graphs.Graph, features: metaop.Tensor) -> metaop.Tensor:
        hidden = self.layers[0](graph, features).flatten(1)
        return self.layers[1](graph, hidden).mean(1)


def main(arguments: Sequence[str] | None = None) -> float:
    """Learns from two labels; returns the accuracy on all members."""
    options = parse_options(
        __doc__, arguments, steps=100, batch_size=2, lr=1e-2, hidden=8, heads=4, dropout=0.3,
    )  # fmt: skip

    def build(features: int) -> GAT:
        return GAT(features, options.hidden, 2, options.heads, options.dropout)

    return learn_sides("GAT", build, options)


if __name__ == "__main__":
    main()
