"""Distances between rows of matrices."""

from __future__ import annotations

from metaop.elementwise.meta_op import apply
from metaop.operators.expressions import in_compute_type
from metaop.operators.reduction import vector_norm
from metaop.reduce.meta_op import reduce_axes
from metaop.reindex.views import reshape, take, unsqueeze
from metaop.unified_graph.composite import composite
from metaop.unified_graph.node import Node


@composite
def pairwise(left: Node, right: Node, order: float) -> Node:
    """The norm of every difference of rows: (…, m, k), (…, n, k) -> (…, m, n).

    It subtracts rows instead of expanding the square, which would be inaccurate for close rows.
    """
    difference = unsqueeze(left, left.ndim - 1) - unsqueeze(right, right.ndim - 2)
    return _norm_of(difference, order)


@composite
@in_compute_type
def pair_distances(input: Node, places: Node, order: float) -> Node:
    """The distances at some places of the flattened matrix of all distances between rows.

    Reading rows by number for each pair, and adding to them, takes longer than all distances.
    """
    distances = _norm_of(unsqueeze(input, 1) - unsqueeze(input, 0), order)
    return take(reshape(distances, (distances.size,)), 0, places)


def _norm_of(difference: Node, order: float) -> Node:
    """The norm over the last axis; order 0 counts nonzero differences, or is NaN if one is NaN."""
    last = (difference.ndim - 1,)
    if order == 0:
        differs = apply("clamp_max", apply("ceil", apply("abs", difference)), 1)
        return reduce_axes("add", differs, last)
    return vector_norm(difference, order, last, False, difference.dtype)
