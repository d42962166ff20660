"""R-GCN: a graph convolutional network with a weight matrix for each relation.

After M. Schlichtkrull and others, "Modeling relational data with graph convolutional networks",
2017. The demonstration is a random family: the network predicts the generation of people from their
relations; the generations of half of them are known.

    python -m models.rgcn --steps 60
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
from .knowledge import RELATIONS, family


class RGCN(nn.Module):
    """A graph, features (nodes, inputs) and relations (edges,), int64, to logits (nodes, classes).

    Messages are normalised by the number of a node's edges of the same relation. `bases` shares
    weights by a basis decomposition.
    """

    def __init__(
        self, inputs: int, hidden: int, num_classes: int, relations: int, bases: int | None = None
    ) -> None:
        super().__init__()
        kind = None if bases is None else "basis"
        self.layers = nn.ModuleList(
            (
                graphs.nn.RelGraphConv(
                    inputs, hidden, relations, kind, bases, activation=metaop.relu
                ),
                graphs.nn.RelGraphConv(hidden, num_classes, relations, kind, bases),
            )
        )

    def forward(
        self, graph: graphs.Graph, features: metaop.Tensor, relations: metaop.Tensor
    ) -> metaop.Tensor:
        _, destinations = graph.edges()
        pairs = relations * graph.num_nodes() + destinations
        shares = 1 / pairs.bincount()[pairs].to(features.dtype)
        for layer in self.layers:
            features = layer(graph, features, relations, shares[:, None])
        return features


def generations(facts: np.ndarray, most: int) -> np.ndarray:
    """The number of ancestors of each person, at most `most`."""
    descent = networkx.DiGraph(facts[facts[:, 1] == 0][:, ::2].tolist())
    (root,) = (person for person in descent if descent.in_degree(person) == 0)
    depths = networkx.single_source_shortest_path_length(descent, root)
    return np.array([min(depths[person], most) for person in range(len(descent))])


def main(arguments: Sequence[str] | None = None) -> float:
    """Learns the generations of half of a family; returns the accuracy on the others."""
    options = parse_options(
        __doc__, arguments, steps=60, batch_size=30, lr=2e-2, people=60, hidden=16, bases=3,
    )  # fmt: skip
    random = np.random.default_rng(options.seed)
    facts = family(options.people, random)
    labels = generations(facts, 3)
    graph = graphs.graph((facts[:, 0], facts[:, 2]), options.people)
    relations = metaop.from_numpy(facts[:, 1].copy())
    # Constant features: only the edges distinguish people.
    features = metaop.ones(options.people, 1)
    order = random.permutation(options.people)
    known, unknown = order[: options.batch_size], order[options.batch_size :]
    targets = metaop.from_numpy(labels[known])
    model = RGCN(1, options.hidden, 4, len(RELATIONS), options.bases)
    optimizer = metaop.optim.Adam(model.parameters(), lr=options.lr)

    def step(number: int) -> dict[str, metaop.Tensor]:
        logits = model(graph, features, relations)[metaop.from_numpy(known)]
        loss = update(optimizer, F.cross_entropy(logits, targets))
        return {"loss": loss, "accuracy": (logits.argmax(1) == targets).float().mean()}

    checkpoint = Checkpoint(options.checkpoint, model=model, optimizer=optimizer)
    train(step, options.steps, "R-GCN", checkpoint)
    with metaop.no_grad():
        found = model(graph, features, relations).argmax(1).numpy()
    accuracy = float((found == labels)[unknown].mean())
    print(f"accuracy {accuracy:.3f} on people without labels")
    return accuracy


if __name__ == "__main__":
    main()
