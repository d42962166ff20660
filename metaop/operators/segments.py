"""Reductions over segments of rows, as in message passing on graphs."""

from __future__ import annotations

from metaop.elementwise.meta_op import apply, cast, where
from metaop.reduce.meta_op import reduce_rows
from metaop.reindex.views import reshape
from metaop.unified_graph.composite import composite
from metaop.unified_graph.node import Node


@composite
def segment_reduce(
    values: Node, segments: Node, sizes: Node, starts: Node | None, reducer: str
) -> Node:
    """Row `s` is the reduction of all rows `i` of `values` with `segments[i] == s`.

    `sizes` (rows of the result,) counts the members of each segment; empty ones give 0. If
    `segments` ascend, `starts` (rows + 1,) may say where each begins. `reducer` is "add", "mean",
    "mul", "amax" or "amin".
    """
    (count,) = sizes.shape
    combine = "add" if reducer == "mean" else reducer
    found = reduce_rows(combine, values, segments, count, starts)
    if reducer == "add":
        return found
    column = reshape(sizes, (count,) + (1,) * (values.ndim - 1))
    if reducer == "mean":
        return found / cast(apply("maximum", column, 1), values.dtype)
    return where(column > 0, found, 0)


@composite
def sum_of_rows(values: Node, rows: Node, starts: Node | None, count: int) -> Node:
    """Row `r` of the result is the sum of all `values[i]` with `rows[i] == r`.

    If `rows` ascend, `starts` (count + 1,) may say where each begins.
    """
    return reduce_rows("add", values, rows, count, starts)
