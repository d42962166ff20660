"""Functions of feature tensors on the edges of a graph."""

from __future__ import annotations

from typing import Any

import numpy as np

from metaop.errors import ArgumentError, ShapeError
from metaop.graph.built_in import combine
from metaop.graph.core import Graph, node_numbers
from metaop.graph.message_passing import segment_reduce as reduce_numbered
from metaop.graph.structure import Structure
from metaop.tensor.core import Tensor
from metaop.tensor.functions.creation import from_numpy
from metaop.unified_graph.tensor_type import Device

_REDUCERS = {"sum": "add", "mean": "mean", "prod": "mul", "max": "amax", "min": "amin"}


def edge_softmax(graph: Graph, logits: Tensor, eids: Any = None, norm_by: str = "dst") -> Tensor:
    """The softmax of `logits` (edges, …) over the edges that enter the same node.

    The shape stays the same. `norm_by="src"` normalises over the edges that leave a node. `eids`
    are the edges to which the rows belong.

    >>> g = metaop.graph.graph(([0, 1, 0], [2, 2, 1]))
    >>> metaop.graph.edge_softmax(g, metaop.zeros(3))
    tensor([0.5000, 0.5000, 1.0000])
    """
    if norm_by not in ("dst", "src"):
        raise ArgumentError(f"edge_softmax: norm_by must be 'dst' or 'src', got {norm_by!r}")
    structure = graph.structure if norm_by == "dst" else graph.structure.reverse()
    starts = None
    if eids is None:
        numbers = structure.tensor("destination", graph.device)
        sizes = structure.tensor("in_degrees", graph.device)
        starts = _starts(structure, graph.device)
    else:
        ends = structure.destination[node_numbers(eids)]
        counts = np.bincount(ends, minlength=structure.count)
        numbers, sizes = (from_numpy(x).to(device=graph.device) for x in (ends, counts))
    if logits.shape[0] != len(numbers):
        raise ShapeError(
            f"edge_softmax: logits {list(logits.shape)} must have a row for each of the "
            f"{len(numbers)} edges"
        )
    # The maximum only keeps the exponential in range, so it needs no gradient.
    largest = reduce_numbered(logits.detach(), numbers, sizes, starts, "amax")
    weights = (logits - largest.index_select(0, numbers)).exp()
    total = reduce_numbered(weights, numbers, sizes, starts, "add")
    return weights / total.index_select(0, numbers)


def gsddmm(
    g: Graph, op: str, lhs: Tensor, rhs: Tensor, lhs_target: str = "u", rhs_target: str = "v"
) -> Tensor:
    """An operator (add, sub, mul, div, dot, copy_lhs, copy_rhs) on features of both ends.

    The targets say where the features are: "u" (sources), "v" (destinations) or "e" (edges).
    """

    def on_edges(value: Tensor, target: str) -> Tensor:
        if target == "e":
            return value
        name = {"u": "source", "v": "destination"}[target]
        return value.index_select(0, g.structure.tensor(name, g.device))

    if op == "copy_lhs":
        return on_edges(lhs, lhs_target)
    if op == "copy_rhs":
        return on_edges(rhs, rhs_target)
    return combine(op, on_edges(lhs, lhs_target), on_edges(rhs, rhs_target))


def gspmm(
    g: Graph, op: str, reduce_op: str, lhs_data: Tensor | None, rhs_data: Tensor | None
) -> Tensor:
    """Messages `op(lhs_data of the source, rhs_data of the edge)` reduced at destinations."""
    values = gsddmm(g, op, lhs_data, rhs_data, "u", "e")  # type: ignore[arg-type]
    numbers = g.structure.tensor("destination", g.device)
    sizes = g.structure.tensor("in_degrees", g.device)
    starts = _starts(g.structure, g.device)
    return reduce_numbered(values, numbers, sizes, starts, _REDUCERS[reduce_op])


def _starts(structure: Structure, device: Device) -> Tensor | None:
    """Where the edges of each destination begin, if they are sorted by destination."""
    return structure.tensor("in_starts", device) if structure.is_sorted else None


def copy_u_sum(g: Graph, x: Tensor) -> Tensor:
    """The sum of the features of the neighbours."""
    return gspmm(g, "copy_lhs", "sum", x, None)


def u_mul_e_sum(g: Graph, x: Tensor, y: Tensor) -> Tensor:
    """The sum of the features of the neighbours, each weighted by its edge."""
    return gspmm(g, "mul", "sum", x, y)


def segment_reduce(seglen: Any, value: Tensor, reducer: str = "sum") -> Tensor:
    """Reduces consecutive rows: the first `seglen[0]`, the next `seglen[1]`, …; empty ones give 0.

    `reducer` is "sum", "mean", "prod", "max" or "min". (rows, …) becomes (segments, …).

    >>> metaop.graph.segment_reduce(metaop.tensor([2, 1]), metaop.tensor([1.0, 2.0, 5.0]))
    tensor([3., 5.])
    """
    sizes = node_numbers(seglen)
    if sizes.sum() != value.shape[0] or reducer not in _REDUCERS:
        raise ArgumentError(
            f"segment_reduce: segments of {sizes.sum()} rows, values {list(value.shape)}, reducer "
            f"{reducer!r}: lengths must add up and the reducer be one of {sorted(_REDUCERS)}"
        )
    numbers = np.repeat(np.arange(len(sizes)), sizes)
    starts = np.concatenate(([0], np.cumsum(sizes)))
    where, counts, begins = (
        from_numpy(np.array(x)).to(device=value.device) for x in (numbers, sizes, starts)
    )
    return reduce_numbered(value, where, counts, begins, _REDUCERS[reducer])
