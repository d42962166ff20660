"""The order of rows: the one map that is found from all values of a row, by sorting them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from metaop.errors import ShapeError
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph import index_expr
from metaop.unified_graph.access import Access, IndexMap
from metaop.unified_graph.node import MetaOp, Node

KEY_TYPES = (dtypes.uint8, dtypes.int8, dtypes.int16, dtypes.int32)
# The number of an element and its key share a word.
LONGEST_ROW = 1 << 32


@dataclass(frozen=True)
class Order(MetaOp):
    """`y[r, k]` is the place in row `r` of its `k`-th smallest key; equal keys keep their order.

    The rows of the input lie along its last dimension. A reindex by the result sorts whatever
    belongs to the keys.
    """

    name: ClassVar[str] = "order"
    is_alone: ClassVar[bool] = True

    def access(self, node: Node) -> Access:
        # A row is touched as a whole, so the box has the rows as its points.
        rows = node.shape[:-1]
        first = IndexMap(rows, (*IndexMap.axes(rows), index_expr.constant(0)))
        return Access(rows, (first,), first)

    def reference(self, node: Node, inputs: Sequence[np.ndarray]) -> np.ndarray:
        return np.argsort(inputs[0], axis=-1, kind="stable").astype(np.int64)


def order(keys: Node) -> Node:
    """The stable order of the rows of integer keys of at most 32 bits, as int64 places."""
    assert keys.dtype in KEY_TYPES, keys
    length = keys.shape[-1]
    if length >= LONGEST_ROW:
        raise ShapeError(
            f"rows of {length} elements cannot be sorted, only shorter ones than 2 ** 32",
            fix="sort parts and merge them",
        )
    return Node(Order(), (keys,), keys.shape, dtypes.int64)
