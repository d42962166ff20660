"""PointNet: point cloud classification by a shared MLP and a global max-pooling.

After C. Qi, H. Su, K. Mo, L. Guibas, "PointNet: deep learning on point sets for 3D classification
and segmentation", 2016. Two T-Nets predict transforms of the points and of their features.
Max-pooling over the points makes the result independent of their order.

    python -m models.pointnet --steps 100
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import metaop
from metaop import nn

from .demonstration import parse_options
from .point_cloud import learn_solids


def dense(sizes: Sequence[int], last: bool = True) -> nn.Sequential:
    """A shared MLP: (batch, sizes[0], points) to (batch, sizes[-1], points)."""
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(sizes):
        layers += [nn.Conv1d(inputs, outputs, 1), nn.BatchNorm1d(outputs), nn.ReLU()]
    return nn.Sequential(*(layers if last else layers[:-1]))


def head(sizes: Sequence[int], num_classes: int, dropout: float = 0.0) -> nn.Sequential:
    """Fully connected layers: (batch, sizes[0]) to (batch, num_classes)."""
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), nn.BatchNorm1d(outputs), nn.ReLU()]
    return nn.Sequential(*layers, nn.Dropout(dropout), nn.Linear(sizes[-1], num_classes))


class TNet(nn.Module):
    """Points (batch, size, points) to transforms (batch, size, size) near the identity."""

    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        self.size = size
        self.points = dense((size, width, 2 * width, 16 * width))
        self.cloud = head((16 * width, 8 * width, 4 * width), size * size)

    def forward(self, x: metaop.Tensor) -> metaop.Tensor:
        found = self.cloud(self.points(x).amax(2)).view(-1, self.size, self.size)
        return found + metaop.eye(self.size, dtype=x.dtype, device=x.device)


class PointNet(nn.Module):
    """Points (batch, 3, points) to logits (batch, classes); `width` is 64 in the paper.

    `transform` (batch, width, width), the last feature transform, is kept for `regularisation`.
    """

    transform: metaop.Tensor

    def __init__(self, num_classes: int = 40, width: int = 64, dropout: float = 0.3) -> None:
        super().__init__()
        self.input_transform = TNet(3, width)
        self.first = dense((3, width))
        self.feature_transform = TNet(width, width)
        self.then = dense((width, 2 * width, 16 * width), last=False)
        self.head = head((16 * width, 8 * width, 4 * width), num_classes, dropout)

    def forward(self, points: metaop.Tensor) -> metaop.Tensor:
        x = self.first(self.input_transform(points).transpose(1, 2) @ points)
        self.transform = self.feature_transform(x)
        return self.head(self.then(self.transform.transpose(1, 2) @ x).amax(2))

    def regularisation(self) -> metaop.Tensor:
        """The distance of the last feature transforms from orthogonal ones: |A Aᵀ - I|."""
        product = self.transform @ self.transform.transpose(1, 2)
        identity = metaop.eye(product.shape[-1], dtype=product.dtype, device=product.device)
        return (product - identity).flatten(1).norm(2, dim=1).mean()


def main(arguments: Sequence[str] | None = None) -> float:
    """Learns to classify spheres, cubes and tori; returns the accuracy on new ones."""
    options = parse_options(
        __doc__, arguments, steps=100, batch_size=16, lr=2e-3, points=64, width=16
    )
    model = PointNet(3, options.width, dropout=0.1)
    return learn_solids(model, options, lambda: 0.001 * model.regularisation())


if __name__ == "__main__":
    main()
