"""GCN: a graph convolutional network for node classification.

After T. Kipf and M. Welling, "Semi-supervised classification with graph convolutional networks",
2016. The demonstration is Zachary's karate club: the sides of the instructor and
of the president are known, and the network predicts those of all other members.

    python -m models.gcn --steps 100
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

import networkx
import numpy as np

import metaop
from metaop import graph as graphs
from metaop import nn
from metaop.nn import functional as F

from .demonstration import Checkpoint, parse_options, train, update


class GCN(nn.Module):
    """A graph and features (nodes, inputs) to logits (nodes, classes)."""

    def __init__(self, inputs: int, hidden: int, num_classes: int, dropout: float = 0.5) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            (
                graphs.nn.GraphConv(inputs, hidden, activation=metaop.relu),
                graphs.nn.GraphConv(hidden, num_classes),
            )
        )
        self.dropout = nn.Dropout(dropout)

    def forward(self, graph: graphs.Graph, features: metaop.Tensor) -> metaop.Tensor:
        hidden = self.layers[0](graph, features)
        return self.layers[1](graph, self.dropout(hidden))


def karate_club() -> tuple[graphs.Graph, np.ndarray]:
    """The club as a graph with self-loops, and the side that each member took."""
    club = networkx.karate_club_graph()
    sides = np.array([club.nodes[member]["club"] == "Officer" for member in club], np.int64)
    return graphs.add_self_loop(graphs.from_networkx(club)), sides


def learn_sides(
    title: str, build: Callable[[int], nn.Module], options: argparse.Namespace
) -> float:
    """Learns the sides from two labels; returns the accuracy on all members.

    `build(features)` makes a network of a graph and features (nodes, features), here one-hot.
    """
    graph, sides = karate_club()
    known = metaop.tensor([0, 33])  # the instructor and the president
    features, labels = metaop.eye(graph.num_nodes()), metaop.from_numpy(sides)
    model = build(graph.num_nodes())
    optimizer = metaop.optim.Adam(model.parameters(), lr=options.lr, weight_decay=5e-4)

    def step(number: int) -> dict[str, metaop.Tensor]:
        logits = model(graph, features)
        return {"loss": update(optimizer, F.cross_entropy(logits[known], labels[known]))}

    checkpoint = Checkpoint(options.checkpoint, model=model, optimizer=optimizer)
    train(step, options.steps, title, checkpoint)
    with metaop.no_grad():
        found = model.eval()(graph, features).argmax(1).numpy()
    accuracy = float((found == sides).mean())
    print(f"accuracy {accuracy:.3f}")
    return accuracy


def main(arguments: Sequence[str] | None = None) -> float:
    """Learns from two labels; returns the accuracy on all members."""
    options = parse_options(__doc__, arguments, steps=100, batch_size=2, lr=1e-2, hidden=16)
    return learn_sides("GCN", lambda features: GCN(features, options.hidden, 2), options)


if __name__ == "__main__":
    main()
