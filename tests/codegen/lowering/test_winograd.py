"""Winograd's method: nests interpreted, and machine code, against plain sums in float64."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np
import pytest

from metaop.codegen.llvm.machine import host_machine
from metaop.codegen.lowering import Machine, strategies
from metaop.codegen.lowering.winograd.short_products import short_product
from metaop.compiler import schedule
from metaop.differentiation.transposition import pullback
from metaop.elementwise import apply
from metaop.fusion import recognise
from metaop.operators.convolution import convolution
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.dtype import DType
from metaop.unified_graph.node import Node, input_node
from tests.codegen.force import forcing_schedules
from tests.codegen.interpret import run_schedule
from tests.codegen.run_plan import run

# inputs, weights, padding, dilation, groups
CASES = [
    ((2, 3, 13, 10), (8, 3, 3, 3), (1, 1), (1, 1), 1),
    ((1, 4, 5, 6), (5, 4, 3, 3), (0, 2), (1, 1), 1),
    ((3, 2, 7, 7), (20, 2, 3, 3), (1, 1), (1, 1), 1),
    ((2, 6, 8, 9), (4, 6, 3, 3), (1, 1), (1, 1), 1),
    ((2, 3, 9, 11), (4, 3, 5, 3), (2, 1), (1, 1), 1),
    ((2, 4, 9, 12), (6, 4, 5, 5), (2, 2), (1, 1), 1),
    ((2, 3, 40), (6, 3, 5), (2,), (1,), 1),
    ((2, 3, 9, 12), (4, 3, 3, 3), (2, 1), (2, 1), 1),
    ((2, 3, 40), (6, 3, 3), (1,), (1,), 1),
    ((1, 2, 5, 6, 7), (4, 2, 3, 3, 3), (1, 1, 1), (1, 1, 1), 1),
    ((1, 2, 4, 2, 6), (4, 2, 3, 3, 3), (1, 1, 0), (1, 1, 1), 1),
    ((3, 70, 9, 14), (150, 70, 3, 3), (1, 1), (1, 1), 1),
]


# Relative to the largest result; rounding as the module states it, with a margin for outliers.
TOLERANCE = {2: 2e-6, 4: 1e-5}


@pytest.fixture(autouse=True, params=[2, 4])
def results(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Short products for so many results along every axis, and small contractions as well."""
    monkeypatch.setattr(recognise, "LEAST_WORK", 0)
    monkeypatch.setattr(strategies, "_MOST_EXCESS", math.inf)
    return int(request.param)


def machine(results: int) -> Machine:
    """Short products even where they do not pay."""
    host = dataclasses.replace(host_machine(), without=("stencil",))
    # Windows of five taps have two results at a time.
    sizes = [f"{outer}x{inner}" for outer in (results, 2, 1) for inner in (results, 2)]
    names = [*(f"winograd {size}" for size in dict.fromkeys(sizes)), "long windows"]
    return forcing_schedules(host, names)


def case(number: int, dtype: DType = dtypes.float32) -> tuple[list[Node], Node]:
    shape, window, padding, dilation, groups = CASES[number]
    nodes = [input_node(0, shape, dtype), input_node(1, window, dtype)]
    ones = (1,) * len(padding)
    return nodes, convolution(*nodes, None, ones, padding, padding, dilation, groups)


def with_bias(number: int, dtype: DType = dtypes.float32) -> tuple[list[Node], Node]:
    """A convolution of twice the inputs, then a bias, a residual and a rectifier."""
    shape, window, padding, dilation, groups = CASES[number]
    ones = (1,) * len(padding)
    nodes = [input_node(0, shape, dtype), input_node(1, window, dtype)]
    result = convolution(nodes[0] * 2, nodes[1], None, ones, padding, padding, dilation, groups)
    bias = input_node(2, (1, window[0], *ones), dtype)
    residual = input_node(3, result.shape, dtype)
    return [*nodes, bias, residual], apply("relu", result + bias + residual)


def by_weight(number: int, dtype: DType = dtypes.float32) -> tuple[list[Node], Node]:
    """The gradient by the weight, subtracted from it as a step of gradient descent does."""
    nodes, output = case(number, dtype)
    gradient = input_node(2, output.shape, dtype)
    (result,) = pullback([output], [gradient], nodes[1:])
    assert result is not None
    return [*nodes, gradient], nodes[1] - result * 0.5


def by_input(number: int, dtype: DType = dtypes.float32) -> tuple[list[Node], Node]:
    nodes, output = case(number, dtype)
    gradient = input_node(2, output.shape, dtype)
    (result,) = pullback([output], [gradient], nodes[:1])
    assert result is not None
    return [*nodes, gradient], result


Maker = Callable[[int, DType], tuple[list[Node], Node]]


def compare(
    make: Maker, number: int, results: int, interpreted: bool = False, launches: int = 2
) -> None:
    nodes, output = make(number, dtypes.float32)
    random = np.random.default_rng(number)
    arrays = [random.standard_normal(x.shape).astype(np.float32) for x in nodes]
    plan = schedule(nodes, [output], machine(results))
    names = [launch.nest.name for launch in plan.launches]
    assert sum(name.startswith("winograd") for name in names) == launches, names
    exact_nodes, exact = make(number, dtypes.float64)
    wanted = run(schedule(exact_nodes, [exact]), [x.astype(np.float64) for x in arrays], exact)
    found = run_schedule(plan, arrays)[0] if interpreted else run(plan, arrays, output)
    assert np.abs(found - wanted).max() < TOLERANCE[results] * np.abs(wanted).max()


@pytest.mark.parametrize("number", range(len(CASES) - 1))
@pytest.mark.parametrize("make", [case, with_bias, by_input])
def test_short_products_compute_convolutions(
    make: Maker, number: int, results: int, target: str
) -> None:
    compare(make, number, results)


# The gradient by the weight has tiles of one size only.
once = pytest.mark.parametrize("results", [4], indirect=True)


@once
@pytest.mark.parametrize("number", [0, 2, 3])
def test_gradients_by_the_weight(number: int, results: int, target: str) -> None:
    compare(by_weight, number, results, launches=1)


@once
def test_gradients_by_the_weight_of_many_rows_and_channels(results: int) -> None:
    compare(by_weight, len(CASES) - 1, results, launches=1)


@once
def test_nests_mean_the_gradient_by_the_weight(results: int) -> None:
    compare(by_weight, 0, results, interpreted=True, launches=1)


@pytest.mark.parametrize("make", [case, with_bias, by_input])
def test_nests_mean_the_convolution(make: Maker, results: int) -> None:
    compare(make, 1, results, interpreted=True)


@pytest.mark.parametrize("count, window", [(2, 3), (4, 3), (3, 3), (2, 5), (1, 3)])
def test_short_products_are_exact(count: int, window: int) -> None:
    product = short_product(count, window)
    matrices = product.data, product.window, product.output
    data, taps, output = (np.array(matrix, np.float64) for matrix in matrices)
    random = np.random.default_rng(count)
    x, w = random.standard_normal(count + window - 1), random.standard_normal(window)
    np.testing.assert_allclose(output @ ((taps @ w) * (data @ x)), np.correlate(x, w), rtol=1e-12)


def test_numbers_that_are_not_finite_stay_in_their_tiles(results: int) -> None:
    nodes = [input_node(0, (1, 8, 24, 24), dtypes.float32)]
    nodes.append(input_node(1, (8, 8, 3, 3), dtypes.float32))
    output = convolution(*nodes, None, (1, 1), (1, 1), (1, 1), (1, 1), 1)
    random = np.random.default_rng(0)
    x, w = (random.standard_normal(node.shape).astype(np.float32) for node in nodes)
    plan = schedule(nodes, [output], machine(results))
    clean = run(plan, [x, w], output)
    x[0, 3, 10, 11] = np.inf
    found = run(plan, [x, w], output)
    assert not np.isfinite(found[0, :, 9:12, 10:13]).any()
    far = np.ones((24, 24), bool)
    far[9 - results : 12 + results, 10 - results : 13 + results] = False
    assert (found[0, :, far] == clean[0, :, far]).all()


def test_groups_are_a_batch_of_contractions(results: int) -> None:
    nodes = [
        input_node(0, (2, 6, 8, 9), dtypes.float32),
        input_node(1, (8, 3, 3, 3), dtypes.float32),
    ]
    output = convolution(*nodes, None, (1, 1), (1, 1), (1, 1), (1, 1), 2)
    plan = schedule(nodes, [output], machine(results))
    assert plan.launches[1].nest.name.startswith("winograd")
    random = np.random.default_rng(0)
    x, w = (random.standard_normal(node.shape).astype(np.float32) for node in nodes)
    halves = []
    for half in range(2):
        inputs = [
            input_node(0, (2, 3, 8, 9), dtypes.float64), input_node(1, (4, 3, 3, 3), dtypes.float64)
        ]  # fmt: skip
        exact = convolution(*inputs, None, (1, 1), (1, 1), (1, 1), (1, 1), 1)
        arrays = [x[:, 3 * half :][:, :3], w[4 * half :][:4]]
        doubles = [array.astype(np.float64) for array in arrays]
        halves.append(run(schedule(inputs, [exact]), doubles, exact))
    wanted = np.concatenate(halves, 1)
    error = np.abs(run(plan, [x, w], output) - wanted).max()
    assert error < TOLERANCE[results] * np.abs(wanted).max()


def test_strides_and_float64_keep_to_plain_sums(results: int) -> None:
    nodes = [input_node(0, (2, 4, 12, 12), dtypes.float32)]
    nodes.append(input_node(1, (8, 4, 3, 3), dtypes.float32))
    strided = convolution(*nodes, None, (2, 2), (1, 1), (1, 1), (1, 1), 1)
    exact_nodes, exact = case(0, dtypes.float64)
    for inputs, output in ((nodes, strided), (exact_nodes, exact)):
        assert not uses_winograd(inputs, output, machine(results))


def uses_winograd(nodes: list[Node], output: Node, by: Machine) -> bool:
    launches = schedule(nodes, [output], by).launches
    return any(launch.nest.name.startswith("winograd") for launch in launches)


@pytest.mark.parametrize(
    "batch, channels, image, pays",
    [(8, 64, 28, True), (1, 64, 28, True), (1, 2, 12, False), (1, 512, 7, False)],
)
def test_few_channels_and_few_tiles_keep_to_plain_sums(
    batch: int, channels: int, image: int, pays: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    nodes = [input_node(0, (batch, channels, image, image), dtypes.float32)]
    nodes.append(input_node(1, (channels, channels, 3, 3), dtypes.float32))
    output = convolution(*nodes, None, (1, 1), (1, 1), (1, 1), (1, 1), 1)
    assert uses_winograd(nodes, output, host_machine()) == pays
    monkeypatch.setenv("METAOP_WINOGRAD", "0")
    assert not uses_winograd(nodes, output, host_machine())
