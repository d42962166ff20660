"""The edges of a graph as arrays, sorted by source and by destination once."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from metaop.errors import ArgumentError, ShapeError
from metaop.tensor.core import Tensor
from metaop.tensor.functions.creation import from_numpy
from metaop.unified_graph.tensor_type import CPU, Device


class Compressed(NamedTuple):
    """Edges sorted by node: those of node `v` are at starts[v]:starts[v + 1].

    `neighbours` are their other ends, `edges` their indices in the graph.
    """

    starts: np.ndarray
    neighbours: np.ndarray
    edges: np.ndarray


class Structure:
    """Edges source[e] → destination[e], and the numbers of source and destination nodes.

    In a graph, sources and destinations are the same nodes; in a block (one layer of sampled
    neighbours) they differ. A structure never changes, so it caches what is derived from it.
    """

    def __init__(
        self, source: np.ndarray, destination: np.ndarray, source_count: int, count: int
    ) -> None:
        if source.ndim != 1 or source.shape != destination.shape:
            raise ShapeError(
                f"graph: sources {list(source.shape)} and destinations "
                f"{list(destination.shape)} must be vectors of one length"
            )
        for name, ends, bound in (
            ("source", source, source_count),
            ("destination", destination, count),
        ):
            if ends.size and not 0 <= ends.min() <= ends.max() < bound:
                raise ArgumentError(
                    f"graph: {name} nodes lie in {ends.min()}..{ends.max()}, but there are {bound}",
                    fix="pass a larger num_nodes",
                )
        self.source, self.destination = source, destination
        self.source_count, self.count = source_count, count
        self._tensors: dict[tuple[str, Device], Tensor] = {}

    @property
    def edge_count(self) -> int:
        return len(self.source)

    @functools.cached_property
    def incoming(self) -> Compressed:
        """The edges that enter each destination node (CSC of the adjacency matrix)."""
        return _compress(self.destination, self.source, self.count)

    @functools.cached_property
    def outgoing(self) -> Compressed:
        """The edges that leave each source node (CSR of the adjacency matrix)."""
        return _compress(self.source, self.destination, self.source_count)

    @property
    def in_starts(self) -> np.ndarray:
        return self.incoming.starts

    @functools.cached_property
    def in_degrees(self) -> np.ndarray:
        return np.diff(self.incoming.starts)

    @functools.cached_property
    def out_degrees(self) -> np.ndarray:
        return np.diff(self.outgoing.starts)

    @functools.cached_property
    def is_sorted(self) -> bool:
        """Whether the edges are already sorted by destination."""
        return bool((self.destination[1:] >= self.destination[:-1]).all())

    def tensor(self, name: str, device: Device = CPU) -> Tensor:
        """One of the arrays as an int64 tensor, copied to each device once.

        `name` is that of an attribute, or "sorted_source", "sorted_destination" or
        "sorted_edges" for the edges sorted by destination.
        """
        found = self._tensors.get((name, device))
        if found is None:
            found = from_numpy(np.ascontiguousarray(self._array(name))).to(device=device)
            self._tensors[name, device] = found
        return found

    def _array(self, name: str) -> Any:
        if not name.startswith("sorted_"):
            return getattr(self, name)
        if name == "sorted_edges":
            return self.incoming.edges
        return getattr(self, name.removeprefix("sorted_"))[self.incoming.edges]

    def reverse(self) -> Structure:
        """The same edges in the opposite direction."""
        turned = Structure(self.destination, self.source, self.count, self.source_count)
        for name in ("incoming", "outgoing"):
            if name in self.__dict__:
                other = "outgoing" if name == "incoming" else "incoming"
                turned.__dict__[other] = self.__dict__[name]
        return turned


def _compress(ends: np.ndarray, others: np.ndarray, count: int) -> Compressed:
    order = np.argsort(ends, kind="stable")
    starts = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(ends, minlength=count), out=starts[1:])
    return Compressed(starts, others[order], order)
