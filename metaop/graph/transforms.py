"""Transforms of graphs: batches, reversal, other edges, subgraphs, and conversion."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from metaop.errors import ArgumentError
from metaop.graph.core import EID, NID, Graph, graph, node_numbers
from metaop.graph.frame import Frame
from metaop.graph.structure import Structure
from metaop.tensor.core import Tensor
from metaop.tensor.functions.creation import from_numpy
from metaop.tensor.functions.joining import cat
from metaop.tensor.functions.random import randint


def _common(frames: Sequence[Frame]) -> dict[str, Tensor]:
    """The features that all frames have, concatenated in order of the frames."""
    names = [name for name in frames[0] if all(name in frame for frame in frames)]
    return {name: cat([frame[name] for frame in frames], 0) for name in names}


def batch(graphs: Sequence[Graph]) -> Graph:
    """One graph of several, without edges between them; features that all have are concatenated.

    >>> two = metaop.graph.batch([metaop.graph.graph(([0], [1]))] * 2)
    >>> two.edges()
    (tensor([0, 2]), tensor([1, 3]))
    """
    if not graphs:
        raise ArgumentError("batch: there are no graphs to join")
    sizes = [g.part_sizes() for g in graphs]
    counts = np.array([g.num_nodes() for g in graphs])
    offsets = np.cumsum(counts) - counts
    source = [g.structure.source + offset for g, offset in zip(graphs, offsets)]
    destination = [g.structure.destination + offset for g, offset in zip(graphs, offsets)]
    count = int(counts.sum())
    structure = Structure(np.concatenate(source), np.concatenate(destination), count, count)
    joined = Graph(structure, device=graphs[0].device)
    joined.ndata.update(_common([g.ndata for g in graphs]))
    joined.edata.update(_common([g.edata for g in graphs]))
    nodes, edges = zip(*sizes)
    joined.parts = np.concatenate(nodes), np.concatenate(edges)
    return joined


def unbatch(joined: Graph) -> list[Graph]:
    """The graphs that `batch` joined, with their sizes.

    >>> two = metaop.graph.batch([metaop.graph.graph(([0], [1]))] * 2)
    >>> [g.num_nodes() for g in metaop.graph.unbatch(two)]
    [2, 2]
    """
    nodes, edges = joined.part_sizes()
    found, first_node, first_edge = [], 0, 0
    for node_count, edge_count in zip(nodes.tolist(), edges.tolist()):
        own_nodes = slice(first_node, first_node + node_count)
        own_edges = slice(first_edge, first_edge + edge_count)
        structure = Structure(
            joined.structure.source[own_edges] - first_node,
            joined.structure.destination[own_edges] - first_node,
            node_count,
            node_count,
        )
        part = Graph(structure, device=joined.device)
        part.ndata.update({name: value[own_nodes] for name, value in joined.ndata.items()})
        part.edata.update({name: value[own_edges] for name, value in joined.edata.items()})
        found.append(part)
        first_node, first_edge = own_nodes.stop, own_edges.stop
    return found


def reverse(g: Graph, copy_ndata: bool = True, copy_edata: bool = False) -> Graph:
    """The same nodes with every edge reversed.

    >>> metaop.graph.reverse(metaop.graph.graph(([0, 1], [1, 2]))).edges()
    (tensor([1, 2]), tensor([0, 1]))
    """
    turned = Graph(g.structure.reverse(), device=g.device)
    turned.parts = g.parts
    if copy_ndata:
        turned.ndata.update(g.ndata)
    if copy_edata:
        turned.edata.update(g.edata)
    return turned


def _with_edges(g: Graph, source: np.ndarray, destination: np.ndarray) -> Graph:
    """The nodes of `g` with other edges."""
    count = g.num_nodes()
    changed = Graph(Structure(source, destination, count, count), device=g.device)
    changed.ndata.update(g.ndata)
    return changed


def add_self_loop(g: Graph) -> Graph:
    """The graph with one more edge v → v for every node; its features are 0.

    >>> metaop.graph.add_self_loop(metaop.graph.graph(([0], [1]))).edges()
    (tensor([0, 0, 1]), tensor([1, 0, 1]))
    """
    loops = np.arange(g.num_nodes())
    structure = g.structure
    changed = _with_edges(
        g,
        np.concatenate([structure.source, loops]),
        np.concatenate([structure.destination, loops]),
    )
    for name, value in g.edata.items():
        new = value.new_zeros((len(loops), *value.shape[1:]))
        changed.edata[name] = cat([value, new], 0)
    return changed


def remove_self_loop(g: Graph) -> Graph:
    """The graph without edges v → v.

    >>> metaop.graph.remove_self_loop(metaop.graph.graph(([0, 1], [1, 1]))).edges()
    (tensor([0]), tensor([1]))
    """
    return edge_subgraph(g, g.structure.source != g.structure.destination, relabel_nodes=False)


def to_bidirected(g: Graph, copy_ndata: bool = False) -> Graph:
    """The graph with every edge in both directions, once each, without features of edges.

    >>> metaop.graph.to_bidirected(metaop.graph.graph(([0, 1], [1, 0]))).num_edges()
    2
    """
    source, destination = g.structure.source, g.structure.destination
    pairs = np.concatenate([np.stack([source, destination]), np.stack([destination, source])], 1)
    pairs = np.unique(pairs, axis=1)
    changed = _with_edges(g, pairs[0], pairs[1])
    if not copy_ndata:
        changed.ndata.clear()
    return changed


def edge_subgraph(g: Graph, edges: Any, *, relabel_nodes: bool = True) -> Graph:
    """The selected edges (numbers or a mask) with the nodes at their ends.

    `ndata["_ID"]` and `edata["_ID"]` are their indices in `g`. With `relabel_nodes=False` all
    nodes stay.

    >>> g = metaop.graph.edge_subgraph(metaop.graph.graph(([0, 1, 2], [1, 2, 3])), [2])
    >>> g.edges(), g.ndata["_ID"]
    ((tensor([0]), tensor([1])), tensor([2, 3]))
    """
    chosen = node_numbers(edges)
    source, destination = g.structure.source[chosen], g.structure.destination[chosen]
    if not relabel_nodes:
        found = _with_edges(g, source, destination)
    else:
        nodes, ends = np.unique(np.concatenate([source, destination]), return_inverse=True)
        found = graph((ends[: len(chosen)], ends[len(chosen) :]), len(nodes))
        _note(found, g, nodes)
    _note_edges(found, g, chosen)
    return found


def node_subgraph(g: Graph, nodes: Any) -> Graph:
    """The selected nodes (numbers or a mask) and all edges between them.

    >>> metaop.graph.node_subgraph(metaop.graph.graph(([0, 1, 2], [1, 2, 3])), [1, 2]).edges()
    (tensor([0]), tensor([1]))
    """
    chosen = node_numbers(nodes)
    place = np.full(g.num_nodes(), -1)
    place[chosen] = np.arange(len(chosen))
    source, destination = place[g.structure.source], place[g.structure.destination]
    edges = np.flatnonzero((source >= 0) & (destination >= 0))
    found = graph((source[edges], destination[edges]), len(chosen))
    _note(found, g, chosen)
    _note_edges(found, g, edges)
    return found


def in_subgraph(g: Graph, nodes: Any) -> Graph:
    """All nodes, and the edges that enter the selected ones.

    >>> metaop.graph.in_subgraph(metaop.graph.graph(([0, 1, 2], [1, 2, 1])), [1]).edges()
    (tensor([0, 2]), tensor([1, 1]))
    """
    return edge_subgraph(
        g, np.isin(g.structure.destination, node_numbers(nodes)), relabel_nodes=False
    )


def _note(found: Graph, g: Graph, nodes: np.ndarray) -> None:
    chosen = from_numpy(np.array(nodes)).to(device=g.device)
    found.device = g.device
    found.ndata.update(g.ndata.rows(chosen))
    found.ndata[NID] = chosen


def _note_edges(found: Graph, g: Graph, edges: np.ndarray) -> None:
    chosen = from_numpy(np.array(edges)).to(device=g.device)
    found.edata.update(g.edata.rows(chosen))
    found.edata[EID] = chosen


def knn_graph(x: Tensor, k: int) -> Graph:
    """Edges to every point from its `k` nearest points, itself included; `x` is (points, size).

    >>> metaop.graph.knn_graph(metaop.tensor([[0.0], [1.0], [5.0]]), 2).edges()
    (tensor([0, 1, 1, 0, 2, 1]), tensor([0, 0, 1, 1, 2, 2]))
    """
    points = x.numpy(force=True).astype(np.float64)
    if not 0 < k <= len(points):
        raise ArgumentError(f"knn_graph: k = {k} of {len(points)} points")
    squares = (points**2).sum(1)
    distances = squares[:, None] + squares - 2 * points @ points.T
    np.fill_diagonal(
        distances, -1
    )  # otherwise rounding could make a neighbour nearer than the point itself
    nearest = np.argsort(distances, axis=1, kind="stable")[:, :k]
    return graph((nearest.reshape(-1), np.repeat(np.arange(len(points)), k)), len(points))


def rand_graph(num_nodes: int, num_edges: int) -> Graph:
    """A graph with edges between random nodes, drawn from metaop's generator.

    >>> g = metaop.graph.rand_graph(5, 7)
    >>> g.num_nodes(), g.num_edges()
    (5, 7)
    """
    ends = randint(0, num_nodes, (2, num_edges)).numpy(force=True)
    return graph((ends[0], ends[1]), num_nodes)


def from_networkx(
    nx_graph: Any,
    node_attrs: Sequence[str] | None = None,
    edge_attrs: Sequence[str] | None = None,
) -> Graph:
    """The graph of a networkx graph; undirected edges become two edges.

    `node_attrs` and `edge_attrs` name the attributes that become features.

    >>> import networkx
    >>> metaop.graph.from_networkx(networkx.path_graph(3)).num_edges()
    4
    """
    directed = nx_graph if nx_graph.is_directed() else nx_graph.to_directed()
    number = {node: k for k, node in enumerate(directed.nodes)}
    edges = list(directed.edges(data=True))
    found = graph([(number[u], number[v]) for u, v, _ in edges], len(number))
    for name in node_attrs or ():
        found.ndata[name] = np.array([directed.nodes[node][name] for node in directed.nodes])
    for name in edge_attrs or ():
        found.edata[name] = np.array([attributes[name] for _, _, attributes in edges])
    return found


def to_networkx(
    g: Graph, node_attrs: Sequence[str] | None = None, edge_attrs: Sequence[str] | None = None
) -> Any:
    """A directed networkx multigraph with the index of each edge as "id".

    `node_attrs` and `edge_attrs` name the features to copy; a feature (nodes, …) becomes one
    tensor for each node.

    >>> metaop.graph.to_networkx(metaop.graph.graph(([0, 1], [1, 2]))).number_of_edges()
    2
    """
    import networkx

    result = networkx.MultiDiGraph()
    nodes = {name: g.ndata[name].numpy(force=True) for name in node_attrs or ()}
    edges = {name: g.edata[name].numpy(force=True) for name in edge_attrs or ()}
    for v in range(g.num_nodes()):
        result.add_node(v, **{name: values[v] for name, values in nodes.items()})
    for e, (u, v) in enumerate(zip(g.structure.source.tolist(), g.structure.destination.tolist())):
        result.add_edge(u, v, id=e, **{name: values[e] for name, values in edges.items()})
    return result
