"""MeshCNN: triangle mesh classification by convolutions on edges and edge-collapse pooling.

After R. Hanocka and others, "MeshCNN: a network with an edge", 2019. Every edge of a closed
mesh lies in two triangles, so it has four neighbours. Parameters have the names of the authors'
program.

    python -m models.mesh_cnn --steps 60 --out runs/mesh_cnn.png
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import metaop
from metaop import nn
from metaop.errors import ArgumentError
from metaop.nn import functional as F

from .demonstration import Checkpoint, parse_options, train, update

KINDS = ("ball", "box", "cylinder", "star")


def edge_of(first: int, second: int) -> tuple[int, int]:
    """The edge between two vertices, in canonical order."""
    return (first, second) if first < second else (second, first)


class Surface:
    """A closed surface of triangles, whose edges may be collapsed.

    `faces` (faces, 3) has the vertices of each triangle, with consistent orientation; `places`
    (vertices, 3) has their positions. `edges` maps each edge to its row of `parts` (original edges,
    original edges), bool, which marks the original edges that were merged into it.
    """

    def __init__(self, faces: np.ndarray, places: np.ndarray) -> None:
        self.places = np.array(places, np.float64)
        # The third vertex of the triangle to the left of a directed edge.
        self.left: dict[tuple[int, int], int] = {}
        self.beside: dict[int, set[int]] = {}
        for a, b, c in faces.tolist():
            self.left |= {(a, b): c, (b, c): a, (c, a): b}
        for start, end in self.left:
            self.beside.setdefault(start, set()).add(end)
        ways = sorted({edge_of(*way) for way in self.left})
        self.edges = {edge: row for row, edge in enumerate(ways)}
        self.parts = np.eye(len(ways), dtype=bool)

    def copy(self) -> Surface:
        """An independent copy, whose `parts` start at the current edges."""
        other = Surface.__new__(Surface)
        other.places, other.parts = self.places.copy(), np.eye(len(self.edges), dtype=bool)
        other.left, other.edges = dict(self.left), {e: k for k, e in enumerate(self.edges)}
        other.beside = {corner: set(near) for corner, near in self.beside.items()}
        return other

    def around(self) -> np.ndarray:
        """The neighbours (edges, 4) of each edge: the next two on its left, then on its right."""
        place = {edge: number for number, edge in enumerate(self.edges)}
        rows = []
        for start, end in self.edges:
            left, right = self.left[start, end], self.left[end, start]
            ways = (end, left), (left, start), (start, right), (right, end)
            rows.append([place[edge_of(*way)] for way in ways])
        return np.array(rows, np.int64)

    def features(self) -> np.ndarray:
        """The paper's input features (5, edges), invariant to similarity transforms.

        They are the dihedral angle, the two opposite angles, and the two ratios of height to edge
        length; pairs are sorted.
        """
        ways = np.array(list(self.edges))
        left, right = (
            self.places[[self.left[a, b] for a, b in order.tolist()]]
            for order in (ways, ways[:, ::-1])
        )
        start, end = self.places[ways.T]
        along = end - start
        across = np.cross(along, left - start), np.cross(-along, right - end)
        opposite = [angle(start - corner, end - corner) for corner in (left, right)]
        heights = [np.linalg.norm(area, axis=1) / (along**2).sum(1) for area in across]
        return np.stack([np.pi - angle(*across), *np.sort(opposite, 0), *np.sort(heights, 0)])

    def collapse(self, start: int, end: int) -> bool:
        """Collapses an edge to its midpoint, which removes three edges.

        On each side two edges merge into one. Returns False and changes nothing if the surface
        would not stay a manifold.
        """
        sides = self.left[start, end], self.left[end, start]
        if self.beside[start] & self.beside[end] != set(sides) or len(self.edges) <= 6:
            return False
        own = self.edges.pop(edge_of(start, end))
        fan = [(corner, self.left[end, corner]) for corner in self.beside[end]]
        for corner, third in fan:
            for way in ((end, corner), (corner, third), (third, end)):
                del self.left[way]
        for a, b in fan:
            if start not in (a, b):
                self.left |= {(start, a): b, (a, b): start, (b, start): a}
        for corner in self.beside.pop(end) - {start}:
            row = self.edges.pop(edge_of(end, corner))
            self.beside[corner].remove(end)
            if corner in sides:
                kept = self.edges[edge_of(start, corner)]
                self.parts[kept] |= self.parts[row] | self.parts[own]
            else:
                self.edges[edge_of(start, corner)] = row
                self.beside[corner].add(start)
                self.beside[start].add(corner)
        self.beside[start].remove(end)
        self.places[start] = (self.places[start] + self.places[end]) / 2
        return True

    def pooled(self, count: int, weight: np.ndarray) -> tuple[Surface, np.ndarray]:
        """The surface reduced to `count` edges; those of smallest weight collapse first.

        Also returns the matrix (count, edges) that averages the features of merged edges.
        """
        smaller = self.copy()
        lightest = [list(self.edges)[place] for place in np.argsort(weight, kind="stable")]
        changed = True
        while changed and len(smaller.edges) > count:
            changed = False
            for edge in lightest:
                if edge in smaller.edges and len(smaller.edges) > count:
                    changed |= smaller.collapse(*edge)
        if len(smaller.edges) != count:
            raise ArgumentError(
                f"a surface of {len(self.edges)} edges was collapsed to {len(smaller.edges)}, "
                f"not to {count}",
                fix="each collapse takes three edges; a closed surface keeps at least six",
            )
        means = smaller.parts[list(smaller.edges.values())]
        return smaller, means / means.sum(1, keepdims=True)


def angle(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The angles between vectors (count, 3), in [0, π]."""
    lengths = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    return np.arccos(np.clip((first * second).sum(1) / lengths, -1, 1))


class MeshConv(nn.Module):
    """Edge features (batch, inputs, edges) to (batch, outputs, edges), by the four neighbours.

    The order of the two triangles is ambiguous, so the convolution uses symmetric functions: sums
    and absolute differences of opposite neighbours.
    """

    def __init__(self, inputs: int, outputs: int, bias: bool = True) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, (1, 5), bias=bias)

    def forward(self, x: metaop.Tensor, around: metaop.Tensor) -> metaop.Tensor:
        batch, channels, edges = x.shape
        places = around.reshape(batch, 1, 4 * edges).expand(-1, channels, -1)
        a, b, c, d = x.gather(2, places).reshape(batch, channels, edges, 4).unbind(3)
        sides = [x, (a - c).abs(), a + c, (b - d).abs(), b + d]
        return self.conv(metaop.stack(sides, 3)).squeeze(3)


class MResConv(nn.Module):
    """A mesh convolution followed by residual ones."""

    def __init__(self, inputs: int, outputs: int, skips: int) -> None:
        super().__init__()
        self.conv0 = MeshConv(inputs, outputs, bias=False)
        self.skips = skips
        for number in range(1, skips + 1):
            setattr(self, f"bn{number}", nn.BatchNorm2d(outputs))
            setattr(self, f"conv{number}", MeshConv(outputs, outputs, bias=False))

    def forward(self, x: metaop.Tensor, around: metaop.Tensor) -> metaop.Tensor:
        x = self.conv0(x, around)
        for number in range(1, self.skips + 1):
            read = getattr(self, f"bn{number}")(F.relu(x).unsqueeze(3)).squeeze(3)
            x = F.relu(getattr(self, f"conv{number}")(read, around) + x)
        return x


class MeshConvNet(nn.Module):
    """Edge features (batch, 5, edges) and surfaces to logits (batch, classes).

    Stages have `channels`, and pool to the numbers of edges in `pools`. Edges with the smallest
    squared norm of features collapse first, so the network learns what to collapse.
    """

    def __init__(
        self,
        num_classes: int,
        channels: Sequence[int] = (64, 128, 256, 256),
        pools: Sequence[int] = (600, 450, 300, 180),
        hidden: int = 100,
        skips: int = 0,
    ) -> None:
        super().__init__()
        self.pools = tuple(pools)
        for number, (inputs, outputs) in enumerate(itertools.pairwise((5, *channels))):
            setattr(self, f"conv{number}", MResConv(inputs, outputs, skips))
        for number, outputs in enumerate(channels):
            setattr(self, f"norm{number}", nn.BatchNorm2d(outputs))
        self.fc1 = nn.Linear(channels[-1], hidden)
        self.fc2 = nn.Linear(hidden, num_classes)

    def smaller(
        self, x: metaop.Tensor, surfaces: Sequence[Surface], count: int
    ) -> tuple[metaop.Tensor, list[Surface]]:
        """Mesh pooling: features and surfaces with fewer edges; merged edges are averaged."""
        weights = (x.detach() ** 2).sum(1).cpu().numpy()
        pooled = [part.pooled(count, weight) for part, weight in zip(surfaces, weights)]
        means = metaop.from_numpy(np.stack([mean for _, mean in pooled])).to(x)
        return x @ means.transpose(1, 2), [surface for surface, _ in pooled]

    def forward(self, x: metaop.Tensor, surfaces: Sequence[Surface]) -> metaop.Tensor:
        for number, count in enumerate(self.pools):
            around = np.stack([surface.around() for surface in surfaces])
            x = getattr(self, f"conv{number}")(x, metaop.from_numpy(around).to(x.device))
            x = F.relu(getattr(self, f"norm{number}")(x.unsqueeze(3)).squeeze(3))
            x, surfaces = self.smaller(x, surfaces, count)
        return self.fc2(F.relu(self.fc1(x.mean(2))))


def solid(kind: int, corners: int, random: np.random.Generator) -> Surface:
    """A random surface of one of `KINDS`, rotated, stretched and rough, with `corners` vertices.

    It has 3 * corners - 6 edges.
    """
    from scipy.spatial import ConvexHull

    # Corners on a spiral from pole to pole; the hull joins neighbours.
    height = np.clip((2 * np.arange(corners) + 1) / corners - 1, -1, 1)
    around = np.pi * (3 - np.sqrt(5)) * np.arange(corners) + random.uniform(0, 6)
    level = np.sqrt(1 - height**2)
    points = np.stack([level * np.cos(around), level * np.sin(around), height], 1)
    points += random.normal(0, 0.15 / np.sqrt(corners), points.shape)
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    faces = ConvexHull(points).simplices
    normals = np.cross(*(points[faces[:, k]] - points[faces[:, 0]] for k in (1, 2)))
    inwards = (normals * points[faces[:, 0]]).sum(1) < 0
    faces[inwards] = faces[inwards][:, ::-1]
    if kind == 1:
        points = points / np.abs(points).max(1, keepdims=True)
    elif kind == 2:
        wide = np.maximum(np.hypot(points[:, 0], points[:, 1]), np.abs(points[:, 2]))
        points = points / wide[:, None]
    elif kind == 3:
        points = points * random.choice([0.6, 1.2], (corners, 1))
    points = points * random.uniform(0.85, 1.15, 3) + random.normal(0, 0.01, points.shape)
    turn, _ = np.linalg.qr(random.normal(size=(3, 3)))
    return Surface(faces, points @ turn)


def solids(
    count: int, corners: int, random: np.random.Generator
) -> tuple[np.ndarray, list[Surface], np.ndarray]:
    """Features (count, 5, edges), surfaces and labels (count,)."""
    kinds = random.integers(0, len(KINDS), count)
    surfaces = [solid(kind, corners, random) for kind in kinds]
    features = np.stack([surface.features() for surface in surfaces])
    return features.astype(np.float32), surfaces, kinds


def draw(path: Path, surfaces: Sequence[Surface]) -> None:
    """Writes a picture of the edges of surfaces, side by side."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(
        1, len(surfaces), subplot_kw={"projection": "3d"}, figsize=(3 * len(surfaces), 3)
    )
    for place, surface in zip(axes, surfaces):
        for edge in surface.edges:
            place.plot(*surface.places[list(edge)].T, color="black", linewidth=0.6)
        place.set_title(f"{len(surface.edges)} edges", fontsize=8)
        place.set_axis_off()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def main(arguments: Sequence[str] | None = None) -> float:
    """Learns to classify balls, boxes, cylinders and stars; returns the accuracy on new ones.

    `--out` names a picture of a box before and after each pooling.
    """
    options = parse_options(
        __doc__, arguments, steps=60, batch_size=16, lr=3e-3, corners=52, width=16, out="",
    )  # fmt: skip
    edges = 3 * options.corners - 6
    pools = edges - 3 * (edges // 12), edges - 3 * (edges // 6)
    model = MeshConvNet(len(KINDS), (options.width, 2 * options.width), pools, 32, skips=1)
    optimizer = metaop.optim.AdamW(model.parameters(), lr=options.lr)
    known, _, _ = solids(64, options.corners, np.random.default_rng((options.seed, 0, 1)))
    mean, deviation = (f(known, axis=(0, 2))[:, None] for f in (np.mean, np.std))

    def read(count: int, *seed: int) -> tuple[metaop.Tensor, list[Surface], metaop.Tensor]:
        random = np.random.default_rng((options.seed, *seed))
        features, surfaces, kinds = solids(count, options.corners, random)
        inputs = metaop.from_numpy((features - mean) / deviation)
        return inputs, surfaces, metaop.from_numpy(kinds)

    def step(number: int) -> dict[str, metaop.Tensor]:
        features, surfaces, kinds = read(options.batch_size, number)
        logits = model(features, surfaces)
        loss = update(optimizer, F.cross_entropy(logits, kinds))
        return {"loss": loss, "accuracy": (logits.argmax(1) == kinds).float().mean()}

    checkpoint = Checkpoint(options.checkpoint, model=model, optimizer=optimizer)
    train(step, options.steps, "MeshCNN", checkpoint)
    features, surfaces, kinds = read(128, 0, 2)
    with metaop.no_grad():
        found = model.eval()(features, surfaces).argmax(1)
    accuracy = (found == kinds).float().mean().item()
    print(f"accuracy {accuracy:.3f} on new surfaces")
    if options.out:
        stages = [solid(1, options.corners, np.random.default_rng(options.seed))]
        for count in pools:
            weight = ((stages[-1].features() - mean) ** 2).sum(0)
            stages.append(stages[-1].pooled(count, weight)[0])
        draw(Path(options.out), stages)
    return accuracy


if __name__ == "__main__":
    main()
