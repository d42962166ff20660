"""Rows of a table replaced: a write by index that begins with the table, not with an identity.

It is what an optimizer does to the rows that a batch has used. The table is copied, unless nobody
needs the old one: then the result takes its memory, and only the rows are written.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from metaop.errors import UnsupportedError
from metaop.unified_graph.access import Access
from metaop.unified_graph.node import MetaOp, Node


@dataclass(frozen=True)
class Replacement(MetaOp):
    """`y = base`, then `y[rows[i]] = x[i]`.

    The dimensions of `base` in front of those of a row of `x` (count, …) are numbered as one, and
    so are those of `rows`. Rows that stand twice there are equal in `x`: either may stay.
    """

    name: ClassVar[str] = "replace"
    is_alone: ClassVar[bool] = True

    def access(self, node: Node) -> Access:
        raise UnsupportedError(
            "rows of a table that is spread over ranks cannot be replaced",
            fix="use dense gradients: omit sparse=True",
        )

    def reference(self, node: Node, inputs: Sequence[np.ndarray]) -> np.ndarray:
        base, rows, values = inputs
        result = base.copy()
        if rows.size and (rows.min() < 0 or rows.max() >= row_count(node)):
            raise IndexError(f"a row lies outside a table of {row_count(node)} rows")
        result.reshape(-1, *values.shape[1:])[rows.reshape(-1)] = values
        return result


def row_length(node: Node) -> int:
    """How many elements a row has that is replaced."""
    return math.prod(node.inputs[2].shape[1:])


def row_count(node: Node) -> int:
    """How many rows the table has."""
    return node.size // row_length(node)


def replace_rows(base: Node, rows: Node, values: Node) -> Node:
    """`base` with `values` (count, …) in the `rows`, count numbers of its leading dimensions."""
    if not values.size:
        return base
    return Node(Replacement(), (base, rows, values), base.shape, base.dtype)
