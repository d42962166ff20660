"""Scatter to gather: a reduction whose write map is affine, as guarded reads."""

from __future__ import annotations

from metaop.unified_graph.node import Node


def invert(node: Node) -> Node | None:
    """An equivalent graph in which every result element gathers what is combined into it.

    None when the map looks indices up in a tensor, or is not affine in its axes.
    """
    return None
