"""GraphSAGE: inductive node classification with sampled neighbourhoods.

After W. Hamilton, R. Ying, J. Leskovec, "Inductive representation learning on large graphs", 2017.
Each batch has a few nodes with sampled neighbours of two hops. The demonstration is a random graph
with communities, whose features are noisy, and predicts nodes that were not in the training graph.

    python -m models.graphsage --steps 100
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import networkx
import numpy as np

import metaop
from metaop import graph as graphs
from metaop import nn
from metaop.nn import functional as F

from .demonstration import Checkpoint, parse_options, train, update


class GraphSAGE(nn.Module):
    """A graph, or one block per layer, and features (nodes, inputs) to logits.

    Logits are (nodes, classes), for the destination nodes of the last block.
    """

    def __init__(
        self, inputs: int, hidden: int, num_classes: int, layers: int = 2, kind: str = "mean"
    ) -> None:
        super().__init__()
        sizes = [inputs] + [hidden] * (layers - 1) + [num_classes]
        self.layers = nn.ModuleList(
            [graphs.nn.SAGEConv(*pair, kind) for pair in itertools.pairwise(sizes)]
        )

    def forward(
        self, graph: graphs.Graph | Sequence[graphs.Graph], features: metaop.Tensor
    ) -> metaop.Tensor:
        parts = [graph] * len(self.layers) if isinstance(graph, graphs.Graph) else graph
        for layer, part in zip(self.layers, parts):
            features = layer(part, features)
            if layer is not self.layers[-1]:
                features = F.relu(features)
        return features


def groups(
    count: int, size: int, random: np.random.Generator
) -> tuple[graphs.Graph, np.ndarray, np.ndarray]:
    """A graph of `count` communities, noisy features (nodes, count) and labels (nodes,)."""
    seed = int(random.integers(2**31))
    network = networkx.planted_partition_graph(count, size, 0.12, 0.005, seed=seed)
    labels = np.repeat(np.arange(count), size)
    features = np.eye(count)[labels] + random.normal(0, 1.0, (count * size, count))
    return graphs.from_networkx(network), features.astype(np.float32), labels


def main(arguments: Sequence[str] | None = None) -> float:
    """Learns from half of the nodes; returns the accuracy on the others."""
    options = parse_options(
        __doc__, arguments, steps=100, batch_size=32, lr=1e-2, hidden=16, groups=4, size=60,
        neighbours=5,
    )  # fmt: skip
    random = np.random.default_rng(options.seed)
    graph, features, labels = groups(options.groups, options.size, random)
    order = random.permutation(len(labels))
    seen, unseen = np.array_split(order, 2)
    # The training graph has no test nodes and none of their edges.
    known = graphs.node_subgraph(graph, np.sort(seen))
    inputs, targets = features[np.sort(seen)], labels[np.sort(seen)]
    sampler = graphs.sampling.NeighborSampler([options.neighbours, options.neighbours])
    model = GraphSAGE(options.groups, options.hidden, options.groups)
    optimizer = metaop.optim.Adam(model.parameters(), lr=options.lr)

    def step(number: int) -> dict[str, metaop.Tensor]:
        drawn = np.random.default_rng((options.seed, number))
        seeds = drawn.choice(len(targets), options.batch_size, replace=False)
        sources, destinations, blocks = sampler.sample_blocks(known, seeds)
        logits = model(blocks, metaop.from_numpy(inputs[sources.numpy()]))
        wanted = metaop.from_numpy(targets[destinations.numpy()])
        loss = update(optimizer, F.cross_entropy(logits, wanted))
        return {"loss": loss, "accuracy": (logits.argmax(1) == wanted).float().mean()}

    checkpoint = Checkpoint(options.checkpoint, model=model, optimizer=optimizer)
    train(step, options.steps, "GraphSAGE", checkpoint)
    with metaop.no_grad():
        found = model.eval()(graph, metaop.from_numpy(features)).argmax(1).numpy()
    accuracy = float((found == labels)[unseen].mean())
    print(f"accuracy {accuracy:.3f} on unseen nodes")
    return accuracy


if __name__ == "__main__":
    main()
