"""Distances between the rows of two matrices."""

from __future__ import annotations

from metaop.elementwise.meta_op import apply
from metaop.operators.reduction import vector_norm
from metaop.reduce.meta_op import reduce_axes
from metaop.reindex.views import unsqueeze
from metaop.unified_graph.composite import composite
from metaop.unified_graph.node import Node


@composite
def pairwise(left: Node, right: Node, order: float) -> Node:
    """The norm of every difference of rows: (…, m, k), (…, n, k) -> (…, m, n).

    Differences, not the expanded square, so that near rows have exact distances.
    """
    difference = unsqueeze(left, left.ndim - 1) - unsqueeze(right, right.ndim - 2)
    return of_differences(difference, order)


@composite
def of_differences(difference: Node, order: float) -> Node:
    """The norm over the last axis; of order 0 the number of differences, NaN if one is NaN."""
    last = (difference.ndim - 1,)
    if order == 0:
        return reduce_axes(
            "add", apply("clamp_max", apply("ceil", apply("abs", difference)), 1), last
        )
    return vector_norm(difference, order, last, False, difference.dtype)
