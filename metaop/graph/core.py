"""Graphs with features, on which messages are passed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from metaop.errors import ArgumentError
from metaop.graph.frame import Frame
from metaop.graph.message_passing import (
    EdgeBatch,
    MessageFunction,
    NodeBatch,
    ReduceFunction,
    messages,
    reduced,
)
from metaop.graph.structure import Structure
from metaop.tensor.core import Tensor
from metaop.tensor.functions.creation import from_numpy
from metaop.unified_graph.tensor_type import CPU, Device

# The feature in which transformations keep the index of a node or edge in the original graph.
NID = EID = "_ID"


def node_numbers(nodes: Any) -> np.ndarray:
    """Node or edge numbers as an int64 array; a mask selects the numbers where it is true."""
    array = nodes.numpy(force=True) if isinstance(nodes, Tensor) else np.asarray(nodes)
    if array.dtype == np.bool_:
        return np.flatnonzero(array)
    return array.astype(np.int64, copy=False)


class Graph:
    """Edges between nodes, with features for both.

    Made by `metaop.graph.graph((sources, destinations))`. `ndata` and `edata` are dictionaries of
    tensors with one row for each node or edge; any other number of rows raises ShapeError. In a
    block, source and destination nodes differ: `srcdata` and `dstdata` are their features.

    >>> g = metaop.graph.graph(([0, 1, 1], [1, 2, 0]))
    >>> g.ndata["x"] = metaop.tensor([1.0, 2.0, 3.0])
    >>> g.num_nodes(), g.num_edges(), g.in_degrees()
    (3, 3, tensor([1, 1, 1]))
    """

    def __init__(self, structure: Structure, is_block: bool = False, device: Device = CPU) -> None:
        self.structure = structure
        self.is_block = is_block
        self.device = device
        self.edata = Frame("edges", structure.edge_count)
        self.dstdata = Frame("nodes", structure.count)
        self.srcdata = Frame("nodes", structure.source_count) if is_block else self.dstdata
        # The numbers of nodes and edges of each graph in a `batch`.
        self.parts: tuple[np.ndarray, np.ndarray] | None = None

    @property
    def ndata(self) -> Frame:
        """The features of the nodes."""
        if self.is_block:
            raise ArgumentError("ndata of a block is ambiguous", fix="use srcdata or dstdata")
        return self.dstdata

    def num_nodes(self) -> int:
        """The number of nodes; for a block, of sources and destinations together."""
        own = self.structure.count
        return own + self.structure.source_count if self.is_block else own

    def num_src_nodes(self) -> int:
        """The number of nodes that edges leave."""
        return self.structure.source_count

    def num_dst_nodes(self) -> int:
        """The number of nodes that edges enter."""
        return self.structure.count

    def num_edges(self) -> int:
        """The number of edges."""
        return self.structure.edge_count

    number_of_nodes, number_of_edges = num_nodes, num_edges
    number_of_src_nodes, number_of_dst_nodes = num_src_nodes, num_dst_nodes

    def nodes(self) -> Tensor:
        """The numbers of the nodes."""
        return self._tensor(np.arange(self.num_nodes()))

    def edges(self, form: str = "uv", order: str = "eid") -> Any:
        """Sources and destinations ("uv"), edge numbers ("eid"), or all three ("all").

        `order` is "eid" or "srcdst" (sorted by source, then by destination).
        """
        structure = self.structure
        numbers = np.arange(structure.edge_count)
        if order == "srcdst":
            numbers = np.lexsort((structure.destination, structure.source))
        elif order != "eid":
            raise ArgumentError(f"edges: order must be 'eid' or 'srcdst', got {order!r}")
        parts = (structure.source[numbers], structure.destination[numbers], numbers)
        u, v, eid = map(self._tensor, parts)
        forms = {"uv": (u, v), "eid": eid, "all": (u, v, eid)}
        if form not in forms:
            raise ArgumentError(f"edges: form must be one of {sorted(forms)}, got {form!r}")
        return forms[form]

    all_edges = edges

    def in_degrees(self, v: Any = None) -> Tensor:
        """How many edges enter each node (or each of `v`)."""
        return self._degrees("in_degrees", v)

    def out_degrees(self, u: Any = None) -> Tensor:
        """How many edges leave each node (or each of `u`)."""
        return self._degrees("out_degrees", u)

    def _degrees(self, name: str, nodes: Any) -> Any:
        if nodes is None:
            return self.structure.tensor(name, self.device)
        if isinstance(nodes, int):
            return int(getattr(self.structure, name)[nodes])
        return self._tensor(getattr(self.structure, name)[node_numbers(nodes)])

    def predecessors(self, v: int) -> Tensor:
        """The nodes from which an edge leads to `v`."""
        starts, neighbours, _ = self.structure.incoming
        return self._tensor(neighbours[starts[v] : starts[v + 1]])

    def successors(self, u: int) -> Tensor:
        """The nodes to which an edge leads from `u`."""
        starts, neighbours, _ = self.structure.outgoing
        return self._tensor(neighbours[starts[u] : starts[u + 1]])

    def has_edges_between(self, u: Any, v: Any) -> Any:
        """Whether there is an edge u → v, for each pair."""
        structure = self.structure
        present = structure.source * structure.count + structure.destination
        asked = node_numbers(u) * structure.count + node_numbers(v)
        found = np.isin(asked, present)
        return self._tensor(found) if found.ndim else bool(found)

    def adj_tensors(self, layout: str) -> tuple[Tensor, ...]:
        """The adjacency as "coo" (sources, destinations), "csr" or "csc" (starts, ends, edges)."""
        structure = self.structure
        if layout == "coo":
            return self.edges()
        if layout not in ("csr", "csc"):
            raise ArgumentError(f"adj_tensors: layout must be coo, csr or csc, got {layout!r}")
        return tuple(
            map(self._tensor, structure.outgoing if layout == "csr" else structure.incoming)
        )

    def _tensor(self, array: np.ndarray) -> Tensor:
        return from_numpy(np.array(array)).to(device=self.device)

    def apply_edges(self, func: MessageFunction) -> None:
        """Stores the results of a message function as features of the edges."""
        self.edata.update(messages(func, EdgeBatch(self, False)))

    def update_all(
        self,
        message_func: MessageFunction,
        reduce_func: ReduceFunction,
        apply_node_func: Callable[[NodeBatch], Mapping[str, Tensor]] | None = None,
    ) -> None:
        """Sends messages along all edges and stores their reductions as features of the nodes.

        Nodes without incoming edges get 0. Functions are built-in ones of
        `metaop.graph.function`, or Python functions that take a batch of edges (`edges.src`,
        `edges.dst`, `edges.data`) or of nodes (`nodes.data`, `nodes.mailbox`) and return a
        dictionary.

        Example:
            g.update_all(fn.u_mul_e("h", "w", "m"), fn.sum("m", "h"))
        """
        received = messages(message_func, EdgeBatch(self, True))
        self.dstdata.update(reduced(reduce_func, self, received))
        if apply_node_func is not None:
            self.apply_nodes(apply_node_func)

    def apply_nodes(self, func: Callable[[NodeBatch], Mapping[str, Tensor]]) -> None:
        """Stores the results of a function of the nodes as their features."""
        nodes = self._tensor(np.arange(self.structure.count))
        self.dstdata.update(func(NodeBatch(nodes, self.dstdata)))

    def copy(self) -> Graph:
        """A graph with the same edges and a copy of the dictionaries of features."""
        clone = Graph(self.structure, self.is_block, self.device)
        clone.parts = self.parts
        clone.edata, clone.dstdata = self.edata.copy(), self.dstdata.copy()
        clone.srcdata = self.srcdata.copy() if self.is_block else clone.dstdata
        return clone

    local_var = copy

    @contextlib.contextmanager
    def local_scope(self) -> Iterator[None]:
        """A scope at whose end features are as they were at its start."""
        kept = self.edata, self.dstdata, self.srcdata
        scratch = self.copy()
        self.edata, self.dstdata, self.srcdata = scratch.edata, scratch.dstdata, scratch.srcdata
        try:
            yield
        finally:
            self.edata, self.dstdata, self.srcdata = kept

    def to(self, device: Any) -> Graph:
        """The graph with its features on a device."""
        moved = self.copy()
        for frame in (moved.edata, moved.dstdata, moved.srcdata):
            frame.update({name: value.to(device=device) for name, value in frame.items()})
        moved.device = device if isinstance(device, Device) else from_numpy(
            np.zeros(1)
        ).to(device=device).device  # fmt: skip
        return moved

    @property
    def batch_size(self) -> int:
        """The number of graphs in the batch."""
        return 1 if self.parts is None else len(self.parts[0])

    def batch_num_nodes(self) -> Tensor:
        """The number of nodes of each graph in the batch."""
        return self._tensor(self.part_sizes()[0])

    def batch_num_edges(self) -> Tensor:
        """The number of edges of each graph in the batch."""
        return self._tensor(self.part_sizes()[1])

    def part_sizes(self) -> tuple[np.ndarray, np.ndarray]:
        """The numbers of nodes and of edges of the graphs in the batch, as arrays."""
        if self.parts is not None:
            return self.parts
        return np.array([self.structure.count]), np.array([self.structure.edge_count])

    def __repr__(self) -> str:
        def scheme(frame: Frame) -> str:
            return "{" + ", ".join(f"{k}: {list(v.shape)}" for k, v in frame.items()) + "}"

        if self.is_block:
            counts = f"num_src_nodes={self.num_src_nodes()}, num_dst_nodes={self.num_dst_nodes()}"
        else:
            counts = f"num_nodes={self.num_nodes()}"
        return (
            f"Graph({counts}, num_edges={self.num_edges()}, ndata={scheme(self.dstdata)}, "
            f"edata={scheme(self.edata)})"
        )


def _ends(data: Any) -> tuple[np.ndarray, np.ndarray]:
    if isinstance(data, Sequence) and len(data) == 2 and not isinstance(data[0], tuple):
        u, v = map(node_numbers, data)
        return u, v
    pairs = np.asarray(data, np.int64).reshape(-1, 2)
    return pairs[:, 0].copy(), pairs[:, 1].copy()


def graph(data: Any, num_nodes: int | None = None) -> Graph:
    """A graph from edges: (sources, destinations), or a list of pairs.

    Without `num_nodes`, the largest number of an edge's end determines how many nodes there are.

    >>> metaop.graph.graph([(0, 1), (1, 2)], num_nodes=4).num_nodes()
    4
    """
    u, v = _ends(data)
    if num_nodes is None:
        num_nodes = int(max(u.max(initial=-1), v.max(initial=-1))) + 1
    return Graph(Structure(u, v, num_nodes, num_nodes))


def create_block(data: Any, num_src_nodes: int, num_dst_nodes: int) -> Graph:
    """A block: edges from source nodes to destination nodes, counted separately.

    >>> block = metaop.graph.create_block(([0, 2], [0, 1]), 3, 2)
    >>> block.num_src_nodes(), block.num_dst_nodes()
    (3, 2)
    """
    u, v = _ends(data)
    return Graph(Structure(u, v, num_src_nodes, num_dst_nodes), is_block=True)
