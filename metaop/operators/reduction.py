"""Reductions over dimensions."""

from __future__ import annotations

from metaop.elementwise.meta_op import cast
from metaop.reduce.meta_op import reduce_axes
from metaop.unified_graph.composite import composite
from metaop.unified_graph.dtype import DType
from metaop.unified_graph.node import Node


@composite
def sum(source: Node, dims: tuple[int, ...], keepdim: bool, dtype: DType) -> Node:
    """The sum over `dims`, accumulated in `dtype`."""
    return reduce_axes("add", cast(source, dtype), dims, keepdim)
