"""Readouts: reductions of the features of nodes or edges to one row for each graph."""

from __future__ import annotations

import numpy as np

from metaop.graph.core import Graph
from metaop.graph.ops import segment_reduce
from metaop.tensor.core import Tensor
from metaop.tensor.functions.creation import from_numpy


def readout_nodes(graph: Graph, feat: str, weight: str | None = None, *, op: str = "sum") -> Tensor:
    """The features of the nodes (times `weight`), reduced over each graph of a batch.

    `feat` and `weight` are names in `ndata`; `op` is "sum", "mean", "max" or "min". The result is
    (graphs, …).

    >>> g = metaop.graph.graph(([0, 1], [1, 2]))
    >>> g.ndata["x"] = metaop.tensor([1.0, 2.0, 3.0])
    >>> metaop.graph.readout_nodes(g, "x", op="mean")
    tensor([2.])
    """
    values = graph.ndata[feat]
    if weight is not None:
        values = values * graph.ndata[weight]
    return segment_reduce(graph.part_sizes()[0], values, op)


def readout_edges(graph: Graph, feat: str, weight: str | None = None, *, op: str = "sum") -> Tensor:
    """The features of the edges (times `weight`), reduced over each graph of a batch.

    `feat` and `weight` are names in `edata`; `op` is "sum", "mean", "max" or "min". The result is
    (graphs, …).

    >>> g = metaop.graph.graph(([0, 1], [1, 2]))
    >>> g.edata["x"] = metaop.tensor([1.0, 2.0])
    >>> metaop.graph.readout_edges(g, "x", op="max")
    tensor([2.])
    """
    values = graph.edata[feat]
    if weight is not None:
        values = values * graph.edata[weight]
    return segment_reduce(graph.part_sizes()[1], values, op)


def sum_nodes(graph: Graph, feat: str, weight: str | None = None) -> Tensor:
    """The sum over the nodes of each graph: (nodes, …) -> (graphs, …).

    >>> g = metaop.graph.graph(([0, 1], [1, 2]))
    >>> g.ndata["x"] = metaop.tensor([1.0, 2.0, 3.0])
    >>> metaop.graph.sum_nodes(g, "x")
    tensor([6.])
    """
    return readout_nodes(graph, feat, weight, op="sum")


def mean_nodes(graph: Graph, feat: str, weight: str | None = None) -> Tensor:
    """The mean over the nodes of each graph; weights divide as well: (nodes, …) -> (graphs, …).

    >>> g = metaop.graph.graph(([0, 1], [1, 2]))
    >>> g.ndata["x"] = metaop.tensor([1.0, 2.0, 3.0])
    >>> metaop.graph.mean_nodes(g, "x")
    tensor([2.])
    """
    if weight is None:
        return readout_nodes(graph, feat, op="mean")
    total = segment_reduce(graph.part_sizes()[0], graph.ndata[weight], "sum")
    return readout_nodes(graph, feat, weight) / total


def max_nodes(graph: Graph, feat: str, weight: str | None = None) -> Tensor:
    """The largest over the nodes of each graph: (nodes, …) -> (graphs, …).

    >>> g = metaop.graph.graph(([0, 1], [1, 2]))
    >>> g.ndata["x"] = metaop.tensor([1.0, 2.0, 3.0])
    >>> metaop.graph.max_nodes(g, "x")
    tensor([3.])
    """
    return readout_nodes(graph, feat, weight, op="max")


def sum_edges(graph: Graph, feat: str, weight: str | None = None) -> Tensor:
    """The sum over the edges of each graph: (edges, …) -> (graphs, …).

    >>> g = metaop.graph.graph(([0, 1], [1, 2]))
    >>> g.edata["x"] = metaop.tensor([1.0, 2.0])
    >>> metaop.graph.sum_edges(g, "x")
    tensor([3.])
    """
    return readout_edges(graph, feat, weight, op="sum")


def mean_edges(graph: Graph, feat: str, weight: str | None = None) -> Tensor:
    """The mean over the edges of each graph; weights divide as well: (edges, …) -> (graphs, …).

    >>> g = metaop.graph.graph(([0, 1], [1, 2]))
    >>> g.edata["x"] = metaop.tensor([1.0, 2.0])
    >>> metaop.graph.mean_edges(g, "x")
    tensor([1.5000])
    """
    if weight is None:
        return readout_edges(graph, feat, op="mean")
    total = segment_reduce(graph.part_sizes()[1], graph.edata[weight], "sum")
    return readout_edges(graph, feat, weight) / total


def max_edges(graph: Graph, feat: str, weight: str | None = None) -> Tensor:
    """The largest over the edges of each graph: (edges, …) -> (graphs, …).

    >>> g = metaop.graph.graph(([0, 1], [1, 2]))
    >>> g.edata["x"] = metaop.tensor([1.0, 2.0])
    >>> metaop.graph.max_edges(g, "x")
    tensor([2.])
    """
    return readout_edges(graph, feat, weight, op="max")


def broadcast_nodes(graph: Graph, graph_feat: Tensor) -> Tensor:
    """Each node's copy of the feature of its graph: (graphs, …) -> (nodes, …).

    >>> g = metaop.graph.batch([metaop.graph.graph(([0], [1])), metaop.graph.graph([], 1)])
    >>> metaop.graph.broadcast_nodes(g, metaop.tensor([1.0, 2.0]))
    tensor([1., 1., 2.])
    """
    sizes = graph.part_sizes()[0]
    numbers = from_numpy(np.repeat(np.arange(len(sizes)), sizes)).to(device=graph.device)
    return graph_feat.index_select(0, numbers)


def softmax_nodes(graph: Graph, feat: str) -> Tensor:
    """The softmax over the nodes of each graph: (nodes, …); the shape stays the same.

    >>> g = metaop.graph.graph(([0], [1]))
    >>> g.ndata["x"] = metaop.zeros(2)
    >>> metaop.graph.softmax_nodes(g, "x")
    tensor([0.5000, 0.5000])
    """
    values, sizes = graph.ndata[feat], graph.part_sizes()[0]
    largest = segment_reduce(sizes, values.detach(), "max")
    weights = (values - broadcast_nodes(graph, largest)).exp()
    return weights / broadcast_nodes(graph, segment_reduce(sizes, weights, "sum"))
