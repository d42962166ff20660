"""Networks that are measured and have no file in models/ that both frameworks could run."""

from __future__ import annotations

import metaop
from metaop import nn


class GCN(nn.Module):
    """Two graph convolutions as gather and scatter; models/gcn.py says it with metaop.graph.

    Features (nodes, inputs), the ends of the edges and 1 / sqrt(degree) to logits.
    """

    def __init__(self, inputs: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.first = nn.Linear(inputs, hidden)
        self.second = nn.Linear(hidden, classes)

    def forward(
        self,
        features: metaop.Tensor,
        source: metaop.Tensor,
        target: metaop.Tensor,
        scale: metaop.Tensor,
    ) -> metaop.Tensor:
        def spread(x: metaop.Tensor) -> metaop.Tensor:
            messages = (x * scale).index_select(0, source)
            return metaop.zeros_like(x).index_add(0, target, messages) * scale

        hidden = spread(self.first(features)).relu()
        return spread(self.second(hidden))


class RecurrentClassifier(nn.Module):
    """Sequences (batch, length, inputs) to logits (batch, 10) by two layers of LSTM."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.recurrent = nn.LSTM(inputs, hidden, num_layers=2, batch_first=True)
        self.head = nn.Linear(hidden, 10)

    def forward(self, x: metaop.Tensor) -> metaop.Tensor:
        return self.head(self.recurrent(x)[0][:, -1])
