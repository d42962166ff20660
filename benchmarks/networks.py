"""Networks that are measured and have no file in models/ that both frameworks could run."""

from __future__ import annotations

import random
from typing import Any

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


class SmallConvolutions(nn.Module):
    """Images (batch, 3, height, width) of any size to logits by three strided convolutions."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for inputs, outputs in ((3, 16), (16, 32), (32, 64)):
            layers += [
                nn.Conv2d(inputs, outputs, 3, stride=2, padding=1, bias=False),
                nn.BatchNorm2d(outputs),
                nn.ReLU(),
            ]
        self.layers = nn.Sequential(*layers)
        self.head = nn.Linear(64, classes)

    def forward(self, x: metaop.Tensor) -> metaop.Tensor:
        return self.head(self.layers(x).mean((2, 3)))


class TextEncoder(nn.Module):
    """Tokens and what is padding, (batch, length) both, to logits by the first token."""

    def __init__(self, vocabulary: int, context: int, width: int, classes: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(context, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, "gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(width, classes)

    def forward(self, tokens: metaop.Tensor, padding: metaop.Tensor) -> metaop.Tensor:
        x = self.tokens(tokens) + self.positions(metaop.arange(tokens.shape[1]))
        return self.head(self.encoder(x, src_key_padding_mask=padding)[:, 0])


class DetectorHead(nn.Module):
    """Features of boxes to logits (boxes, classes) and moves of their sides (boxes, 4)."""

    def __init__(self, inputs: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Flatten(), nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU()
        )
        self.classes, self.moves = nn.Linear(hidden, classes), nn.Linear(hidden, 4)

    def forward(self, features: metaop.Tensor) -> tuple[metaop.Tensor, metaop.Tensor]:
        hidden = self.layers(features)
        return self.classes(hidden), self.moves(hidden)


class TreeNetwork(nn.Module):
    """A word, or a pair of trees, to logits (1, classes) by an LSTM over the tree (Tai 2015)."""

    def __init__(self, words: int, width: int, classes: int) -> None:
        super().__init__()
        self.width = width
        self.words = nn.Embedding(words, width)
        self.gates = nn.Linear(2 * width, 5 * width)
        self.head = nn.Linear(width, classes)

    def forward(self, tree: Any) -> metaop.Tensor:
        logits: metaop.Tensor = self.head(self._state(tree)[0])
        return logits

    def _state(self, tree: Any) -> tuple[metaop.Tensor, metaop.Tensor]:
        if isinstance(tree, int):
            return self.words(metaop.tensor([tree])), metaop.zeros(1, self.width)
        (left, kept_left), (right, kept_right) = map(self._state, tree)
        gates = self.gates(metaop.cat([left, right], 1)).chunk(5, 1)
        entered, shown, first, second = (gate.sigmoid() for gate in gates[:4])
        kept = entered * gates[4].tanh() + first * kept_left + second * kept_right
        return shown * kept.tanh(), kept


class ShallowByChance(nn.Module):
    """Features (batch, width) to logits (batch, 10), without some of the layers."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        layers = [nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(depth)]
        self.layers = nn.ModuleList(layers)
        self.head = nn.Linear(width, 10)

    def forward(self, x: metaop.Tensor, seed: int) -> metaop.Tensor:
        chance = random.Random(seed)
        for layer in self.layers:
            if chance.random() < 0.7:
                x = x + layer(x)
        logits: metaop.Tensor = self.head(x)
        return logits


class CellByCell(nn.Module):
    """Sequences (length, batch, inputs) to logits (length, batch, 10), step by step in Python."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(inputs, hidden)
        self.head = nn.Linear(hidden, 10)

    def forward(self, x: metaop.Tensor) -> metaop.Tensor:
        state = None
        outputs = []
        for step in x:
            state = self.cell(step, state)
            outputs.append(self.head(state[0]))
        return metaop.stack(outputs)
