"""The rounding of Winograd's method: its estimate, and single layers beside PyTorch's float32."""

from __future__ import annotations

import dataclasses
import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from metaop.codegen.llvm.machine import host_machine
from metaop.codegen.lowering import strategies
from metaop.codegen.lowering.winograd import short_products
from metaop.codegen.lowering.winograd.rounding import amplification, excess
from metaop.codegen.lowering.winograd.short_products import SINGLE, short_product
from metaop.compiler import schedule
from metaop.differentiation.transposition import pullback
from metaop.operators.convolution import convolution
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.node import Node, input_node
from tests.codegen.force import forcing_schedules
from tests.codegen.run_plan import run

torch = pytest.importorskip("torch")

# One rounding changes a number by at most half a unit in the last place, evenly spread.
ROUNDING = 2.0**-24 / math.sqrt(3)

# What is computed, by which schedule, with which short products along the two axes.
VARIANTS = [
    (direction, f"winograd {outer}x{inner}", (outer, 3), (inner, 3))
    for direction, outer, inner in itertools.product(("forward", "by input"), (2, 4), (2, 4))
]
VARIANTS.append(("by weight", "long windows", (3, 4), (3, 4)))
# Images, channels and the side of an image.
LAYERS = [(2, 64, 28), (1, 256, 14), (8, 40, 9)]
# The means of inputs, weights and gradients, whose standard deviation is 1.
MEANS = [(0, 0, 0), (3, 0, 0), (0, 1, 0), (0, 0, 10), (3, 0, 3)]


def graph(direction: str, layer: tuple[int, int, int]) -> tuple[list[Node], Node]:
    images, channels, side = layer
    x = input_node(0, (images, channels, side, side), dtypes.float32)
    weight = input_node(1, (channels, channels, 3, 3), dtypes.float32)
    result = convolution(x, weight, None, (1, 1), (1, 1), (1, 1), (1, 1), 1)
    if direction == "forward":
        return [x, weight], result
    gradient = input_node(2, result.shape, dtypes.float32)
    (found,) = pullback([result], [gradient], [x if direction == "by input" else weight])
    assert found is not None
    return [x, weight, gradient], found


def wanted(direction: str, arrays: list[np.ndarray], dtype: type) -> np.ndarray:
    x, weight, *gradient = (torch.from_numpy(array.astype(dtype)) for array in arrays)
    if direction == "forward":
        result = torch.nn.functional.conv2d(x, weight, padding=1)
    elif direction == "by input":
        result = torch.nn.grad.conv2d_input(x.shape, weight, *gradient, padding=1)
    else:
        result = torch.nn.grad.conv2d_weight(x, weight.shape, *gradient, padding=1)
    return np.asarray(result.numpy())


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("direction, name, outer, inner", VARIANTS)
def test_layers_round_little_more_than_with_pytorch_and_as_estimated(
    direction: str,
    name: str,
    outer: tuple[int, int],
    inner: tuple[int, int],
    layer: tuple[int, int, int],
) -> None:
    nodes, output = graph(direction, layer)
    machine = dataclasses.replace(host_machine(), without=())
    plan = schedule(nodes, [output], forcing_schedules(machine, [name]))
    assert any(launch.nest.name.startswith("winograd") for launch in plan.launches)
    images, channels, side = layer
    summed, depth = channels, 9 * channels
    if direction == "by weight":
        summed, depth = images * (-(-side // 4)) ** 2, images * side**2
    products = short_product(*outer), short_product(*inner)
    estimate = excess(products, summed, depth) * math.sqrt(depth / 2) * ROUNDING
    random = np.random.default_rng(0)
    for means in MEANS:
        arrays = [
            (mean + random.standard_normal(node.shape)).astype(np.float32)
            for mean, node in zip(means, nodes)
        ]
        exact = wanted(direction, arrays, np.float64)
        found, usual = (
            np.linalg.norm(value - exact) / np.linalg.norm(exact)
            for value in (run(plan, arrays, output), wanted(direction, arrays, np.float32))
        )
        assert found <= estimate, means
        assert found <= strategies._MOST_EXCESS * usual, means


def test_no_other_small_fractions_amplify_errors_less(monkeypatch: pytest.MonkeyPatch) -> None:
    def worst() -> float:
        short_product.cache_clear()
        return max(amplification(short_product(*sizes)) for sizes in ((4, 3), (3, 4)))

    least = worst()
    parts = range(1, 9)
    fractions = sorted({Fraction(above, below) for above in parts for below in parts})
    # Points far from 1 have powers that are far from each other.
    near = [fraction for fraction in fractions if 0.5 <= fraction <= 2]
    for low, high in itertools.combinations(near, 2):
        monkeypatch.setattr(short_products, "_POINTS", (Fraction(0), low, -low, high, -high))
        assert worst() >= least
    monkeypatch.undo()
    short_product.cache_clear()


def test_plain_products_amplify_nothing_and_more_results_amplify_more() -> None:
    found = [amplification(short_product(results, 3)) for results in (2, 4)]
    assert amplification(SINGLE) == 1 < found[0] < found[1]


@pytest.mark.parametrize(
    "direction, layer, name, allowed",
    [
        ("forward", (8, 3, 28), "winograd 4x4", False),
        ("forward", (8, 3, 28), "winograd 2x2", True),
        ("by input", (8, 3, 28), "winograd 4x4", False),
        ("forward", (8, 64, 28), "winograd 4x4", True),
        ("by weight", (1, 256, 7), "long windows", False),
        ("by weight", (4, 256, 7), "long windows", True),
    ],
)
def test_what_rounds_too_much_is_no_choice(
    direction: str, layer: tuple[int, int, int], name: str, allowed: bool
) -> None:
    nodes, output = graph(direction, layer)
    machine = dataclasses.replace(host_machine(), without=())
    plan = schedule(nodes, [output], forcing_schedules(machine, [name]))
    used = any(launch.nest.name.startswith("winograd") for launch in plan.launches)
    assert used == allowed
