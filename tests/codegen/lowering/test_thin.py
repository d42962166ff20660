"""Thin contractions: nests interpreted, and machine code, against NumPy in float64."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from metaop.codegen.llvm.machine import host_machine
from metaop.codegen.lowering import Machine
from metaop.codegen.lowering.base.blocks import Tile
from metaop.codegen.schedule import Schedule
from metaop.compiler import schedule
from metaop.differentiation.transposition import pullback
from metaop.elementwise import apply
from metaop.operators.linear_algebra import matmul
from metaop.reindex import views
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.dtype import DType
from metaop.unified_graph.evaluation import evaluate
from metaop.unified_graph.node import Node, input_node
from tests.codegen.force import forcing_schedules
from tests.codegen.interpret import run_schedule
from tests.codegen.run_plan import run, values

Maker = Callable[[DType], tuple[list[Node], Node]]
TOLERANCES = {dtypes.float32: 1e-5, dtypes.float64: 1e-13, dtypes.bfloat16: 8e-3}


def matrix(
    number: int, shape: tuple[int, int], transposed: bool, dtype: DType
) -> tuple[Node, Node]:
    """An input, and the matrix of this shape that it is or that lies transposed in it."""
    node = input_node(number, shape[::-1] if transposed else shape, dtype)
    return node, views.transpose(node, 0, 1) if transposed else node


def product(
    sizes: tuple[int, int, int], form: str, dtype: DType = dtypes.float32
) -> tuple[list[Node], Node]:
    rows, columns, depth = sizes
    left, a = matrix(0, (rows, depth), form[0] == "T", dtype)
    right, b = matrix(1, (depth, columns), form[1] == "T", dtype)
    return [left, right], matmul(a, b)


def is_thin(plan: Schedule) -> bool:
    return plan.launches[-1].nest.name.startswith("thin")


def check(make: Maker, dtype: DType, machine: Machine | None = None) -> Schedule:
    """Compares the thin program of a graph with NumPy in float64."""
    nodes, output = make(dtype)
    _, exact = make(dtypes.float64)
    arrays = values(nodes)
    (wanted,) = evaluate([exact], [array.astype(np.float64) for array in arrays])
    plan = schedule(nodes, [output], machine or forcing_schedules(host_machine(), ["thin"]))
    found = run(plan, arrays, output).astype(np.float64)
    largest = np.abs(wanted).max()
    np.testing.assert_allclose(found, wanted, rtol=0, atol=TOLERANCES[dtype] * largest)
    return plan


@pytest.mark.parametrize("form", ["NN", "NT", "TN", "TT"])
@pytest.mark.parametrize("rows", [*range(2, 18), 23])
def test_few_rows(rows: int, form: str, target: str) -> None:
    for columns, depth in ((96, 256), (131, 203)):
        make = partial(product, (rows, columns, depth), form)
        assert is_thin(check(make, dtypes.float32))


@pytest.mark.parametrize("depth", [*range(4, 17)])
def test_sums_of_few_products(depth: int, target: str) -> None:
    for rows, columns, form in itertools.product((40, 37), (96, 59), ("NN", "TN")):
        make = partial(product, (rows, columns, depth), form)
        assert is_thin(check(make, dtypes.float32))


@pytest.mark.parametrize("dtype", [dtypes.float64, dtypes.bfloat16])
@pytest.mark.parametrize("form", ["NN", "NT", "TN"])
def test_types(dtype: DType, form: str, target: str) -> None:
    for sizes in ((3, 150, 170), (11, 64, 160), (64, 150, 9)):
        plan = check(partial(product, sizes, form), dtype)
        # Lanes cannot lie along a depth of nine steps.
        assert is_thin(plan) == (form != "NT" or sizes[2] > 9)


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize(
    "form, sizes", [("NN", (5, 260, 40)), ("NT", (5, 12, 140)), ("TN", (40, 36, 7))]
)
def test_nests_mean_the_product(form: str, sizes: tuple[int, int, int], threads: int) -> None:
    nodes, output = product(sizes, form)
    machine = forcing_schedules(Machine(Tile(rows=3), threads=threads), ["thin"])
    plan = schedule(nodes, [output], machine)
    assert is_thin(plan)
    arrays = values(nodes)
    (found,) = run_schedule(plan, arrays)
    (wanted,) = evaluate([output], arrays)
    np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-4)


@pytest.mark.parametrize("form", ["NN", "NT"])
def test_what_is_fused_before_and_behind(form: str, target: str) -> None:
    def make(dtype: DType) -> tuple[list[Node], Node]:
        (left, right), _ = product((6, 144, 200), form, dtype)
        bias, residue = (input_node(k, shape, dtype) for k, shape in ((2, (1, 144)), (3, (6, 144))))
        other = views.transpose(right, 0, 1) if form == "NT" else right
        output = apply("relu", matmul(apply("tanh", left), other) + bias) + residue
        return [left, right, bias, residue], output

    plan = check(make, dtypes.float32)
    assert is_thin(plan)
    assert len(plan.launches) <= 2


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("is_shared", [False, True])
def test_batches(transposed: bool, is_shared: bool, target: str) -> None:
    count, rows, columns, depth = 3, 5, 70, 140
    shape = (columns, depth) if transposed else (depth, columns)

    def make(dtype: DType) -> tuple[list[Node], Node]:
        left = input_node(0, (count, rows, depth), dtype)
        right = input_node(1, shape if is_shared else (count, *shape), dtype)
        axes = len(right.shape)
        other = views.transpose(right, axes - 2, axes - 1) if transposed else right
        return [left, right], matmul(left, other)

    assert is_thin(check(make, dtypes.float32))


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("form", ["NN", "NT"])
def test_gradients_of_a_layer_with_few_rows_are_thin(form: str, number: int, target: str) -> None:
    def make(dtype: DType) -> tuple[list[Node], Node]:
        nodes, output = product((8, 256, 512), form, dtype)
        given = input_node(2, output.shape, dtype)
        (gradient,) = pullback([output], [given], [nodes[number]])
        assert gradient is not None
        return [*nodes, given], gradient

    assert is_thin(check(make, dtypes.float32, host_machine()))


@pytest.mark.parametrize(
    "sizes, form",
    [((256, 256, 256), "NN"), ((64, 768, 768), "NT"), ((8, 256, 64), "NT"), ((64, 256, 16), "NT")],
)
def test_other_contractions_take_panels(sizes: tuple[int, int, int], form: str) -> None:
    nodes, output = product(sizes, form)
    assert not is_thin(schedule(nodes, [output], host_machine()))


def test_outer_reductions_that_no_number_of_tasks_shares_take_panels() -> None:
    nodes, output = product((4, 4099, 64), "NN")
    assert not is_thin(schedule(nodes, [output], host_machine()))
