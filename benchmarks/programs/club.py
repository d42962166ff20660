"""A graph network tells the two halves of Zachary's karate club from one member of each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import networkx
import numpy as np

import metaop
from metaop import nn
from metaop.nn import functional as F
from models.demonstration import train, update


class GraphNetwork(nn.Module):
    """Features (nodes, inputs) and normalised edges (nodes, nodes) to logits (nodes, 2)."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(inputs, 16), nn.Linear(16, 2)

    def forward(self, x: metaop.Tensor, edges: metaop.Tensor) -> metaop.Tensor:
        hidden = F.dropout(F.relu(edges @ self.first(x)), 0.5, self.training)
        return edges @ self.second(hidden)


def main(steps: int, compiled: Callable[..., Any]) -> list[float]:
    metaop.manual_seed(0)
    club = networkx.karate_club_graph()
    edges = networkx.to_numpy_array(club, weight=None) + np.eye(len(club))
    scale = edges.sum(1) ** -0.5
    edges = metaop.tensor((edges * scale * scale[:, None]).astype(np.float32))
    halves = metaop.tensor([int(club.nodes[k]["club"] == "Officer") for k in club])
    known, features = metaop.tensor([0, 33]), metaop.eye(len(club))
    model = GraphNetwork(len(club))
    optimizer = metaop.optim.Adam(model.parameters(), lr=0.02, weight_decay=5e-4)

    @compiled
    def loss_of() -> metaop.Tensor:
        return F.cross_entropy(model(features, edges)[known], halves[known])

    def step(number: int) -> dict[str, metaop.Tensor]:
        model.train()
        loss = update(optimizer, loss_of())
        model.eval()
        with metaop.no_grad():
            hits = (model(features, edges).argmax(1) == halves).float().mean()
        return {"loss": loss, "accuracy": hits}

    return train(step, steps, "GCN")["loss"]
