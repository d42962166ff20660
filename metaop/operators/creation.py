"""Tensors without tensor inputs: ranges and the identity matrix."""

from __future__ import annotations

from metaop.elementwise.meta_op import cast, where
from metaop.unified_graph import index_expr
from metaop.unified_graph.composite import composite
from metaop.unified_graph.dtype import DType
from metaop.unified_graph.node import Node, constant, index_node
from metaop.unified_graph.symbolic import as_float


def iota(extent: int) -> Node:
    """0, 1, …, extent - 1 as int64."""
    return index_node(index_expr.axis(0, extent), (extent,))


@composite
def arange(start: Node | None, step: Node | None, extent: int, dtype: DType) -> Node:
    """`start + i * step`, computed in the type of the arguments; the defaults are 0 and 1."""
    values = iota(extent)
    given = step if step is not None else start
    if given is not None:
        values = cast(values, given.dtype)
    if step is not None:
        values = values * step
    if start is not None:
        values = values + start
    return cast(values, dtype)


@composite
def linspace(start: Node, end: Node, steps: int, dtype: DType) -> Node:
    """`steps` evenly spaced numbers from `start` to `end`, both included, exact at both ends."""
    if steps == 1:
        return cast(start, dtype) + cast(iota(1), dtype)
    position = cast(iota(steps), start.dtype)
    width = (end - start) / as_float(steps - 1)
    from_start = start + position * width
    from_end = end - (as_float(steps - 1) - position) * width
    return cast(where(position < steps / 2, from_start, from_end), dtype)


@composite(variadic=True)
def eye(inputs: tuple[Node, ...], rows: int, columns: int, dtype: DType) -> Node:
    """A matrix with ones on its diagonal; the one is compiled in, or is the only input."""
    row = index_node(index_expr.axis(0, rows), (rows, columns))
    column = index_node(index_expr.axis(1, columns), (rows, columns))
    is_diagonal = row.equals(column)
    if not inputs:
        return cast(is_diagonal, dtype)
    return where(is_diagonal, cast(inputs[0], dtype), constant(0, dtype))
