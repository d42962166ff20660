"""Minimal filters: nests interpreted, and machine code, against plain sums in float64."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest

from metaop.codegen.llvm.machine import host_machine
from metaop.codegen.llvm.program import LLVMProgram
from metaop.codegen.lowering import Machine, winograd
from metaop.codegen.lowering.minimal_filtering import filter_for
from metaop.codegen.memory import Buffer
from metaop.codegen.schedule import Schedule, schedule
from metaop.differentiation.transposition import pullback
from metaop.elementwise import apply
from metaop.fusion import recognise
from metaop.operators.convolution import convolution
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.dtype import DType
from metaop.unified_graph.node import Node, input_node
from tests.codegen.interpret import run_schedule

# inputs, weights, padding, dilation, groups
CASES = [
    ((2, 3, 13, 10), (8, 3, 3, 3), (1, 1), (1, 1), 1),
    ((1, 4, 5, 6), (5, 4, 3, 3), (0, 2), (1, 1), 1),
    ((3, 2, 7, 7), (20, 2, 3, 3), (1, 1), (1, 1), 1),
    ((2, 6, 8, 9), (4, 6, 3, 3), (1, 1), (1, 1), 1),
    ((2, 3, 9, 11), (4, 3, 5, 3), (2, 1), (1, 1), 1),
    ((2, 3, 9, 12), (4, 3, 3, 3), (2, 1), (2, 1), 1),
    ((2, 3, 40), (6, 3, 3), (1,), (1,), 1),
    ((1, 2, 5, 6, 7), (4, 2, 3, 3, 3), (1, 1, 1), (1, 1, 1), 1),
    ((1, 2, 4, 2, 6), (4, 2, 3, 3, 3), (1, 1, 0), (1, 1, 1), 1),
]


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Filters even where they do not pay."""
    monkeypatch.setattr(winograd, "_pays", lambda *_: True)
    monkeypatch.setattr(recognise, "_LEAST_WORK", 0)


def machine() -> Machine:
    return dataclasses.replace(host_machine(), filters=True)


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


def by_input(number: int, dtype: DType = dtypes.float32) -> tuple[list[Node], Node]:
    nodes, output = case(number, dtype)
    gradient = input_node(2, output.shape, dtype)
    (result,) = pullback([output], [gradient], nodes[:1])
    assert result is not None
    return [*nodes, gradient], result


Maker = Callable[[int, DType], tuple[list[Node], Node]]


def run(plan: Schedule, arrays: list[np.ndarray], output: Node) -> np.ndarray:
    buffers = [Buffer.from_numpy(array.copy()) for array in arrays]
    return LLVMProgram(plan).run(buffers)[0].view(output.shape, output.dtype.numpy)


def compare(make: Maker, number: int, interpreted: bool = False) -> None:
    nodes, output = make(number, dtypes.float32)
    random = np.random.default_rng(number)
    arrays = [random.standard_normal(x.shape).astype(np.float32) for x in nodes]
    plan = schedule(nodes, [output], machine())
    names = [launch.nest.name for launch in plan.launches]
    assert sum(name.startswith("winograd") for name in names) == 2, names
    exact_nodes, exact = make(number, dtypes.float64)
    wanted = run(schedule(exact_nodes, [exact]), [x.astype(np.float64) for x in arrays], exact)
    found = run_schedule(plan, arrays)[0] if interpreted else run(plan, arrays, output)
    assert np.abs(found - wanted).max() < 2e-5 * np.abs(wanted).max()


@pytest.mark.parametrize("number", range(len(CASES)))
@pytest.mark.parametrize("make", [case, with_bias, by_input])
def test_filters_compute_convolutions(make: Maker, number: int) -> None:
    compare(make, number)


@pytest.mark.parametrize("make", [case, with_bias, by_input])
def test_nests_mean_the_convolution(make: Maker) -> None:
    compare(make, 1, interpreted=True)


@pytest.mark.parametrize("extent, results", [(1, 2), (2, 2), (3, 4), (4, 4), (7, 4), (56, 4)])
def test_the_filter_with_the_fewest_products_is_taken(extent: int, results: int) -> None:
    assert filter_for(extent).results == results


@pytest.mark.parametrize("extent", [2, 4])
def test_filters_are_exact(extent: int) -> None:
    """`A (G w * B x)` is the sliding sum, in whole numbers scaled by the least common divisor."""
    chosen = filter_for(extent)
    random = np.random.default_rng(extent)
    x, w = random.standard_normal(chosen.products), random.standard_normal(3)
    products = (np.array(chosen.of_taps) @ w) * (np.array(chosen.of_inputs) @ x)
    np.testing.assert_allclose(np.array(chosen.of_products) @ products, np.correlate(x, w))


def test_groups_are_a_batch_of_contractions() -> None:
    nodes = [
        input_node(0, (2, 6, 8, 9), dtypes.float32),
        input_node(1, (8, 3, 3, 3), dtypes.float32),
    ]
    output = convolution(*nodes, None, (1, 1), (1, 1), (1, 1), (1, 1), 2)
    plan = schedule(nodes, [output], machine())
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
    assert np.abs(run(plan, [x, w], output) - wanted).max() < 2e-5 * np.abs(wanted).max()


def test_strides_and_float64_keep_to_plain_sums() -> None:
    nodes = [input_node(0, (2, 4, 12, 12), dtypes.float32)]
    nodes.append(input_node(1, (8, 4, 3, 3), dtypes.float32))
    strided = convolution(*nodes, None, (2, 2), (1, 1), (1, 1), (1, 1), 1)
    exact_nodes, exact = case(0, dtypes.float64)
    for inputs, output in ((nodes, strided), (exact_nodes, exact)):
        plan = schedule(inputs, [output], machine())
        assert not any(launch.nest.name.startswith("winograd") for launch in plan.launches)


def test_few_channels_keep_to_plain_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    nodes, output = case(0)
    plan = schedule(nodes, [output], machine())
    assert not any(launch.nest.name.startswith("winograd") for launch in plan.launches)
