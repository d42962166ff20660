"""Layered graph drawing: places boxes in layers so that every edge leads down and crosses no box.

A box is below everything that it depends on (longest paths); within a layer, boxes are ordered
by the mean position of their neighbours. An edge that crosses a layer has its own position there,
so that it runs between boxes; between two layers there are only edges.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

Point = tuple[float, float]
Edge = tuple[int, int]

# Pixels between neighbours in a layer, between layers (minimum and maximum), and for an edge.
_APART, _GAP, _LARGEST_GAP, _LANE = 14.0, 26.0, 80.0, 4.0
_SWEEPS = 6


class Layout(NamedTuple):
    """The size of a picture, the upper left corner of each box, and the corners of each edge.

    An edge goes straight down from its first corner to the second, in a curve to the third,
    straight down to the fourth, and so on; it ends at the last corner.
    """

    width: float
    height: float
    corners: list[Point]
    routes: dict[Edge, list[Point]]


def depths(count: int, edges: Sequence[Edge]) -> list[int]:
    """The layer of each box: below all its predecessors; the graph must be acyclic.

    A box moves down to just above its successors if that lengthens no more edges than it shortens.
    """
    found = [0] * count
    above = _neighbours(count, edges, 1)
    below = _neighbours(count, edges, 0)
    waiting = [len(sources) for sources in above]
    ready = [box for box in range(count) if not above[box]]
    for box in ready:
        for target in below[box]:
            found[target] = max(found[target], found[box] + 1)
            waiting[target] -= 1
            if not waiting[target]:
                ready.append(target)
    for box in reversed(ready):
        if below[box] and len(above[box]) <= len(below[box]):
            found[box] = min(found[target] for target in below[box]) - 1
    return found


def layered(sizes: Sequence[Point], edges: Sequence[Edge], layers: Sequence[int]) -> Layout:
    """Places boxes of these widths and heights in `layers`; `edges` lead from box to box, down."""
    if not sizes:
        return Layout(0.0, 0.0, [], {})
    depth = list(layers)
    widths = [width for width, _ in sizes]
    chains: dict[Edge, list[int]] = {}
    for source, target in edges:
        chain = [source]
        for passed in range(depth[source] + 1, depth[target]):
            chain.append(len(depth))
            depth.append(passed)
            widths.append(_LANE)
        chains[source, target] = [*chain, target]
    steps = [step for chain in chains.values() for step in pairwise(chain)]
    rows: list[list[int]] = [[] for _ in range(max(depth) + 1)]
    for item, row in enumerate(depth):
        rows[row].append(item)
    above, below = _neighbours(len(depth), steps, 1), _neighbours(len(depth), steps, 0)
    _order(rows, above, below)
    middles = _middles(rows, above, below, widths, len(sizes))
    left = min(middle - width / 2 for middle, width in zip(middles, widths))
    middles = [middle - left for middle in middles]
    leaving, arriving = _ports(steps, middles, widths)
    tops, bottoms = _heights(rows, sizes, steps, depth, leaving, arriving)
    corners = [(middles[box] - widths[box] / 2, tops[depth[box]]) for box in range(len(sizes))]
    routes = {}
    for edge, chain in chains.items():
        route: list[Point] = []
        for first, second in pairwise(chain):
            start = tops[depth[first]] + (sizes[first][1] if first < len(sizes) else 0.0)
            x = leaving[first, second]
            route += [(x, start), (x, bottoms[depth[first]])]
            route.append((arriving[first, second], tops[depth[second]]))
        routes[edge] = _in_pairs(route)
    width = max(middle + width / 2 for middle, width in zip(middles, widths))
    return Layout(width, bottoms[-1], corners, routes)


def _in_pairs(route: list[Point]) -> list[Point]:
    """A route with exactly two corners per straight part through a layer."""
    found = route[:2]
    for position in range(2, len(route) - 1, 3):
        # Enter at the top of the layer, and continue to its bottom.
        found += [route[position], route[position + 2]]
    return [*found, route[-1]]


def _neighbours(count: int, edges: Sequence[Edge], end: int) -> list[list[int]]:
    """For each box, the opposite ends of the edges whose first (0) or second (1) end it is."""
    found: list[list[int]] = [[] for _ in range(count)]
    for edge in edges:
        found[edge[end]].append(edge[1 - end])
    return found


def _order(rows: list[list[int]], above: list[list[int]], below: list[list[int]]) -> None:
    """Sorts each layer by the mean position of its neighbours, sweeping down and up again."""
    place: dict[int, float] = {}

    def note(row: list[int]) -> None:
        place.update((item, (k + 0.5) / len(row)) for k, item in enumerate(row))

    for row in rows:
        note(row)
    for sweep in range(_SWEEPS):
        near = above if sweep % 2 == 0 else below
        for row in rows if sweep % 2 == 0 else reversed(rows):
            means = {
                item: sum(place[one] for one in near[item]) / len(near[item])
                if near[item]
                else place[item]
                for item in row
            }
            row.sort(key=means.__getitem__)
            note(row)


def _middles(
    rows: list[list[int]],
    above: list[list[int]],
    below: list[list[int]],
    widths: Sequence[float],
    boxes: int,
) -> list[float]:
    """The centre of each item: near its neighbours, but ordered and separated in its layer."""
    found = [0.0] * len(widths)
    for sweep in range(_SWEEPS + 1):
        for row in rows if sweep % 2 == 0 else reversed(rows):
            near = [
                (above[item] if sweep % 2 == 0 else below[item])
                if sweep < _SWEEPS
                else [*above[item], *below[item]]
                for item in row
            ]
            wanted = [
                sum(found[one] for one in ones) / len(ones) if ones else found[item]
                for item, ones in zip(row, near)
            ]
            # Keep long edges straight where possible.
            weights = [1.0 if item < boxes else 4.0 for item in row]
            for item, middle in zip(row, _apart(wanted, weights, [widths[one] for one in row])):
                found[item] = middle
    return found


def _apart(
    wanted: Sequence[float], weights: Sequence[float], widths: Sequence[float]
) -> list[float]:
    """The nearest positions (least squares) at which neighbours of these widths do not touch."""
    shifts, position = [], 0.0
    for k, width in enumerate(widths):
        position += (widths[k - 1] + width) / 2 + _APART if k else 0.0
        shifts.append(position)
    # Without their shifts, positions need only increase: neighbours that do not are pooled.
    pools: list[tuple[float, float, int]] = []
    for place, weight, shift in zip(wanted, weights, shifts):
        mean, mass, members = place - shift, weight, 1
        while pools and pools[-1][0] >= mean:
            before, other, count = pools.pop()
            mean = (mean * mass + before * other) / (mass + other)
            mass, members = mass + other, members + count
        pools.append((mean, mass, members))
    pooled = [mean for mean, _, members in pools for _ in range(members)]
    return [place + shift for place, shift in zip(pooled, shifts)]


def _ports(
    steps: Sequence[Edge], middles: Sequence[float], widths: Sequence[float]
) -> tuple[dict[Edge, float], dict[Edge, float]]:
    """Where each step leaves its upper and enters its lower end: side by side, in order."""
    leaving: dict[int, list[Edge]] = {}
    arriving: dict[int, list[Edge]] = {}
    for step in steps:
        leaving.setdefault(step[0], []).append(step)
        arriving.setdefault(step[1], []).append(step)
    found: list[dict[Edge, float]] = []
    for ends, far in ((leaving, 1), (arriving, 0)):
        places: dict[Edge, float] = {}
        for item, several in ends.items():
            several.sort(key=lambda step: middles[step[far]])
            for k, step in enumerate(several):
                share = (k + 1) / (len(several) + 1) - 0.5
                places[step] = middles[item] + share * widths[item]
        found.append(places)
    return found[0], found[1]


def _heights(
    rows: list[list[int]],
    sizes: Sequence[Point],
    steps: Sequence[Edge],
    depth: Sequence[int],
    leaving: dict[Edge, float],
    arriving: dict[Edge, float],
) -> tuple[list[float], list[float]]:
    """The upper and the lower end of each layer; longer edges need more space between layers."""
    gaps = [_GAP] * len(rows)
    for step in steps:
        aside = abs(leaving[step] - arriving[step])
        row = depth[step[0]]
        gaps[row] = max(gaps[row], min(_GAP + aside / 12, _LARGEST_GAP))
    tops, bottoms, at = [], [], 0.0
    for members, gap in zip(rows, gaps):
        tops.append(at)
        bottoms.append(at + max((sizes[k][1] for k in members if k < len(sizes)), default=0.0))
        at = bottoms[-1] + gap
    return tops, bottoms
