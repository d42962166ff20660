"""GIN: graph classification as powerful as message passing can be.

After K. Xu and others, "How powerful are graph neural networks?", 2018. Sums over neighbours
distinguish multisets that means and maxima confuse. An MLP follows each sum, and the readout uses
the sums over all nodes after every layer. The demonstration classifies rings, stars, trees and
random graphs by their edges alone.

    python -m models.gin --steps 60
"""

from __future__ import annotations

from collections.abc import Sequence

import networkx
import numpy as np

import metaop
from metaop import graph as graphs
from metaop import nn
from metaop.nn import functional as F

from .demonstration import Checkpoint, parse_options, train, update


class GIN(nn.Module):
    """A batch of graphs and features (nodes, inputs) to logits (graphs, classes)."""

    def __init__(self, inputs: int, hidden: int, num_classes: int, layers: int = 3) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            [
                graphs.nn.GINConv(
                    nn.Sequential(
                        nn.Linear(size, hidden),
                        nn.BatchNorm1d(hidden),
                        nn.ReLU(),
                        nn.Linear(hidden, hidden),
                        nn.ReLU(),
                    ),
                    learn_eps=True,
                )
                for size in [inputs] + [hidden] * (layers - 1)
            ]
        )
        # One readout before the first layer and one after each layer.
        self.heads = nn.ModuleList(
            [nn.Linear(size, num_classes) for size in [inputs] + [hidden] * layers]
        )

    def forward(self, graph: graphs.Graph, features: metaop.Tensor) -> metaop.Tensor:
        logits = self.heads[0](self._total(graph, features))
        for layer, head in zip(self.layers, self.heads[1:]):
            features = layer(graph, features)
            logits = logits + head(self._total(graph, features))
        return logits

    @staticmethod
    def _total(graph: graphs.Graph, features: metaop.Tensor) -> metaop.Tensor:
        with graph.local_scope():
            graph.ndata["h"] = features
            return graphs.sum_nodes(graph, "h")


def drawn_graph(kind: int, random: np.random.Generator) -> networkx.Graph:
    """A ring, a star, a tree or a random graph of 6 to 11 nodes."""
    size = int(random.integers(6, 12))
    if kind == 0:
        return networkx.cycle_graph(size)
    if kind == 1:
        return networkx.star_graph(size - 1)
    if kind == 2:
        return networkx.from_prufer_sequence(random.integers(0, size, size - 2).tolist())
    return networkx.gnm_random_graph(size, 2 * size, seed=int(random.integers(2**31)))


def drawn_graphs(count: int, random: np.random.Generator) -> tuple[graphs.Graph, np.ndarray]:
    """A batch of `count` random graphs, and their classes (count,), int64."""
    kinds = random.integers(0, 4, count)
    found = [graphs.from_networkx(drawn_graph(kind, random)) for kind in kinds]
    return graphs.batch(found), kinds


def main(arguments: Sequence[str] | None = None) -> float:
    """Learns to classify graphs; returns the accuracy on 200 new ones."""
    options = parse_options(
        __doc__, arguments, steps=60, batch_size=32, lr=1e-2, hidden=16, layers=3
    )
    model = GIN(1, options.hidden, 4, options.layers)
    optimizer = metaop.optim.Adam(model.parameters(), lr=options.lr)

    def classified(count: int, *seed: int) -> tuple[metaop.Tensor, metaop.Tensor]:
        graph, kinds = drawn_graphs(count, np.random.default_rng((options.seed, *seed)))
        return model(graph, metaop.ones(graph.num_nodes(), 1)), metaop.from_numpy(kinds)

    def step(number: int) -> dict[str, metaop.Tensor]:
        logits, kinds = classified(options.batch_size, number)
        loss = update(optimizer, F.cross_entropy(logits, kinds))
        return {"loss": loss, "accuracy": (logits.argmax(1) == kinds).float().mean()}

    checkpoint = Checkpoint(options.checkpoint, model=model, optimizer=optimizer)
    train(step, options.steps, "GIN", checkpoint)
    model.eval()
    with metaop.no_grad():
        logits, kinds = classified(200, options.steps, 1)
    accuracy = (logits.argmax(1) == kinds).float().mean().item()
    print(f"accuracy {accuracy:.3f}")
    return accuracy


if __name__ == "__main__":
    main()
