"""Distances between the rows of two matrices."""

from __future__ import annotations

from metaop.operators.reduction import vector_norm
from metaop.reindex.views import unsqueeze
from metaop.unified_graph.composite import composite
from metaop.unified_graph.node import Node


@composite
def pairwise(left: Node, right: Node, order: float) -> Node:
    """The norm of every difference of rows: (…, m, k), (…, n, k) -> (…, m, n).

    Differences, not the expanded square, so that near rows have exact distances.
    """
    difference = unsqueeze(left, left.ndim - 1) - unsqueeze(right, right.ndim - 2)
    return vector_norm(difference, order, (difference.ndim - 1,), False, difference.dtype)
