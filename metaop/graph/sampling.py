"""Neighbour sampling, layer by layer, for training on parts of a large graph."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from metaop.errors import ArgumentError
from metaop.graph.core import EID, NID, Graph, create_block, node_numbers
from metaop.graph.transforms import edge_subgraph
from metaop.tensor.core import Tensor
from metaop.tensor.functions.creation import from_numpy
from metaop.tensor.functions.random import randint


def _random() -> np.random.Generator:
    """A NumPy generator seeded by metaop's."""
    return np.random.default_rng(int(randint(0, 2**62, ()).item()))


def sample_neighbors(
    g: Graph,
    nodes: Any,
    fanout: int,
    edge_dir: str = "in",
    prob: str | None = None,
    replace: bool = False,
) -> Graph:
    """A graph of all nodes of `g` and a sample of up to `fanout` edges per node in `nodes`.

    A `fanout` of -1 takes all edges. `edge_dir` selects edges that enter ("in") or leave ("out") a
    node. `prob` names a feature of the edges to which their probability is proportional.
    `edata["_ID"]` are the indices of the edges in `g`.
    """
    if edge_dir not in ("in", "out"):
        raise ArgumentError(f"sample_neighbors: edge_dir must be 'in' or 'out', got {edge_dir!r}")
    order = g.structure.incoming if edge_dir == "in" else g.structure.outgoing
    weights = None if prob is None else g.edata[prob].numpy(force=True).reshape(-1)
    seeds = node_numbers(nodes)
    random = _random()
    sizes = order.starts[seeds + 1] - order.starts[seeds]
    owner = np.repeat(np.arange(len(seeds)), sizes)
    within = np.arange(len(owner)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    edges = order.edges[order.starts[seeds][owner] + within]
    if weights is not None:
        kept = weights[edges] > 0
        owner, edges = owner[kept], edges[kept]
    if fanout >= 0:
        draw = _with_replacement if replace else _without_replacement
        edges = draw(random, owner, edges, None if weights is None else weights[edges], fanout)
    return edge_subgraph(g, edges, relabel_nodes=False)


def _first_of_each(owner: np.ndarray, count: int) -> np.ndarray:
    """Which elements are among the first `count` of their owner; `owner` is sorted."""
    starts = np.searchsorted(owner, owner)
    return np.arange(len(owner)) - starts < count


def _without_replacement(
    random: np.random.Generator,
    owner: np.ndarray,
    edges: np.ndarray,
    weights: np.ndarray | None,
    fanout: int,
) -> np.ndarray:
    # The elements with the smallest exponential variables, each divided by its weight, are a
    # weighted sample without replacement.
    keys = random.exponential(size=len(edges))
    if weights is not None:
        keys = keys / weights
    order = np.lexsort((keys, owner))
    return edges[order][_first_of_each(owner[order], fanout)]


def _with_replacement(
    random: np.random.Generator,
    owner: np.ndarray,
    edges: np.ndarray,
    weights: np.ndarray | None,
    fanout: int,
) -> np.ndarray:
    if not len(edges):
        return edges
    present, first, sizes = np.unique(owner, return_index=True, return_counts=True)
    shares = np.ones(len(edges)) if weights is None else weights.astype(np.float64)
    below = np.concatenate([[0.0], np.cumsum(shares)])
    low, high = below[first][:, None], below[first + sizes][:, None]
    drawn = low + (high - low) * random.random((len(present), fanout))
    places = np.searchsorted(below, drawn, side="right") - 1
    return edges[np.clip(places, first[:, None], (first + sizes - 1)[:, None])].reshape(-1)


def to_block(g: Graph, dst_nodes: Any = None) -> Graph:
    """The edges of `g` as a block from the nodes that they need to `dst_nodes`.

    The first source nodes are the destination nodes. `srcdata["_ID"]`, `dstdata["_ID"]` and
    `edata["_ID"]` say which nodes and edges of `g` they are.

    >>> g = metaop.graph.graph(([3, 2], [0, 0]))
    >>> block = metaop.graph.to_block(g, [0])
    >>> block.num_src_nodes(), block.num_dst_nodes(), block.srcdata["_ID"]
    (3, 1, tensor([0, 2, 3]))
    """
    source, destination = g.structure.source, g.structure.destination
    seeds = np.unique(destination) if dst_nodes is None else node_numbers(dst_nodes)
    place = np.full(g.num_nodes(), -1)
    place[seeds] = np.arange(len(seeds))
    if len(destination) and (place[destination] < 0).any():
        raise ArgumentError("to_block: an edge ends at a node that is not among dst_nodes")
    further = np.unique(source[place[source] < 0])
    sources = np.concatenate([seeds, further])
    place[further] = np.arange(len(seeds), len(sources))
    block = create_block((place[source], place[destination]), len(sources), len(seeds))
    for frame, chosen in ((block.srcdata, sources), (block.dstdata, seeds)):
        numbers = from_numpy(np.array(chosen))
        frame.update(g.ndata.rows(numbers))
        frame[NID] = numbers
    block.edata.update(g.edata)
    block.edata.setdefault(EID, from_numpy(np.arange(g.num_edges())))
    return block


class NeighborSampler:
    """Samples the blocks of a network with `len(fanouts)` layers, first layer first."""

    def __init__(
        self,
        fanouts: Sequence[int],
        edge_dir: str = "in",
        prob: str | None = None,
        replace: bool = False,
    ) -> None:
        self.fanouts = list(fanouts)
        self.edge_dir, self.prob, self.replace = edge_dir, prob, replace

    def sample_blocks(self, g: Graph, seed_nodes: Any) -> tuple[Tensor, Tensor, list[Graph]]:
        """Input nodes, output nodes, and the blocks between them."""
        seeds = node_numbers(seed_nodes)
        outputs, blocks = seeds, list[Graph]()
        for fanout in reversed(self.fanouts):
            drawn = sample_neighbors(g, seeds, fanout, self.edge_dir, self.prob, self.replace)
            block = to_block(drawn, seeds)
            blocks.insert(0, block)
            seeds = block.srcdata[NID].numpy(force=True)
        return from_numpy(np.array(seeds)), from_numpy(np.array(outputs)), blocks

    sample = sample_blocks


class DataLoader:
    """Yields (input nodes, output nodes, blocks) for batches of the nodes `indices`."""

    def __init__(
        self,
        graph: Graph,
        indices: Any,
        graph_sampler: NeighborSampler,
        batch_size: int = 1,
        shuffle: bool = False,
        drop_last: bool = False,
    ) -> None:
        self.graph, self.sampler = graph, graph_sampler
        self.indices = node_numbers(indices)
        self.batch_size, self.shuffle, self.drop_last = batch_size, shuffle, drop_last

    def __len__(self) -> int:
        rest = 0 if self.drop_last else self.batch_size - 1
        return (len(self.indices) + rest) // self.batch_size

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor, list[Graph]]]:
        order = _random().permutation(self.indices) if self.shuffle else self.indices
        for number in range(len(self)):
            seeds = order[number * self.batch_size : (number + 1) * self.batch_size]
            yield self.sampler.sample_blocks(self.graph, seeds)
