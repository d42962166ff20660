"""Maps whose index expressions divide the last axis: quotient and remainder get loops."""

from __future__ import annotations

import numpy as np
import pytest

from metaop.codegen.nest.show import show_nest
from metaop.compiler import schedule
from metaop.reindex.meta_op import reindex
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.access import IndexMap, Within
from metaop.unified_graph.evaluation import evaluate
from metaop.unified_graph.node import Node, input_node, topological
from tests.codegen.interpret import run_schedule
from tests.codegen.run_nest import check_nest

_ROWS = 6


def _x(width: int, dtype: dtypes.DType = dtypes.float32) -> Node:
    return input_node(0, (_ROWS, width), dtype)


def _repeated(width: int, times: int, dtype: dtypes.DType = dtypes.float32) -> Node:
    """Every element several times, beside each other."""
    shape = (_ROWS, width * times)
    row, column = IndexMap.axes(shape)
    return reindex(_x(width, dtype), IndexMap(shape, [row, column // times]))


def _between(width: int, times: int) -> Node:
    """Neighbours mixed, as in interpolation; beyond the border lies zero."""
    shape = (_ROWS, width * times)
    row, column = IndexMap.axes(shape)
    parts = []
    for step in (-1, 0):
        place = column // times + (column % times + 1) // 2 + step
        taken = IndexMap(shape, [row, place], [Within(place, width)])
        parts.append(reindex(_x(width), taken, 0) * (3.0 + step))
    return parts[0] + parts[1]


GRAPHS = {
    "twice": (lambda: _repeated(40, 2), "side by side"),
    "twice, in float64": (lambda: _repeated(40, 2, dtypes.float64), "side by side"),
    "four times": (lambda: _repeated(33, 4), "side by side"),
    "between": (lambda: _between(56, 2), "side by side"),
    "between, four": (lambda: _between(20, 4), "side by side"),
    "three times": (lambda: _repeated(40, 3), "whole"),
    "few": (lambda: _repeated(5, 2), "whole"),
    "runs that fill vectors": (lambda: _repeated(9, 32), "runs"),
}


@pytest.mark.usefixtures("target")
@pytest.mark.parametrize("name", GRAPHS)
def test_divided_maps_compute_what_the_graph_means(name: str) -> None:
    make, form = GRAPHS[name]
    output = make()
    source = next(node for node in topological([output]) if not node.inputs and node.shape)
    array = np.random.default_rng(0).normal(size=source.shape).astype(source.dtype.numpy)
    plan = schedule([source], [output])
    (launch,) = plan.launches
    text = show_nest(launch.nest)
    assert ("i1q" in text, "i1r" in text) == {
        "side by side": (True, False),
        "runs": (False, True),
        "whole": (False, False),
    }[form], text
    (expected,) = evaluate([output], [array])
    (actual,) = run_schedule(plan, [array])
    np.testing.assert_allclose(actual, expected, rtol=1e-6)
    flat = array.reshape(-1)
    buffers = [flat if n is source else np.zeros(n.size, n.dtype.numpy) for n in launch.buffers]
    check_nest(launch.nest, buffers, pieces=2)
