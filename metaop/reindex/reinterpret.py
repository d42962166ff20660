"""The same memory as another type: complex numbers as pairs of real ones, and pairs as numbers.

It costs nothing: the compiler computes with the two parts of complex values anyway.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from metaop.reindex.views import select
from metaop.unified_graph.access import Access, IndexMap
from metaop.unified_graph.dtype import DType
from metaop.unified_graph.index_expr import constant
from metaop.unified_graph.node import MetaOp, Node, Shape


@dataclass(frozen=True)
class Reinterpret(MetaOp):
    """Numbers (…) as their parts (…, 2), or parts as numbers: the type of the result says which."""

    name: ClassVar[str] = "reinterpret"

    def access(self, node: Node) -> Access:
        # In units of numbers, of which both parts lie together.
        axes = IndexMap.axes(node.shape)
        indices = (*axes, constant(0)) if node.dtype.is_complex else axes[:-1]
        return Access(node.shape, (IndexMap(node.shape, indices),), IndexMap.identity(node.shape))

    def reference(self, node: Node, inputs: Sequence[np.ndarray]) -> np.ndarray:
        whole = np.array(inputs[0], order="C")
        # A view of a number without dimensions cannot change its type.
        return whole.reshape(-1).view(node.dtype.numpy).reshape(node.shape)


def as_pairs(node: Node) -> Node:
    """The real and imaginary parts of complex numbers along a new last dimension."""
    return _reinterpreted(node, (*node.shape, 2), node.dtype.part)


def as_numbers(node: Node) -> Node:
    """The pairs along the last dimension as complex numbers."""
    return _reinterpreted(node, node.shape[:-1], node.dtype.whole)


def _reinterpreted(node: Node, shape: Shape, dtype: DType) -> Node:
    if isinstance(node.op, Reinterpret):
        return node.inputs[0]
    return Node(Reinterpret(), (node,), shape, dtype)


def real_part(node: Node) -> Node:
    """The real parts of complex numbers."""
    return select(as_pairs(node), node.ndim, 0)


def imaginary_part(node: Node) -> Node:
    """The imaginary parts of complex numbers."""
    return select(as_pairs(node), node.ndim, 1)
