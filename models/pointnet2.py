"""PointNet++: point cloud classification by PointNets on a hierarchy of neighbourhoods.

After C. Qi, L. Yi, H. Su, L. Guibas, "PointNet++: deep hierarchical feature learning on point sets
in a metric space", 2017. Farthest point sampling chooses centroids, and ball queries their
neighbourhoods.

    python -m models.pointnet2 --steps 100
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import metaop
from metaop import nn

from .demonstration import parse_options
from .point_cloud import learn_solids
from .pointnet import head


def gather_points(x: metaop.Tensor, places: metaop.Tensor) -> metaop.Tensor:
    """The points of x (batch, channels, points) at indices (batch, …): (batch, channels, …)."""
    rows = places.reshape(len(x), 1, -1).expand(-1, x.shape[1], -1)
    return x.gather(2, rows).reshape(*x.shape[:2], *places.shape[1:])


def square_distances(first: metaop.Tensor, second: metaop.Tensor) -> metaop.Tensor:
    """Squares (batch, m, n) of the distances between points (batch, 3, m) and (batch, 3, n)."""
    return ((first.unsqueeze(3) - second.unsqueeze(2)) ** 2).sum(1)


def farthest_points(points: metaop.Tensor, count: int) -> metaop.Tensor:
    """Farthest point sampling: indices (batch, count) of points (batch, 3, points).

    It starts with point 0; each next one is the farthest from all chosen ones.
    """
    points = points.detach()
    chosen = [metaop.zeros(len(points), 1, dtype=metaop.int64, device=points.device)]
    nearest = square_distances(points, gather_points(points, chosen[0])).squeeze(2)
    for _ in range(count - 1):
        chosen.append(nearest.argmax(1, keepdim=True))
        away = square_distances(points, gather_points(points, chosen[-1])).squeeze(2)
        nearest = metaop.minimum(nearest, away)
    return metaop.cat(chosen, 1)


def ball_query(
    points: metaop.Tensor, centroids: metaop.Tensor, radius: float, count: int
) -> metaop.Tensor:
    """Ball query: indices (batch, centroids, count) of the first points within `radius`.

    If there are fewer, the first one is repeated. Points are (batch, 3, points), and `centroids`
    are some of them.
    """
    far = square_distances(centroids, points).detach() > radius**2
    order = metaop.arange(points.shape[2], device=points.device).expand_as(far)
    found = order.masked_fill(far, points.shape[2]).sort(2)[0][:, :, :count]
    return metaop.where(found == points.shape[2], found[:, :, :1], found)


class SetAbstraction(nn.Module):
    """Points (batch, 3, points) and features (batch, inputs, points) to fewer of both.

    New features are max-pooled outputs of an MLP with layers of `sizes`, one for each of `count`
    balls of `samples` points. Without a radius, one group has all points, and its centroid is the
    origin.
    """

    def __init__(
        self, count: int, radius: float | None, samples: int, inputs: int, sizes: Sequence[int]
    ) -> None:
        super().__init__()
        self.count, self.radius, self.samples = count, radius, samples
        pairs = list(itertools.pairwise((3 + inputs, *sizes)))
        self.mlp_convs = nn.ModuleList([nn.Conv2d(*pair, 1) for pair in pairs])
        self.mlp_bns = nn.ModuleList([nn.BatchNorm2d(outputs) for _, outputs in pairs])

    def forward(
        self, points: metaop.Tensor, features: metaop.Tensor | None
    ) -> tuple[metaop.Tensor, metaop.Tensor]:
        if self.radius is None:
            centroids = metaop.zeros_like(points[:, :, :1])
            x = points.unsqueeze(2)
            further = None if features is None else features.unsqueeze(2)
        else:
            centroids = gather_points(points, farthest_points(points, self.count))
            places = ball_query(points, centroids, self.radius, self.samples)
            x = gather_points(points, places) - centroids.unsqueeze(3)
            further = None if features is None else gather_points(features, places)
        x = x if further is None else metaop.cat((x, further), 1)
        for layer, norm in zip(self.mlp_convs, self.mlp_bns):
            x = metaop.relu(norm(layer(x)))
        return centroids, x.amax(3)


class PointNet2(nn.Module):
    """Points (batch, 3, points) to logits (batch, classes); `width` is 64 in the paper."""

    def __init__(
        self, num_classes: int = 40, width: int = 64, counts: tuple[int, int] = (512, 128),
        samples: tuple[int, int] = (32, 64), radii: tuple[float, float] = (0.2, 0.4),
        dropout: float = 0.4,
    ) -> None:  # fmt: skip
        super().__init__()
        middle, wide = 2 * width, 4 * width
        self.sa1 = SetAbstraction(counts[0], radii[0], samples[0], 0, (width, width, middle))
        self.sa2 = SetAbstraction(counts[1], radii[1], samples[1], middle, (middle, middle, wide))
        self.sa3 = SetAbstraction(1, None, 0, wide, (wide, 8 * width, 16 * width))
        self.head = head((16 * width, 8 * width, wide), num_classes, dropout)

    def forward(self, points: metaop.Tensor) -> metaop.Tensor:
        places, x = self.sa1(points, None)
        places, x = self.sa2(places, x)
        return self.head(self.sa3(places, x)[1].squeeze(2))


def main(arguments: Sequence[str] | None = None) -> float:
    """Learns to classify spheres, cubes and tori; returns the accuracy on new ones."""
    options = parse_options(
        __doc__, arguments, steps=100, batch_size=16, lr=2e-3, points=64, width=16
    )
    model = PointNet2(3, options.width, (24, 8), (8, 8), (0.5, 1.0), dropout=0.1)
    return learn_solids(model, options)


if __name__ == "__main__":
    main()
