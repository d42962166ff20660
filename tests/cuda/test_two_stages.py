"""Reductions that would leave multiprocessors idle are cut into parts, and keep their values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from metaop.codegen.cuda.layout import layout_of
from metaop.codegen.cuda.program import most_blocks
from metaop.codegen.cuda.schedules import CUDA
from metaop.codegen.schedule import Schedule
from metaop.compiler import schedule
from metaop.elementwise.meta_op import apply
from metaop.reduce.meta_op import reduce_axes
from metaop.reindex import views
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.dtype import DType
from metaop.unified_graph.node import Node
from tests.codegen.lowering import test_lowering as shared
from tests.cuda import emulator
from tests.cuda.cases import inputs_of, tensor

F32 = dtypes.float32
# A GPU of few multiprocessors, which small graphs can fill.
SMALL = replace(CUDA, threads=8)
FEW_BLOCKS = most_blocks(SMALL.threads)


class Case(NamedTuple):
    """A graph, what it means in float64, and how many launches it takes."""

    graph: Callable[[], list[Node]]
    meaning: Callable[..., list[np.ndarray]]
    launches: int = 2


def product(rows: int, depth: int, columns: int, dtype: DType = F32) -> Case:
    """A product with a bias and an activation behind it."""

    def graph() -> list[Node]:
        left, right = (tensor(k, *s, dtype=dtype) for k, s in enumerate(shapes))
        bias = views.broadcast_to(tensor(2, columns, dtype=dtype), (rows, columns))
        return [apply("relu", shared.matmul(left, right) + bias)]

    shapes = (rows, depth), (depth, columns)
    return Case(graph, lambda left, right, bias: [np.maximum(left @ right + bias, 0)])


def batched() -> list[Node]:
    box = (3, 20, 24, 1100)
    left = views.broadcast_to(tensor(0, 3, 20, 1, 1100), box)
    right = views.broadcast_to(tensor(1, 3, 1, 24, 1100), box)
    return [reduce_axes("add", left * right, [3])]


def weight_gradient() -> list[Node]:
    """The gradient of the weight of a convolution, and a step with momentum."""
    image, weight = tensor(0, 6, 5, 28, 17), tensor(1, 10, 5, 3, 3)
    gradient = shared.gradients(shared.conv, image, weight)[1]
    momentum = tensor(2, *weight.shape) * 0.9 + gradient
    return [momentum, weight - momentum * 0.1]


def step(image: np.ndarray, weight: np.ndarray, old: np.ndarray, back: np.ndarray) -> list:
    """What `weight_gradient` means: stride (2, 1), padding 1."""
    windows = windows_of(np.pad(image, ((0, 0), (0, 0), (1, 1), (1, 1))))[:, :, ::2]
    momentum = 0.9 * old + np.einsum("ncyxhw,noyx->ochw", windows, back)
    return [momentum, weight - 0.1 * momentum]


def statistics() -> list[Node]:
    return [shared.batch_norm(tensor(0, 3, 2, 151, 150))]


def normalised(x: np.ndarray) -> np.ndarray:
    centred = x - x.mean((0, 2, 3), keepdims=True)
    return np.maximum(centred / np.sqrt(x.var((0, 2, 3), keepdims=True) + 1e-5), 0)


def every_other(x: Node) -> Node:
    return views.slice_dimension(views.slice_dimension(x, 2, 0, 20, 2), 3, 0, 41, 2)


def sums_of(x: Node) -> Node:
    return reduce_axes("add", x, [0])


def depthwise() -> list[Node]:
    """The gradient of the weight of a convolution whose channels do not meet."""
    box = (4, 6, 40, 41, 3, 3)
    windows = views.windows(tensor(0, 4, 6, 42, 43), (3, 3), (1, 1), (0, 0), (1, 1))
    back = views.broadcast_to(tensor(1, 4, 6, 40, 41, 1, 1), box)
    return [reduce_axes("add", windows * back, [0, 2, 3])]


def windows_of(image: np.ndarray) -> np.ndarray:
    return np.lib.stride_tricks.sliding_window_view(image, (3, 3), (2, 3))


CASES = {
    "product": product(20, 3000, 24),
    "product with a rest": product(21, 2801, 40),
    "product of tiles": product(70, 1500, 70),
    "product float64": product(20, 3000, 24, dtypes.float64),
    "product float16": product(20, 3000, 24, dtypes.float16),
    "product bfloat16": product(20, 3001, 24, dtypes.bfloat16),
    "batched product": Case(
        batched, lambda left, right: [np.einsum("bmik,bink->bmn", left, right)]
    ),
    "weight gradient": Case(weight_gradient, step),
    "columns": Case(
        lambda: [reduce_axes("add", tensor(0, 2048, 40), [0]) * 0.5], lambda x: [0.5 * x.sum(0)]
    ),
    "columns with a rest": Case(
        lambda: [reduce_axes("max", tensor(0, 1999, 200, dtype=dtypes.float64), [0])],
        lambda x: [x.max(0)],
    ),
    "columns float16": Case(
        lambda: [reduce_axes("add", tensor(0, 2048, 40, dtype=dtypes.float16), [0])],
        lambda x: [x.sum(0)],
    ),
    "columns bfloat16": Case(
        lambda: [reduce_axes("add", tensor(0, 2050, 40, dtype=dtypes.bfloat16), [0])],
        lambda x: [x.sum(0)],
    ),
    "everything": Case(
        lambda: [reduce_axes("add", apply("square", tensor(0, 7, 100, 101)), [0, 1, 2]) * 0.1],
        lambda x: [0.1 * (x**2).sum()],
    ),
    "a few rows": Case(
        lambda: [reduce_axes("add", tensor(0, 2, 70001), [1])], lambda x: [x.sum(1)]
    ),
    "statistics of channels": Case(statistics, lambda x: [normalised(x)], launches=5),
    "rows whose axes lie apart": Case(
        lambda: [reduce_axes("add", every_other(tensor(0, 100, 2, 40, 81)), [0, 2, 3])],
        lambda x: [x[:, :, ::2, ::2].sum((0, 2, 3))],
    ),
    "a scale and a shift": Case(
        lambda: [sums_of(tensor(0, 500, 300) * tensor(1, 500, 300)), sums_of(tensor(0, 500, 300))],
        lambda x, y: [(x * y).sum(0), x.sum(0)],
        launches=3,
    ),
    "weight gradient by channels": Case(
        depthwise,
        lambda x, back: [np.einsum("ncyxhw,ncyxij->chw", windows_of(x), back)],
        launches=1,
    ),
    "small columns": Case(
        lambda: [reduce_axes("add", tensor(0, 64, 500), [0])], lambda x: [x.sum(0)], launches=1
    ),
    "many rows": Case(
        lambda: [reduce_axes("add", tensor(0, 70, 3000), [1])], lambda x: [x.sum(1)], launches=1
    ),
    "short depth": product(40, 300, 40)._replace(launches=1),
    "large result": product(200, 600, 200)._replace(launches=1),
}
_TOLERANCE = {"float64": 1e-12, "float32": 1e-4, "float16": 2e-3, "bfloat16": 2e-2}


@pytest.fixture(scope="module")
def plans() -> dict[str, Schedule]:
    return {name: plan_of(case.graph()) for name, case in CASES.items()}


def plan_of(outputs: list[Node]) -> Schedule:
    return schedule(inputs_of(outputs), outputs, SMALL)


def blocks_of(plan: Schedule) -> list[int]:
    """The blocks of each launch."""
    nests = [launch.nest for launch in plan.launches]
    return [layout_of(nest).blocks(nest, FEW_BLOCKS) for nest in nests]


@pytest.fixture(scope="module")
def device(plans: dict[str, Schedule], tmp_path_factory: pytest.TempPathFactory) -> object:
    if not emulator.is_available():
        pytest.skip("the emulator needs g++")
    nests = [launch.nest for plan in plans.values() for launch in plan.launches]
    return emulator.Emulator(nests, Path(tmp_path_factory.mktemp("emulated")))


@pytest.mark.parametrize("order", emulator.ORDERS)
@pytest.mark.parametrize("name", CASES)
def test_value(
    name: str, order: str, plans: dict[str, Schedule], device: emulator.Emulator
) -> None:
    plan, generator = plans[name], np.random.default_rng(len(name))
    nodes = list(plan.inputs)
    values = [generator.standard_normal(node.shape).astype(node.dtype.numpy) for node in nodes]
    by_slot = [np.zeros(0)] * 10
    for node, value in zip(nodes, values):
        by_slot[node.op.slot] = value  # type: ignore[attr-defined]
    found = emulator.evaluate(device, plan, by_slot, order)
    expected = CASES[name].meaning(*(value.astype(np.float64) for value in values))
    for result, wanted in zip(found, expected, strict=True):
        tolerance = _TOLERANCE[result.dtype.name]
        scale = np.abs(wanted).max()
        assert np.abs(result.astype(np.float64) - wanted).max() <= tolerance * scale


@pytest.mark.parametrize("name", CASES)
def test_blocks(name: str, plans: dict[str, Schedule]) -> None:
    """What is cut fills the multiprocessors, with parts that are long enough."""
    blocks = blocks_of(plans[name])
    assert len(blocks) == CASES[name].launches
    if len(blocks) > 1:
        assert blocks[0] >= SMALL.threads
