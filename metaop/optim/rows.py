"""Update rules for sparse gradients: only the rows that were looked up are updated."""

from __future__ import annotations

import math
from collections.abc import Callable

from metaop.elementwise.meta_op import cast
from metaop.operators.distinct import run_numbers, runs
from metaop.reduce.meta_op import reduce_with_map
from metaop.reduce.replacement import replace_rows
from metaop.reindex.meta_op import reindex
from metaop.reindex.views import reshape, slice_dimension, take
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.access import IndexMap
from metaop.unified_graph.composite import Composite
from metaop.unified_graph.index_expr import constant, lookup
from metaop.unified_graph.node import Node, Shape


def rows_composite(name: str, rule: Callable[..., tuple[Node, ...]]) -> Composite:
    """The composite that applies `rule` to the rows of a parameter in its sparse gradient.

    Its inputs are the parameter, the indices (dimensions, count) and values (count, …) of the
    gradient, the states, then the numbers. Its results are the new parameter and states. Each
    index computes its row from the sum of all gradients of that row, so duplicate indices write
    equal rows, and the sizes in a program do not depend on the number of duplicates.
    """

    def expansion(
        inputs: tuple[Node, ...], count: int, names: tuple[str, ...], flags: tuple[str, ...]
    ) -> tuple[Node, ...]:
        stop = len(inputs) - len(names)
        x, places, values, *state = inputs[:stop]
        compute = x.dtype.compute
        numbers = {k: cast(v, compute) for k, v in zip(names, inputs[stop:])}
        index = _row_numbers(places, x.shape)
        gradient = _sums(index, cast(values, compute), math.prod(x.shape[: places.shape[0]]))
        if "maximize" in flags:
            gradient = -gradient
        tables = (x, *state)
        rows = [cast(_rows(table, index, values.shape[1:]), compute) for table in tables]
        updated = rule(rows[0], gradient, tuple(rows[1:]), numbers, flags)
        return tuple(
            replace_rows(table, index, cast(new, table.dtype))
            for table, new in zip(tables, updated)
        )

    return Composite(name, expansion, variadic=True, differentiable=False)


def _row_numbers(places: Node, shape: Shape) -> Node:
    """The flat row numbers (1, count) of indices (dimensions, count).

    With one dimension these are the indices themselves, which are already checked.
    """
    found = slice_dimension(places, 0, 0, 1)
    for dim in range(1, places.shape[0]):
        found = found * shape[dim] + slice_dimension(places, 0, dim, 1)
    return found


def _rows(table: Node, index: Node, row: Shape) -> Node:
    table = reshape(table, (table.size // math.prod(row), *row))
    axes = IndexMap.axes((index.size, *row))
    places = [lookup(1, (constant(0), axes[0]), table.shape[0]), *axes[1:]]
    return reindex(table, IndexMap((index.size, *row), places), 0, (index,))


def _sums(index: Node, values: Node, rows: int) -> Node:
    """For each index, the sum of the values of its row, in order."""
    count = index.size
    index = reshape(index, (count,))
    short = rows <= dtypes.int32.highest
    counts, _, order = runs(cast(index, dtypes.int32) if short else index, True)
    numbers = run_numbers(counts, order)
    axes = IndexMap.axes(values.shape)
    target = IndexMap(values.shape, [lookup(1, axes[:1], count), *axes[1:]])
    return take(reduce_with_map("add", values, target, values.shape, (numbers,)), 0, numbers)
