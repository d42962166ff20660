"""Windows that are unrolled: machine code against PyTorch, for values, places and gradients."""

from __future__ import annotations

import numpy as np
import pytest

from metaop.codegen.llvm.machine import host_machine
from metaop.codegen.llvm.program import LLVMProgram
from metaop.codegen.memory.buffers import Buffer
from metaop.codegen.nest import ir
from metaop.codegen.schedule import Schedule
from metaop.compiler import schedule
from metaop.differentiation.transposition import pullback
from metaop.operators.pooling import average_pool, max_pool
from metaop.reduce import reduce_axes
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.node import Node, input_node
from tests.codegen.interpret import run_schedule

CASES = [
    # shape, kernel, stride, padding, dilation, ceil_mode
    ((2, 3, 61, 61), (3, 3), (2, 2), (0, 0), (1, 1), True),
    ((2, 70, 12, 12), (3, 3), (1, 1), (1, 1), (1, 1), True),
    ((1, 4, 3, 3), (3, 3), (1, 1), (1, 1), (1, 1), False),
    ((2, 5, 7, 6), (3, 3), (1, 1), (1, 1), (1, 1), False),
    ((3, 2, 14, 9), (3, 3), (2, 2), (1, 1), (1, 1), False),
    ((1, 2, 15, 40), (3, 2), (2, 3), (1, 1), (1, 1), True),
    ((2, 2, 17, 13), (5, 3), (3, 1), (2, 0), (1, 2), False),
    ((2, 3, 9, 33), (2, 4), (2, 4), (0, 2), (1, 1), True),
    ((1, 5, 7, 8), (1, 3), (1, 2), (0, 1), (1, 2), True),
]


def run(plan: Schedule, arrays: list[np.ndarray]) -> list[np.ndarray]:
    buffers = [Buffer.from_numpy(array.copy()) for array in arrays]
    results = LLVMProgram(plan).run(buffers)
    return [
        result.view(node.shape, node.dtype.numpy).copy()
        for result, node in zip(results, plan.outputs, strict=True)
    ]


def pooled(case: tuple, maximum: bool) -> tuple[list[Node], list[Node]]:
    """A pooling and its gradient."""
    shape, kernel, stride, padding, dilation, ceil_mode = case
    x = input_node(0, shape, dtypes.float32)
    if maximum:
        y = max_pool(x, kernel, stride, padding, dilation, ceil_mode)
    else:
        y = average_pool(x, kernel, stride, padding, ceil_mode, False, None)
    g = input_node(1, y.shape, dtypes.float32)
    (gradient,) = pullback([y], [g], [x])
    assert gradient is not None
    return [x, g], [y, gradient]


def expected(case: tuple, arrays: list[np.ndarray], maximum: bool) -> list[np.ndarray]:
    torch = pytest.importorskip("torch")
    _, kernel, stride, padding, dilation, ceil_mode = case
    x, g = (torch.from_numpy(array).double().requires_grad_() for array in arrays)
    if maximum:
        pool, rest = torch.nn.functional.max_pool2d, (dilation, ceil_mode)
    else:
        pool, rest = torch.nn.functional.avg_pool2d, (ceil_mode, False)
    y = pool(x, kernel, stride, padding, *rest)
    y.backward(g)
    return [y.detach().numpy(), x.grad.numpy()]


def values(nodes: list[Node], seed: int) -> list[np.ndarray]:
    """Numbers of which many are equal, with a few infinities."""
    random = np.random.default_rng(seed)
    x, g = (random.standard_normal(node.shape).astype(np.float32) for node in nodes)
    x = np.round(x * 2)
    x.flat[random.integers(0, x.size, 2)] = np.inf
    return [x, g]


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("together", [True, False])
def test_maxima_and_their_gradients(case: tuple, together: bool, target: str) -> None:
    nodes, outputs = pooled(case, maximum=True)
    arrays = values(nodes, seed=1)
    wanted = expected(case, arrays, maximum=True)
    plans = [outputs] if together else [[output] for output in outputs]
    found = [x for part in plans for x in run(schedule(nodes, part, host_machine()), arrays)]
    assert np.array_equal(found[0], wanted[0])
    np.testing.assert_allclose(found[1], wanted[1], rtol=0, atol=1e-5)


@pytest.mark.parametrize("case", [c for c in CASES if c[4] == (1, 1)], ids=str)
def test_means_and_their_gradients(case: tuple, target: str) -> None:
    nodes, outputs = pooled(case, maximum=False)
    random = np.random.default_rng(2)
    arrays = [random.standard_normal(node.shape).astype(np.float32) for node in nodes]
    found = run(schedule(nodes, outputs, host_machine()), arrays)
    for one, other in zip(found, expected(case, arrays, maximum=False), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-5)


@pytest.mark.parametrize("case", CASES[:4], ids=str)
def test_nan_is_the_maximum(case: tuple, target: str) -> None:
    nodes, outputs = pooled(case, maximum=True)
    arrays = values(nodes, seed=3)
    arrays[0][0, 1, 1, 2] = np.nan
    wanted = expected(case, arrays, maximum=True)
    found = run(schedule(nodes, outputs, host_machine()), arrays)
    assert np.array_equal(found[0], wanted[0], equal_nan=True)
    np.testing.assert_allclose(found[1], wanted[1], rtol=0, atol=1e-5)


@pytest.mark.parametrize("case", [CASES[1], CASES[3], CASES[4]], ids=str)
def test_nests_mean_the_pooling(case: tuple) -> None:
    nodes, outputs = pooled((case[0][:1] + (2,) + case[0][2:], *case[1:]), maximum=True)
    arrays = values(nodes, seed=4)
    plan = schedule(nodes, outputs, host_machine())
    names = [launch.nest.name for launch in plan.launches]
    assert names[:2] == ["windows_max_min", "windows_add"]
    for found, wanted in zip(run_schedule(plan, arrays), run(plan, arrays), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-6)


@pytest.mark.parametrize("dtype", [dtypes.float64, dtypes.float16, dtypes.int8, dtypes.int64])
def test_other_types(dtype: dtypes.DType, target: str) -> None:
    x = input_node(0, (3, 4, 21), dtype)
    outputs = [reduce_axes(name, x, [1]) for name in ("max", "add", "min")]
    array = np.random.default_rng(5).integers(-9, 9, x.shape).astype(dtype.numpy)
    plan = schedule([x], outputs, host_machine())
    assert all(launch.nest.name.startswith("windows") for launch in plan.launches)
    wanted = [array.max(1), array.sum(1, dtype=dtype.numpy), array.min(1)]
    for found, other in zip(run(plan, [array]), wanted, strict=True):
        assert np.array_equal(found, other)


def test_short_rows_are_joined_where_memory_goes_on() -> None:
    """Results of 3 x 3 windows with padding lie as their elements do: one loop over all of them."""
    for case, joined in ((CASES[3], True), (CASES[4], False)):
        nodes, (maxima, _) = pooled(case, maximum=True)
        (launch,) = schedule(nodes, [maxima], host_machine()).launches
        extents = [s.extent for s in launch.nest.body if isinstance(s, ir.For) and s.vector]
        assert extents == ([maxima.size] if joined else [])


def test_positions_are_kept_in_the_shortest_type() -> None:
    _, (_, gradient) = pooled(CASES[0], maximum=True)
    plan = schedule([input_node(0, CASES[0][0], dtypes.float32)], [gradient], host_machine())
    kept = {node.dtype for launch in plan.launches for node in launch.buffers}
    assert kept == {dtypes.float32, dtypes.int8}


def test_rows_ask_for_what_lies_ahead() -> None:
    x = input_node(0, (8, 16, 56, 56), dtypes.float32)
    pooled = max_pool(x, (3, 3), (2, 2), (1, 1), (1, 1), False)
    (launch,) = schedule([x], [pooled]).launches
    (planes,) = launch.nest.body
    assert isinstance(planes, ir.For)
    (rows,) = planes.body
    assert isinstance(rows, ir.For)
    asking = rows.body[0]
    assert isinstance(asking, ir.For)
    (prefetch,) = asking.body
    assert isinstance(prefetch, ir.Prefetch)
    # A row of results moves along two rows of 56 floats, which are 7 cache lines.
    assert asking.extent == 7
    assert dict(prefetch.offset.terms)[ir.LoopIndex(asking.axis)] == 16
