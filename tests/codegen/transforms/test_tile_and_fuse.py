"""Launches that run slice by slice: what slices touch, and what tiled groups compute."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import metaop
from metaop import inspect
from metaop.codegen.llvm.machine import host_machine
from metaop.codegen.llvm.program import LLVMProgram
from metaop.codegen.lowering import Machine
from metaop.codegen.memory.buffers import Buffer
from metaop.codegen.nest.footprint import reach
from metaop.codegen.schedule import Schedule
from metaop.compiler import schedule
from metaop.differentiation.transposition import pullback
from metaop.elementwise import apply
from metaop.operators.attention import attention
from metaop.operators.convolution import convolution
from metaop.operators.linear_algebra import matmul
from metaop.operators.normalisation import layer_norm
from metaop.reduce.meta_op import reduce_axes
from metaop.reindex import views
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.node import Node, input_node
from tests.codegen.force import change_thresholds
from tests.codegen.interpret import Interpreter, run_schedule

F32, F64, BF16 = dtypes.float32, dtypes.float64, dtypes.bfloat16
Graph = tuple[list[Node], list[Node]]


@pytest.fixture(autouse=True)
def every_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiled groups of what is small, too."""
    change_thresholds(monkeypatch, least_bytes=1)


def machine(near_bytes: int = 1 << 20, threads: int = 1) -> Machine:
    host = host_machine()
    return replace(host, threads=threads, tile=replace(host.tile, near_bytes=near_bytes))


def values(nodes: list[Node]) -> list[np.ndarray]:
    generator = np.random.default_rng(0)
    return [generator.standard_normal(x.shape).astype(x.dtype.numpy) for x in nodes]


def run(plan: Schedule, arrays: list[np.ndarray]) -> list[np.ndarray]:
    found = LLVMProgram(plan).run([Buffer.from_numpy(array.copy()) for array in arrays])
    return [x.view(node.shape, node.dtype.numpy) for x, node in zip(found, plan.outputs)]


def tiled_names(plan: Schedule) -> list[str]:
    names = [launch.nest.name for launch in plan.launches]
    return [name for name in names if name.startswith("tiled")]


def attention_graph(
    batch: int, heads: int, length: int, size: int, causal: bool, dtype: dtypes.DType = F32
) -> Graph:
    """Attention over heads that lie side by side, as projections leave them."""
    inputs = [input_node(k, (batch, length, heads * size), dtype) for k in range(3)]
    parts = [
        views.permute(views.reshape(x, (batch, length, heads, size)), (0, 2, 1, 3)) for x in inputs
    ]
    mixed = attention(*parts, None, None, 0.0, causal, None, False)
    joined = views.reshape(views.permute(mixed, (0, 2, 1, 3)), (batch, length, heads * size))
    return inputs, [joined]


def with_gradients(graph: Graph) -> Graph:
    inputs, (output,) = graph
    given = input_node(len(inputs), output.shape, output.dtype)
    return [*inputs, given], [output, *pullback([output], [given], inputs)]


def exact_attention(arrays: list[np.ndarray], heads: int, causal: bool) -> np.ndarray:
    query, key, value = (
        x.astype(np.float64).reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3) for x in arrays
    )
    scores = query @ key.swapaxes(2, 3) / np.sqrt(query.shape[-1])
    if causal:
        scores = np.where(np.tri(scores.shape[-1], dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    mixed = weights / weights.sum(-1, keepdims=True) @ value
    return mixed.transpose(0, 2, 1, 3).reshape(arrays[0].shape)


SHAPES = [(2, 3, 64, 16), (1, 4, 33, 8), (2, 2, 197, 32), (4, 1, 128, 64), (1, 2, 96, 20)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_attention(shape: tuple[int, int, int, int], target: str) -> None:
    causal = shape[0] > 1
    inputs, outputs = attention_graph(*shape, causal)
    plan = schedule(inputs, outputs, machine())
    (name,) = tiled_names(plan)
    assert name.startswith("tiled_contraction_rows_contraction")
    assert plan.arena_bytes < 4 * shape[0] * shape[1] * shape[2] ** 2
    arrays = values(inputs)
    (found,) = run(plan, arrays)
    wanted = exact_attention(arrays, shape[1], causal)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def test_rows_of_scores_that_are_long_come_a_few_at_a_time() -> None:
    inputs, outputs = attention_graph(1, 2, 256, 16, True)
    plan = schedule(inputs, outputs, machine(near_bytes=1 << 16))
    group = next(one for one in plan.launches if one.nest.name.startswith("tiled"))
    assert group.nest.tasks == 2 * 256 // 16, "a slice is a part of the rows of a head"
    arrays = values(inputs)
    np.testing.assert_allclose(
        run(plan, arrays)[0], exact_attention(arrays, 2, True), rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("dtype, tolerance", [(F32, 1e-5), (F64, 1e-12), (BF16, 3e-2)])
@pytest.mark.parametrize("near_bytes", [1 << 14, 1 << 20])
def test_gradients_of_attention(
    dtype: dtypes.DType, tolerance: float, near_bytes: int, target: str
) -> None:
    inputs, outputs = with_gradients(attention_graph(2, 2, 64, 16, True, dtype))
    arrays = values(inputs)
    plan = schedule(inputs, outputs, machine(near_bytes))
    assert tiled_names(plan)
    wanted = run(schedule(inputs, outputs, machine(0)), arrays)
    for one, other in zip(run(plan, arrays), wanted):
        np.testing.assert_allclose(
            one.astype(np.float64), other.astype(np.float64), rtol=tolerance, atol=tolerance
        )


def apart(batch: int, heads: int, length: int, size: int, dtype: dtypes.DType = F32) -> Graph:
    """Attention and its gradients, of heads that lie one behind the other."""
    inputs = [input_node(k, (batch, heads, length, size), dtype) for k in range(3)]
    return with_gradients((inputs, [attention(*inputs, None, None, 0.0, True, None, False)]))


@pytest.mark.parametrize("dtype, tolerance", [(F32, 1e-5), (F64, 1e-12), (BF16, 6e-2)])
def test_gradients_of_long_attention_are_summed_block_by_block(
    dtype: dtypes.DType, tolerance: float, target: str
) -> None:
    inputs, outputs = apart(1, 2, 96, 16, dtype)
    arrays = values(inputs)
    plan = schedule(inputs, outputs, machine(1 << 15))
    wanted = run(schedule(inputs, outputs, machine(0)), arrays)
    assert dtype is BF16 or len(tiled_names(plan)) == 1
    assert dtype is BF16 or plan.arena_bytes < 2 * 96 * 96 * dtype.itemsize
    for one, other in zip(run(plan, arrays), wanted):
        np.testing.assert_allclose(
            one.astype(np.float64), other.astype(np.float64), rtol=tolerance, atol=tolerance
        )


def test_nests_of_blocks_stay_inside_them() -> None:
    inputs, outputs = apart(1, 2, 48, 8)
    arrays = values(inputs)
    plan = schedule(inputs, outputs, machine(1 << 13))
    (group,) = [one.nest for one in plan.launches if one.nest.name.startswith("tiled")]
    assert group.tasks == 2, "blocks of a head run one after the other"
    wanted = run(schedule(inputs, outputs, machine(0)), arrays)
    for one, other in zip(run_schedule(plan, arrays), wanted):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


def chain() -> Graph:
    """Rows that are normalised, multiplied and summed up, and a result that others need too."""
    x, w = input_node(0, (6, 16, 24), F32), input_node(1, (6, 24, 40), F32)
    normal = layer_norm(x, None, None, (24,), 1e-5)
    hidden = apply("tanh", matmul(normal, w))
    return [x, w], [matmul(hidden, views.transpose(w, 1, 2)), reduce_axes("max", hidden, [2])]


def images() -> Graph:
    """Convolutions, whose windows reach beyond their slice of an image's rows."""
    x, w = input_node(0, (4, 3, 6, 6), F32), input_node(1, (3, 3, 3, 3), F32)
    ones = ((1, 1), (1, 1), (1, 1), (1, 1))
    first = apply("tanh", convolution(x, w, None, *ones, 1))
    return [x, w], [convolution(first, w, None, *ones, 1)]


def neighbours() -> Graph:
    """Rows that read their neighbours: no slice is alone."""
    x, w = input_node(0, (8, 32, 32), F32), input_node(1, (8, 32, 32), F32)
    product = matmul(x, w)
    shifted = product + views.permute(product, (0, 2, 1))
    return [x, w], [reduce_axes("add", apply("exp", shifted), [2]), matmul(shifted, w)]


@pytest.mark.parametrize("graph", [chain, images, neighbours])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_bands_compute_what_their_launches_do(graph: Callable[[], Graph], threads: int) -> None:
    inputs, outputs = graph()
    arrays = values(inputs)
    wanted = run(schedule(inputs, outputs, machine(0)), arrays)
    plan = schedule(inputs, outputs, machine(threads=threads))
    for found in (run(plan, arrays), run_schedule(plan, [x.copy() for x in arrays])):
        for one, other in zip(found, wanted):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


def test_nests_of_bands_stay_inside_their_slices() -> None:
    """The interpreter finds every access outside of a buffer."""
    for causal, near_bytes in ((False, 1 << 20), (True, 1 << 13)):
        inputs, outputs = with_gradients(attention_graph(1, 2, 24, 8, causal))
        plan = schedule(inputs, outputs, machine(near_bytes))
        assert tiled_names(plan)
        arrays = values(inputs)
        wanted = run(schedule(inputs, outputs, machine(0)), arrays)
        for one, other in zip(run_schedule(plan, arrays), wanted):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


class Touches(Interpreter):
    """Notes which elements of the parameters the slices of a nest touch."""

    def __init__(self, nest, buffers, slices: int) -> None:
        super().__init__(nest, buffers)
        self.share = nest.tasks // slices
        self.touched: dict[tuple[int, int], set[int]] = {}
        self.buffers = {k: _Noted(self, k, array) for k, array in self.buffers.items()}


class _Noted:
    """A buffer that tells of every access."""

    def __init__(self, touches: Touches, number: int, array: np.ndarray) -> None:
        self.touches, self.number, self.array = touches, number, array
        self.size = array.size

    def _note(self, place: int | slice) -> None:
        axis = self.touches.nest.body[-1].axis
        key = self.number, self.touches.loops[axis] // self.touches.share
        found = self.touches.touched.setdefault(key, set())
        found.update(range(self.size)[place] if isinstance(place, slice) else [int(place)])

    def __getitem__(self, place):
        self._note(place)
        return self.array[place]

    def __setitem__(self, place, value) -> None:
        self._note(place)
        self.array[place] = value


@pytest.mark.parametrize(
    "graph",
    [
        chain,
        images,
        neighbours,
        lambda: with_gradients(attention_graph(1, 3, 19, 8, True)),
        lambda: with_gradients(attention_graph(2, 2, 16, 8, False)),
    ],
    ids=["chain", "images", "neighbours", "odd", "even"],
)
def test_reach_holds_all_that_slices_touch(graph: Callable[[], Graph]) -> None:
    inputs, outputs = graph()
    known = 0
    for launch in schedule(inputs, outputs, machine(0)).launches:
        tasks = launch.nest.tasks
        for slices in {n for n in (tasks, 2, 3, 4) if tasks % n == 0}:
            arrays = [np.zeros(node.size, node.dtype.numpy) for node in launch.buffers]
            touches = Touches(launch.nest, arrays, slices)
            touches.run()
            found = reach(launch.nest, slices)
            for (number, part), places in touches.touched.items():
                interval = found.get(number) if number >= 0 else None
                if interval is not None:
                    known += 1
                    assert interval.low[part] <= min(places)
                    assert interval.high[part] >= max(places)
    assert known


def test_slices_of_maps_hold_vectors() -> None:
    """Two maps over a long vector: a slice for each element would be no loop at all."""
    edges = metaop.randn(5000).sort()[0]
    values = metaop.randn(300_000)
    found = metaop.searchsorted(edges, values)
    text = str(inspect.kernels(found))
    slices = [int(number) for number in re.findall(r"for slice < (\d+)", text)]
    assert all(number * 16 <= values.numel() for number in slices), text
    expected = np.searchsorted(edges.numpy(), values.numpy())
    np.testing.assert_array_equal(found.numpy(), expected)
