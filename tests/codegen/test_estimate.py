"""The seconds that a description of a processor gives for launches."""

from __future__ import annotations

import dataclasses

import pytest

import metaop
from metaop import nn
from metaop.codegen.cuda.schedules import CUDA
from metaop.codegen.estimate import program_seconds, program_work
from metaop.codegen.lowering import Machine
from metaop.codegen.machine import TYPICAL, Processor
from metaop.compiler import schedule
from metaop.differentiation.transposition import pullback
from metaop.elementwise.meta_op import apply
from metaop.execution.executor import pending_subgraph
from metaop.fusion.work import operations_of
from metaop.operators.convolution import convolution
from metaop.operators.linear_algebra import matmul
from metaop.reindex import views
from metaop.reindex.meta_op import reindex
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.access import IndexMap
from metaop.unified_graph.index_expr import axis
from metaop.unified_graph.node import Node, input_node, topological

USUAL = TYPICAL["avx2"]


def passing(elements: int, processor: Processor = USUAL, threads: int = 1) -> float:
    """The seconds of a map that reads and writes so many float32."""
    x = input_node(0, (elements,), dtypes.float32)
    plan = schedule([x], [apply("neg", x)], Machine(threads=threads))
    (found,) = program_seconds(plan, processor)
    return found


def multiplying(side: int, processor: Processor = USUAL, threads: int = 1) -> float:
    """The seconds of all launches of a product of square matrices."""
    left, right = (input_node(k, (side, side), dtypes.float32) for k in range(2))
    plan = schedule([left, right], [matmul(left, right)], Machine(threads=threads))
    return sum(program_seconds(plan, processor))


@pytest.mark.parametrize(
    "elements, level",
    [
        (1 << 10, "near_bandwidth"),
        (1 << 18, "last_bandwidth"),
        (1 << 24, "core_bandwidth"),
    ],
)
def test_maps_take_as_long_as_moving_their_bytes(elements: int, level: str) -> None:
    assert passing(elements) == pytest.approx(8 * elements / getattr(USUAL, level))


def test_products_take_as_long_as_their_operations() -> None:
    assert multiplying(1024) >= 2 * 1024**3 / USUAL.core_flops
    assert multiplying(1024) <= 2.2 * 1024**3 / USUAL.core_flops


def test_better_processors_take_less_time() -> None:
    for name in ("near_bandwidth", "last_bandwidth", "core_bandwidth", "memory_bandwidth"):
        better = dataclasses.replace(USUAL, **{name: 4 * getattr(USUAL, name)})
        times = [
            [passing(n, one, threads) for n in (1 << 10, 1 << 18, 1 << 24) for threads in (1, 4)]
            for one in (USUAL, better)
        ]
        assert all(after <= before for before, after in zip(*times))
        assert sum(times[1]) < sum(times[0]), name
    better = dataclasses.replace(USUAL, fma=4 * USUAL.fma)
    assert multiplying(512, better) < multiplying(512)


def test_threads_help_where_there_is_enough_work() -> None:
    assert passing(1 << 10, threads=4) == passing(1 << 10)
    assert passing(1 << 24, threads=2) < passing(1 << 24)
    # All cores together have no more than the bandwidth of memory.
    more = [passing(1 << 24, threads=threads) for threads in (8, 16)]
    assert more[0] == pytest.approx(more[1])


def test_what_was_written_just_before_is_near() -> None:
    x = input_node(0, (1 << 24,), dtypes.float32)
    small = input_node(1, (64, 64), dtypes.float32)
    outputs = [apply("neg", x), matmul(matmul(small, small), small)]
    plan = schedule([x, small], outputs, Machine())
    memory_bound = dataclasses.replace(USUAL, fma=1e6)
    seconds = program_seconds(plan, memory_bound)
    rates = [one.nbytes / time for one, time in zip(program_work(plan).kernels, seconds)]
    names = [launch.nest.name.split("_")[0] for launch in plan.launches]
    assert names == ["map", "strips", "contraction", "contraction"]
    # The pass over much memory drives out what packing reads; products read what was packed.
    assert rates[0] == pytest.approx(rates[1]) and rates[2] > 1.5 * rates[1]


MACHINES = pytest.mark.parametrize("machine", [Machine(), CUDA], ids=["cpu", "cuda"])


def convolved(image: Node, weight: Node) -> Node:
    """A convolution with a window of 3 x 3 that keeps the size of the image."""
    return convolution(image, weight, None, (1, 1), (1, 1), (1, 1), (1, 1), 1)


@MACHINES
def test_parts_of_a_concatenation_count_where_they_are_computed(machine: Machine) -> None:
    """The launch that writes the first part of a whole has not computed the others.

    As in a U-Net, where an early result and one that follows from it by convolutions are joined.
    """
    shapes = (2, 16, 24, 24), *[(16, 16, 3, 3)] * 3
    image, *weights = (input_node(k, s, dtypes.float32) for k, s in enumerate(shapes))
    early = apply("relu", convolved(image, weights[0]))
    late = early
    for weight in weights[1:]:
        late = convolved(apply("exp", late), weight)
    whole = views.concatenate([early, apply("relu", late)], 1)
    needed = [operations_of(node) for node in topological([whole])]
    plan = schedule([image, *weights], [whole], machine)
    found = [work.operations for work in program_work(plan).kernels]
    assert sum(found) == pytest.approx(sum(needed), rel=0.05)
    largest = max(needed)
    # A convolution multiplies and adds.
    assert max(found) < 2.1 * largest


@MACHINES
@pytest.mark.parametrize("step", [1, 3])
def test_what_is_inlined_counts_as_often_as_it_is_read(machine: Machine, step: int) -> None:
    """A launch that reads a slice of a value computes no more of the value than the slice."""
    x = input_node(0, (64, 1000), dtypes.float32)
    doubled = apply("mul", x, x)
    rows = IndexMap((64 // step, 1000), (axis(0, 64 // step) * step, axis(1, 1000)))
    plan = schedule([x], [apply("neg", reindex(doubled, rows))], machine)
    (found,) = program_work(plan).kernels
    assert found.operations == 2 * (64 // step) * 1000


@MACHINES
@pytest.mark.parametrize("window", [1, 2])
def test_cases_of_a_contraction_count_their_own_work(machine: Machine, window: int) -> None:
    """The input gradient of a convolution with a stride multiplies as often as the convolution."""
    x = input_node(0, (2, 128, 64, 64), dtypes.float32)
    w = input_node(1, (256, 128, window, window), dtypes.float32)
    y = convolution(x, w, None, (2, 2), (0, 0), (0, 0), (1, 1), 1)
    g = input_node(2, y.shape, dtypes.float32)
    (by_input,) = pullback([y], [g], [x])
    found = program_work(schedule([x, w, g], [by_input], machine)).kernels
    forward = sum(map(operations_of, topological([y])))
    assert sum(work.operations for work in found) == pytest.approx(forward, rel=0.01)


def test_loops_take_as_long_as_their_steps() -> None:
    """A loop of twice the steps takes about twice as long."""
    times = []
    for length in (8, 16):
        x = metaop.zeros(length, 4, 16)
        cell = nn.RNN(16, 16, batch_first=False)
        subgraph = pending_subgraph([cell(x)[0].call])
        plan = schedule(*subgraph.expand(), Machine())
        assert any(launch.repetition is not None for launch in plan.launches)
        repeated = [launch.repetition is not None for launch in plan.launches]
        seconds = program_seconds(plan, USUAL)
        times.append(sum(time for time, is_loop in zip(seconds, repeated) if is_loop))
    assert times[1] == pytest.approx(2 * times[0], rel=0.1)
