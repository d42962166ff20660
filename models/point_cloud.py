"""DGCNN: point cloud classification on a graph of neighbours that each layer recomputes.

After Y. Wang and others, "Dynamic graph CNN for learning on point clouds", 2018. Names of
parameters are those of the authors' program.

    python -m models.point_cloud --steps 60
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

import numpy as np

import metaop
from metaop import nn
from metaop.nn import functional as F

from .demonstration import Checkpoint, parse_options, train, update


def nearest_neighbours(x: metaop.Tensor, k: int) -> metaop.Tensor:
    """The `k` nearest points (batch, points, k) to each point of x (batch, channels, points)."""
    x = x.detach()
    squares = (x * x).sum(1, keepdim=True)
    closeness = 2 * x.transpose(1, 2) @ x - squares - squares.transpose(1, 2)
    return closeness.topk(k, -1)[1]


def edge_features(x: metaop.Tensor, k: int) -> metaop.Tensor:
    """EdgeConv's input (neighbour - own, own): (batch, 2 channels, points, k) from x."""
    batch, channels, points = x.shape
    chosen = nearest_neighbours(x, k).reshape(batch, 1, points * k).expand(-1, channels, -1)
    neighbours = x.gather(2, chosen).reshape(batch, channels, points, k)
    own = x.unsqueeze(3).expand(-1, -1, -1, k)
    return metaop.cat((neighbours - own, own), 1)


def edge_convolution(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.LeakyReLU(0.2),
    )


class DGCNN(nn.Module):
    """Points (batch, 3, points) to logits (batch, classes); `width` is 64 in the paper."""

    def __init__(
        self, num_classes: int = 40, k: int = 20, width: int = 64, dropout: float = 0.5
    ) -> None:
        super().__init__()
        self.k = k
        self.conv1 = edge_convolution(6, width)
        self.conv2 = edge_convolution(2 * width, width)
        self.conv3 = edge_convolution(2 * width, 2 * width)
        self.conv4 = edge_convolution(4 * width, 4 * width)
        self.conv5 = nn.Sequential(
            nn.Conv1d(8 * width, 16 * width, 1, bias=False),
            nn.BatchNorm1d(16 * width),
            nn.LeakyReLU(0.2),
        )
        self.linear1 = nn.Linear(32 * width, 8 * width, bias=False)
        self.bn6 = nn.BatchNorm1d(8 * width)
        self.dp1 = nn.Dropout(dropout)
        self.linear2 = nn.Linear(8 * width, 4 * width)
        self.bn7 = nn.BatchNorm1d(4 * width)
        self.dp2 = nn.Dropout(dropout)
        self.linear3 = nn.Linear(4 * width, num_classes)

    def forward(self, points: metaop.Tensor) -> metaop.Tensor:
        x, levels = points, []
        for layer in (self.conv1, self.conv2, self.conv3, self.conv4):
            x = layer(edge_features(x, self.k)).amax(-1)
            levels.append(x)
        x = self.conv5(metaop.cat(levels, 1))
        x = metaop.cat((x.amax(2), x.mean(2)), 1)
        x = self.dp1(F.leaky_relu(self.bn6(self.linear1(x)), 0.2))
        x = self.dp2(F.leaky_relu(self.bn7(self.linear2(x)), 0.2))
        return self.linear3(x)


def solids(count: int, points: int, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Points (count, 3, points) on spheres (0), cubes (1) and tori (2), and labels (count,)."""
    directions = random.normal(size=(count, 3, points))
    sphere = directions / np.linalg.norm(directions, axis=1, keepdims=True)
    cube = directions / np.abs(directions).max(1, keepdims=True)
    around, within = random.uniform(0, 2 * np.pi, (2, count, points))
    distance = 0.8 + 0.3 * np.cos(within)
    torus = np.stack(
        [distance * np.cos(around), distance * np.sin(around), 0.3 * np.sin(within)], 1
    )
    kinds = random.integers(0, 3, count)
    chosen = np.stack([sphere, cube, torus])[kinds, np.arange(count)]
    return chosen.astype(np.float32), kinds


def learn_solids(
    model: nn.Module,
    options: argparse.Namespace,
    penalty: Callable[[], metaop.Tensor] | None = None,
) -> float:
    """Learns to classify spheres, cubes and tori; returns the accuracy on new ones.

    `penalty()`, called after the forward pass, is added to the loss.
    """
    optimizer = metaop.optim.AdamW(model.parameters(), lr=options.lr)

    def step(number: int) -> dict[str, metaop.Tensor]:
        random = np.random.default_rng((options.seed, number))
        clouds, kinds = map(metaop.from_numpy, solids(options.batch_size, options.points, random))
        logits = model(clouds)
        loss = F.cross_entropy(logits, kinds)
        if penalty is not None:
            loss = loss + penalty()
        update(optimizer, loss)
        return {"loss": loss.detach(), "accuracy": (logits.argmax(1) == kinds).float().mean()}

    checkpoint = Checkpoint(options.checkpoint, model=model, optimizer=optimizer)
    train(step, options.steps, type(model).__name__, checkpoint)
    clouds, kinds = solids(96, options.points, np.random.default_rng((options.seed, 0, 1)))
    with metaop.no_grad():
        found = model.eval()(metaop.from_numpy(clouds)).argmax(1).numpy()
    accuracy = float((found == kinds).mean())
    print(f"accuracy {accuracy:.3f} on new clouds")
    return accuracy


def main(arguments: Sequence[str] | None = None) -> float:
    """Learns to classify spheres, cubes and tori; returns the accuracy on new ones."""
    options = parse_options(
        __doc__, arguments, steps=60, batch_size=16, lr=2e-3, points=64, width=16, neighbours=8
    )
    return learn_solids(DGCNN(3, options.neighbours, options.width, dropout=0.1), options)


if __name__ == "__main__":
    main()
