"""Messages along edges and their reduction at nodes: gathers and segment reductions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from metaop.errors import ArgumentError
from metaop.graph.built_in import BinaryMessage, CopyMessage, Message, Reduction, combine
from metaop.operators import segments
from metaop.tensor.core import Tensor, wrap
from metaop.tensor.functions.creation import from_numpy
from metaop.unified_graph.recording import record

if TYPE_CHECKING:
    from metaop.graph.core import Graph


class LazyRows(Mapping[str, Tensor]):
    """Features of selected rows, gathered at the first access; None selects all."""

    def __init__(self, features: Mapping[str, Tensor], chosen: Tensor | None) -> None:
        self._features, self._chosen = features, chosen
        self._found: dict[str, Tensor] = {}

    def __getitem__(self, name: str) -> Tensor:
        found = self._found.get(name)
        if found is None:
            if name not in self._features:
                raise ArgumentError(
                    f"there is no feature {name!r}, only {sorted(self._features)}",
                    fix="set it in ndata, srcdata, dstdata or edata",
                )
            found = self._features[name]
            if self._chosen is not None:
                found = found.index_select(0, self._chosen)
            self._found[name] = found
        return found

    def __iter__(self) -> Any:
        return iter(self._features)

    def __len__(self) -> int:
        return len(self._features)


class EdgeBatch:
    """The argument of a message function: `src`, `dst` and `data`, one row for each edge."""

    def __init__(self, graph: Graph, by_destination: bool) -> None:
        structure, device = graph.structure, graph.device
        self._graph = graph
        self._sorted = by_destination and not structure.is_sorted
        prefix = "sorted_" if self._sorted else ""
        self._source = structure.tensor(prefix + "source", device)
        self._destination = structure.tensor(prefix + "destination", device)
        chosen = structure.tensor("sorted_edges", device) if self._sorted else None
        self.src = LazyRows(graph.srcdata, self._source)
        self.dst = LazyRows(graph.dstdata, self._destination)
        self.data = LazyRows(graph.edata, chosen)

    def edges(self) -> tuple[Tensor, Tensor, Tensor]:
        """Sources, destinations and numbers of the edges."""
        structure, device = self._graph.structure, self._graph.device
        if self._sorted:
            numbers = structure.tensor("sorted_edges", device)
        else:
            numbers = from_numpy(np.arange(structure.edge_count)).to(device=device)
        return self._source, self._destination, numbers

    def batch_size(self) -> int:
        """The number of edges."""
        return self._graph.num_edges()

    def __len__(self) -> int:
        return self._graph.num_edges()


class NodeBatch:
    """The argument of reduce and apply functions: `data` and `mailbox` (nodes, messages, …)."""

    def __init__(
        self,
        nodes: Tensor,
        data: Mapping[str, Tensor],
        mailbox: Mapping[str, Tensor] | None = None,
    ) -> None:
        self._nodes = nodes
        self.data = data
        self.mailbox = mailbox or {}

    def nodes(self) -> Tensor:
        """The numbers of the nodes."""
        return self._nodes

    def batch_size(self) -> int:
        """The number of nodes."""
        return len(self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)


MessageFunction = Message | Callable[[EdgeBatch], Mapping[str, Tensor]]
ReduceFunction = Reduction | Callable[[NodeBatch], Mapping[str, Tensor]]


def messages(function: MessageFunction, edges: EdgeBatch) -> dict[str, Tensor]:
    """The results of a message function for a batch of edges."""
    sides = {"u": edges.src, "v": edges.dst, "e": edges.data}
    if isinstance(function, CopyMessage):
        return {function.out: sides[function.side][function.field]}
    if isinstance(function, BinaryMessage):
        left = sides[function.left][function.left_field]
        right = sides[function.right][function.right_field]
        return {function.out: combine(function.operator, left, right)}
    return dict(function(edges))


def segment_reduce(
    values: Tensor, numbers: Tensor, sizes: Tensor, starts: Tensor | None, reducer: str
) -> Tensor:
    """Row s is the reduction of the rows of `values` in segment s, or 0 if the segment is empty.

    If the numbers of segments ascend, `starts` says where each begins.
    """
    calls = (values.call, numbers.call, sizes.call, None if starts is None else starts.call)
    return wrap(record(segments.segment_reduce, calls, (reducer,)))


def reduced(
    function: ReduceFunction, graph: Graph, received: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Messages, sorted by destination, reduced to one value for each node."""
    if not isinstance(function, Reduction):
        return _reduced_by_degree(function, graph, received)
    structure = graph.structure
    name = "destination" if structure.is_sorted else "sorted_destination"
    numbers = structure.tensor(name, graph.device)
    sizes, starts = (structure.tensor(x, graph.device) for x in ("in_degrees", "in_starts"))
    if function.message not in received:
        raise ArgumentError(
            f"update_all: the reduce function reads message {function.message!r}, but the message "
            f"function makes {sorted(received)}"
        )
    values = received[function.message]
    return {function.out: segment_reduce(values, numbers, sizes, starts, function.reducer)}


def _reduced_by_degree(
    function: Callable[[NodeBatch], Mapping[str, Tensor]],
    graph: Graph,
    received: Mapping[str, Tensor],
) -> dict[str, Tensor]:
    """Calls a Python function once for all nodes with the same number of messages."""
    structure = graph.structure
    starts, degrees = structure.incoming.starts, structure.in_degrees
    found: dict[str, Tensor] = {}
    for degree in np.unique(degrees[degrees > 0]):
        members = np.flatnonzero(degrees == degree)
        places = starts[members][:, None] + np.arange(degree)
        nodes, flat = (
            from_numpy(array).to(device=graph.device) for array in (members, places.reshape(-1))
        )
        mailbox = {
            name: value.index_select(0, flat).reshape(*places.shape, *value.shape[1:])
            for name, value in received.items()
        }
        batch = NodeBatch(nodes, LazyRows(graph.dstdata, nodes), mailbox)
        for name, value in function(batch).items():
            if name not in found:
                found[name] = value.new_zeros((structure.count, *value.shape[1:]))
            found[name] = found[name].index_copy(0, nodes, value)
    return found
