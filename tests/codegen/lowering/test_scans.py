"""Reductions over a triangle run along with one result, on every axis and in both directions."""

from __future__ import annotations

import numpy as np
import pytest

from metaop.codegen.schedule import Schedule
from metaop.compiler import schedule
from metaop.reduce.meta_op import reduce_axes
from metaop.reindex.meta_op import reindex
from metaop.reindex.views import pad
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.access import IndexMap, Within
from metaop.unified_graph.evaluation import evaluate
from metaop.unified_graph.node import Node, input_node
from tests.codegen.interpret import run_schedule
from tests.codegen.run_nest import check_nest

F32, F64, I64 = dtypes.float32, dtypes.float64, dtypes.int64


def scans(
    source: Node, dim: int, reducer: str = "add", backwards: bool = False, least: int = 0
) -> Node:
    """Element `i` along `dim` combines the elements `j <= i`; those beyond, if backwards.

    `least` is how far `j` stays away from `i`.
    """
    length = source.shape[dim]
    shape = (*source.shape[: dim + 1], length, *source.shape[dim + 1 :])
    axes = IndexMap.axes(shape)
    distance = axes[dim] - axes[dim + 1]
    guard = Within((-distance if backwards else distance) - least, length)
    taken = IndexMap(shape, (*axes[:dim], *axes[dim + 1 :]), [guard])
    fill = {"add": 0, "max": source.dtype.lowest, "mul": 1}[reducer]
    return reduce_axes(reducer, reindex(source, taken, fill), [dim + 1])


def _padded(backwards: bool) -> Node:
    return scans(pad(input_node(0, (4, 45), F32), (0, 2), (0, 3), 0), 1, backwards=backwards)


def _with_maps(backwards: bool) -> Node:
    """Maps that read the result, and what has been scanned."""
    source = input_node(0, (5, 61), F32)
    return scans(source, 1, backwards=backwards) * 2.0 - source


GRAPHS = {
    "along rows": lambda: scans(input_node(0, (5, 61), F32), 1),
    "along columns": lambda: scans(input_node(0, (20, 37), F32), 0),
    "a middle axis": lambda: scans(input_node(0, (3, 17, 6), F32), 1),
    "alone": lambda: scans(input_node(0, (62,), F32), 0),
    "one vector": lambda: scans(input_node(0, (6, 16), F32), 1),
    "backwards along rows": lambda: scans(input_node(0, (5, 41), F32), 1, backwards=True),
    "backwards along columns": lambda: scans(input_node(0, (20, 37), F32), 0, backwards=True),
    "maxima": lambda: scans(input_node(0, (4, 63), F32), 1, "max"),
    "products": lambda: scans(input_node(0, (4, 39), F64), 1, "mul"),
    "integers": lambda: scans(input_node(0, (4, 39), I64), 1),
    "with maps behind": lambda: _with_maps(False),
    "with maps behind, backwards": lambda: _with_maps(True),
    "columns with maps behind": lambda: scans(input_node(0, (20, 37), F32), 0) * 2.0,
    "padded": lambda: _padded(False),
    "padded, backwards": lambda: _padded(True),
}


def _scheduled(output: Node) -> tuple[Schedule, np.ndarray, np.ndarray]:
    """The schedule of a graph, its input, in which there is a NaN, and its result."""
    source = output
    while source.inputs:
        source = source.inputs[0]
    generator = np.random.default_rng(2)
    array = generator.integers(-2, 3, source.shape).astype(source.dtype.numpy)
    if source.dtype is F32:
        array.reshape(-1)[-7] = np.nan
    (expected,) = evaluate([output], [array])
    return schedule([source], [output]), array, expected


@pytest.mark.usefixtures("target")
@pytest.mark.parametrize("name", GRAPHS)
def test_scans_compute_what_the_graph_means(name: str) -> None:
    plan, array, expected = _scheduled(GRAPHS[name]())
    (launch,) = plan.launches
    assert launch.nest.name.startswith("scan")
    (actual,) = run_schedule(plan, [array])
    np.testing.assert_allclose(actual, expected, rtol=1e-5)
    flat = array.reshape(-1)
    buffers = [
        flat if node in plan.inputs else np.zeros(node.size, node.dtype.numpy)
        for node in launch.buffers
    ]
    check_nest(launch.nest, buffers, pieces=2)


def test_other_comparisons_are_no_scans() -> None:
    source = input_node(0, (6, 80), F32)
    for output in (scans(source, 1, least=1), reduce_axes("add", source, [1])):
        plan, array, expected = _scheduled(output)
        assert not any(one.nest.name.startswith("scan") for one in plan.launches)
        np.testing.assert_allclose(run_schedule(plan, [array])[0], expected, rtol=1e-5)
