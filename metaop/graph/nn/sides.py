"""What the layers share: features of both ends of edges, messages, the check for isolated nodes."""

from __future__ import annotations

from collections.abc import Callable

from metaop.errors import ArgumentError
from metaop.graph import function as fn
from metaop.graph.built_in import Message
from metaop.graph.core import Graph
from metaop.tensor.core import Tensor

# One tensor for all nodes, or one for the sources and one for the destinations.
Features = Tensor | tuple[Tensor, Tensor]
Sizes = int | tuple[int, int]
Activation = Callable[[Tensor], Tensor] | None


def both_sides(graph: Graph, features: Features) -> tuple[Tensor, Tensor]:
    """Features of sources and destinations; the first sources of a block are its destinations."""
    if isinstance(features, tuple):
        return features
    return features, features[: graph.num_dst_nodes()] if graph.is_block else features


def both_sizes(sizes: Sizes) -> tuple[int, int]:
    """Feature sizes of sources and destinations."""
    return sizes if isinstance(sizes, tuple) else (sizes, sizes)


def weighted_copies(graph: Graph, source: Tensor, edge_weight: Tensor | None) -> Message:
    """The message "m" with the features of the source, times the weight of the edge if given.

    The features become "h" of the sources, the weights "w" of the edges.
    """
    graph.srcdata["h"] = source
    if edge_weight is None:
        return fn.copy_u("h", "m")
    graph.edata["w"] = edge_weight
    return fn.u_mul_e("h", "w", "m")


def refuse_isolated_nodes(layer: str, graph: Graph) -> None:
    """Raises if a node has no incoming edge, because its output would silently be 0."""
    if (graph.structure.in_degrees == 0).any():
        raise ArgumentError(
            f"{layer}: there are nodes without incoming edges, whose output would be 0",
            fix="add self-loops with metaop.graph.add_self_loop(g), or pass "
            "allow_zero_in_degree=True",
        )
