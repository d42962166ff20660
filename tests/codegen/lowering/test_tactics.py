"""Every schedule, register tile and block size of contractions, forced, against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from metaop.codegen.llvm.machine import host_machine
from metaop.codegen.lowering import Machine
from metaop.codegen.lowering.strategy import Tactic
from metaop.codegen.schedule import Schedule
from metaop.compiler import schedule
from metaop.differentiation.transposition import pullback
from metaop.elementwise import apply
from metaop.fusion import recognise
from metaop.operators.convolution import convolution
from metaop.operators.linear_algebra import matmul
from metaop.reindex import views
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.dtype import DType
from metaop.unified_graph.evaluation import evaluate
from metaop.unified_graph.node import Node, input_node
from tests.codegen.force import forcing, with_every_size
from tests.codegen.run_plan import run, values

Graph = tuple[list[Node], Node]
Maker = Callable[[np.random.Generator, DType], Graph]


def product(random: np.random.Generator, dtype: DType) -> Graph:
    """A product of matrices, each transposed or not, with a bias and a rectifier behind."""
    rows, columns, depth = (int(random.integers(17, 90)) for _ in range(3))
    transposed = random.integers(0, 2, 2).astype(bool)
    left = input_node(0, (depth, rows) if transposed[0] else (rows, depth), dtype)
    right = input_node(1, (columns, depth) if transposed[1] else (depth, columns), dtype)
    bias = input_node(2, (1, columns), dtype)
    a = views.transpose(left, 0, 1) if transposed[0] else left
    b = views.transpose(right, 0, 1) if transposed[1] else right
    return [left, right, bias], apply("relu", matmul(a, b) + bias)


def batch(random: np.random.Generator, dtype: DType) -> Graph:
    """Several products, of a left factor that is computed on the way."""
    count, rows, columns, depth = (int(random.integers(3, 40)) for _ in range(4))
    left = input_node(0, (count, rows, depth), dtype)
    right = input_node(1, (count, depth, columns), dtype)
    return [left, right], matmul(apply("tanh", left), right)


def forward(random: np.random.Generator, dtype: DType) -> Graph:
    """A convolution of some window, stride, dilation, padding and number of groups."""
    groups = int(random.choice([1, 1, 2]))
    inputs, outputs = (groups * int(random.integers(3, 12)) for _ in range(2))
    taps = int(random.choice([1, 3, 3, 5]))
    stride = int(random.choice([1, 1, 2]))
    dilation = int(random.choice([1, 1, 2]))
    padding, size = taps // 2 * dilation, int(random.integers(11, 18))
    nodes = [
        input_node(0, (int(random.integers(1, 4)), inputs, size, size - 1), dtype),
        input_node(1, (outputs, inputs // groups, taps, taps), dtype),
    ]
    pads = (padding, padding)
    steps = (stride, stride)
    result = convolution(*nodes, None, steps, pads, pads, (dilation, dilation), groups)
    return nodes, result


def _gradient(random: np.random.Generator, dtype: DType, by: int) -> Graph:
    nodes, output = forward(random, dtype)
    given = input_node(2, output.shape, dtype)
    (result,) = pullback([output], [given], [nodes[by]])
    assert result is not None
    return [*nodes, given], result


def by_input(random: np.random.Generator, dtype: DType) -> Graph:
    """The gradient of such a convolution by its input."""
    return _gradient(random, dtype, 0)


def by_weight(random: np.random.Generator, dtype: DType) -> Graph:
    """The gradient by the weight."""
    return _gradient(random, dtype, 1)


def small_blocks() -> Machine:
    """This machine with blocks of which small contractions have several."""
    host = host_machine()
    depth, columns = 48, 2 * max(columns for _, columns in host.tiles)
    blocks = {"depth": depth, "block_columns": columns}
    narrow = host.tile.narrow
    if narrow is not None:
        narrow = replace(narrow, block_rows=2 * narrow.rows, **blocks)
    tile = replace(host.tile, block_rows=2 * host.tile.rows, narrow=narrow, **blocks)
    return replace(host, tile=tile)


def every_plan(graph: Graph, machine: Machine) -> list[tuple[str, Schedule]]:
    """The programs of a graph with every tactic that launches something of its own."""
    found: list[tuple[str, Schedule]] = []
    number, count = 0, 1
    while number < count:
        names = []

        def pick(tactics: list[Tactic], number: int = number, names: list[str] = names) -> Tactic:
            nonlocal count
            sized = with_every_size(tactics, machine)
            count = max(count, len(sized))
            names.append(str(sized[min(number, len(sized) - 1)]))
            return sized[min(number, len(sized) - 1)]

        plan = schedule(*graph[:1], [graph[1]], forcing(machine, pick))
        if all(plan.launches != other.launches for _, other in found):
            found.append(("; ".join(names), plan))
        number += 1
    return found


# Among them are windows of three taps and of five, strides, dilations and groups.
CASES = [
    *((product, 0), (product, 1), (batch, 1)),
    *((forward, 0), (forward, 1), (forward, 2)),
    *((by_input, 1), (by_input, 4), (by_weight, 1), (by_weight, 4)),
]


@pytest.mark.parametrize("make, seed", CASES)
def test_every_tactic_computes_the_same(
    make: Maker, seed: int, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recognise, "LEAST_WORK", 0)
    compare(make, seed, dtypes.float32, 1e-5)


@pytest.mark.parametrize("make, seed", [(product, 0), (product, 1)])
def test_every_tactic_of_narrow_factors_computes_the_same(
    make: Maker, seed: int, target: str
) -> None:
    compare(make, seed, dtypes.bfloat16, 5e-3)


def compare(make: Maker, seed: int, dtype: DType, tolerance: float) -> None:
    """Runs a graph with every tactic, and in float64 in NumPy."""
    nodes, output = graph = make(np.random.default_rng(seed), dtype)
    _, exact = make(np.random.default_rng(seed), dtypes.float64)
    arrays = values(nodes, seed)
    (wanted,) = evaluate([exact], [array.astype(np.float64) for array in arrays])
    plans = every_plan(graph, small_blocks())
    assert len(plans) > 1
    for name, plan in plans:
        error = np.abs(run(plan, arrays, output).astype(np.float64) - wanted).max()
        assert error < tolerance * np.abs(wanted).max(), name
