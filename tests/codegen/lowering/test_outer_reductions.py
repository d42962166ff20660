"""Reductions along outer axes: blocks of neighbouring columns go through memory row by row."""

from __future__ import annotations

import numpy as np
import pytest

from metaop.codegen.lowering import Machine
from metaop.codegen.nest import ir
from metaop.codegen.schedule import Schedule
from metaop.compiler import schedule
from metaop.elementwise.meta_op import apply, where
from metaop.reduce.meta_op import reduce_axes
from metaop.reindex.views import broadcast_to, permute, reshape
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.access import IndexMap
from metaop.unified_graph.evaluation import evaluate
from metaop.unified_graph.node import Input, Node, index_node, input_node, topological
from tests.codegen.interpret import run_schedule
from tests.codegen.run_nest import check_nest

_ROWS, _COLUMNS = 48, 256


def _input(slot: int, *shape: int, dtype: dtypes.DType = dtypes.float32) -> Node:
    return input_node(slot, shape, dtype)


def _mean_and_extremes() -> list[Node]:
    x = _input(0, _ROWS, _COLUMNS)
    mean = reduce_axes("add", apply("square", x), [0]) / float(_ROWS)
    return [mean, reduce_axes("max", x, [0]), reduce_axes("amin", x, [0])]


def _weighted() -> list[Node]:
    x, scale = _input(0, _ROWS, _COLUMNS), _input(1, _ROWS, 1)
    return [reduce_axes("add", x * broadcast_to(scale, x.shape), [0])]


def _vector_by_matrix() -> list[Node]:
    """The reduced axis comes last, and its neighbours lie apart in the matrix."""
    vector, matrix = _input(0, 1, 1, _ROWS), _input(1, _ROWS, _COLUMNS)
    box = (1, _COLUMNS, _ROWS)
    transposed = broadcast_to(reshape(permute(matrix, (1, 0)), box), box)
    return [reduce_axes("add", broadcast_to(vector, box) * transposed, [2])]


def _place_of_maximum() -> list[Node]:
    x = _input(0, _ROWS, _COLUMNS)
    largest = reduce_axes("max", x, [0], keepdim=True)
    row = index_node(IndexMap.axes(x.shape)[0], x.shape)
    found = where(x.equals(largest), row, _ROWS)
    return [reduce_axes("min", found, [0])]


def _values_and_their_sums() -> list[Node]:
    """What a bias gets in the backward pass: a gradient, stored, and its sum; both are exact."""
    x, given = _input(0, _ROWS, 2 * _COLUMNS), _input(1, _ROWS, 2 * _COLUMNS)
    gradient = given * apply("exp2", x)
    return [gradient, reduce_axes("add", gradient, [0])]


GRAPHS = {
    "values and their sums": _values_and_their_sums,
    "the place of the maximum": _place_of_maximum,
    "sums": lambda: [reduce_axes("add", _input(0, _ROWS, _COLUMNS), [0])],
    "a middle axis": lambda: [reduce_axes("add", _input(0, 3, 37, 384), [1])],
    "several outer axes": lambda: [reduce_axes("add", _input(0, 5, 9, 2, 128), [0, 1])],
    "mean and extremes": _mean_and_extremes,
    "a factor for each row": _weighted,
    "a vector by a matrix": _vector_by_matrix,
    "float64": lambda: [reduce_axes("mul", _input(0, 51, 160, dtype=dtypes.float64), [0])],
    "integers": lambda: [reduce_axes("add", _input(0, 40, 128, dtype=dtypes.int64), [0])],
}


def _scheduled(name: str, threads: int = 1) -> tuple[Schedule, list[np.ndarray], list[np.ndarray]]:
    """The schedule of a graph, values of its inputs with a NaN among them, and the results."""
    outputs = GRAPHS[name]()
    inputs = sorted(_inputs(outputs), key=lambda node: node.op.slot)  # type: ignore[attr-defined]
    generator = np.random.default_rng(1)
    arrays = [generator.integers(-2, 3, node.size).astype(node.dtype.numpy) for node in inputs]
    if arrays[0].dtype == np.float32:
        arrays[0][3], arrays[0][5] = np.nan, -np.inf
    expected = evaluate(outputs, [x.reshape(n.shape) for x, n in zip(arrays, inputs)])
    return schedule(inputs, outputs, Machine(threads=threads)), arrays, expected


def _inputs(outputs: list[Node]) -> set[Node]:
    return {node for node in topological(outputs) if isinstance(node.op, Input)}


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("threads", [1, 4])
def test_columns_compute_what_the_graph_means(name: str, threads: int) -> None:
    plan, arrays, expected = _scheduled(name, threads)
    assert any(launch.nest.name.startswith("columns") for launch in plan.launches)
    for actual, wanted in zip(run_schedule(plan, arrays), expected):
        np.testing.assert_allclose(actual, wanted, rtol=1e-5)


@pytest.mark.usefixtures("target")
@pytest.mark.parametrize("name", GRAPHS)
def test_machine_code_agrees_with_the_interpreter(name: str) -> None:
    plan, arrays, _ = _scheduled(name)
    (launch,) = plan.launches
    values = dict(zip(plan.inputs, arrays))
    buffers = [values.get(node, np.zeros(node.size, node.dtype.numpy)) for node in launch.buffers]
    check_nest(launch.nest, buffers, pieces=2)


def test_what_is_read_across_or_stored_by_a_later_pass_is_left_to_other_schedules() -> None:
    x = _input(0, _ROWS, _COLUMNS)
    centred = x - reduce_axes("add", x, [0], keepdim=True)
    for outputs in ([centred], [reduce_axes("add", x, [1])]):
        names = [launch.nest.name for launch in schedule([x], outputs).launches]
        assert not any(name.startswith("columns") and len(names) == 1 for name in names)


def test_values_of_rows_are_stored_by_as_many_tasks_as_there_are_threads() -> None:
    outputs = _values_and_their_sums()
    for threads, name in ((2, "columns"), (64, "rows")):
        plan = schedule([*_inputs(outputs)], outputs, Machine(threads=threads))
        assert plan.launches[0].nest.name.startswith(name)


def test_a_value_that_no_later_pass_reads_is_not_stored() -> None:
    x = _input(0, 7, 48)
    squares = apply("square", x)
    outputs = [squares * 3.0, reduce_axes("add", squares + 1.0, [0])]
    (launch,) = schedule([x], outputs).launches
    assert set(launch.buffers) == {x, *outputs}


@pytest.mark.parametrize(("reducer", "rows"), [("max", [4, 5, 6, 7]), ("add", [])])
def test_columns_that_are_compared_ask_for_the_next_rows(reducer: str, rows: list[int]) -> None:
    x = _input(0, _ROWS, _COLUMNS)
    (launch,) = schedule([x], [reduce_axes(reducer, x, [0])], Machine()).launches
    (tasks,) = launch.nest.body
    assert isinstance(tasks, ir.For)
    along = next(part for part in tasks.body if isinstance(part, ir.For) and not part.vector)
    (columns,) = along.body
    assert isinstance(columns, ir.For)
    asked = [part.offset for part in columns.body if isinstance(part, ir.Prefetch)]
    assert sorted(offset.constant // _COLUMNS for offset in asked) == rows
