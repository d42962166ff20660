"""SGC: a linear classifier of features averaged over several hops.

After F. Wu and others, "Simplifying graph convolutional networks", 2019: GCN without
nonlinearities. The demonstration is that of gcn.py.

    python -m models.sgc --steps 100
"""

from __future__ import annotations

from collections.abc import Sequence

import metaop
from metaop import graph as graphs
from metaop import nn

from .demonstration import parse_options
from .gcn import learn_sides


class SGC(nn.Module):
    """A graph and features (nodes, inputs) to logits (nodes, classes).

    Features are propagated over `hops` edges.
    """

    def __init__(self, inputs: int, num_classes: int, hops: int = 2) -> None:
        super().__init__()
        self.spread = graphs.nn.GraphConv(inputs, inputs, weight=False, bias=False)
        self.fc = nn.Linear(inputs, num_classes)
        self.hops = hops

    def forward(self, graph: graphs.Graph, features: metaop.Tensor) -> metaop.Tensor:
        for _ in range(self.hops):
            features = self.spread(graph, features)
        return self.fc(features)


def main(arguments: Sequence[str] | None = None) -> float:
    """Learns from two labels; returns the accuracy on all members."""
    options = parse_options(__doc__, arguments, steps=100, batch_size=2, lr=5e-2, hops=2)
    return learn_sides("SGC", lambda features: SGC(features, 2, options.hops), options)


if __name__ == "__main__":
    main()
