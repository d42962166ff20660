"""Random chains of batched products and of work on rows: slice by slice, and launch by launch.

`METAOP_FUZZ_COUNT` and `METAOP_FUZZ_SEED` are those of the random programs; a tenth of them run.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from metaop.codegen.llvm.machine import host_machine
from metaop.codegen.llvm.program import LLVMProgram
from metaop.codegen.memory.buffers import Buffer
from metaop.codegen.transforms.tile_and_fuse import _Finder
from metaop.compiler import schedule
from metaop.differentiation.transposition import pullback
from metaop.elementwise import apply
from metaop.operators.linear_algebra import matmul
from metaop.reduce.meta_op import reduce_axes
from metaop.reindex import views
from metaop.unified_graph.dtype import float32
from metaop.unified_graph.node import Node, input_node
from tests.codegen.force import change_thresholds
from tests.fuzz.test_programs import COUNT, FIRST_SEED

SEEDS = range(FIRST_SEED, FIRST_SEED + -(-COUNT // 10))


class Chain:
    """A graph over (batch, rows, columns) that grows step by step."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.batch = int(self.random.integers(2, 6))
        self.inputs: list[Node] = []
        self.value = self.fresh(self.extent(), self.extent())
        self.results: list[Node] = []

    def extent(self) -> int:
        return int(self.random.choice([5, 8, 16, 24, 33, 64]))

    def fresh(self, rows: int, columns: int) -> Node:
        self.inputs.append(input_node(len(self.inputs), (self.batch, rows, columns), float32))
        return self.inputs[-1]

    def grow(self) -> None:
        """One step: a product, work on rows, or a view; now and then a result is kept."""
        x = self.value
        steps = [self.product, self.product, self.product_from_left, self.softmax, self.bent]
        self.value = steps[int(self.random.integers(len(steps)))](x)
        if self.random.random() < 0.2:
            self.results.append(reduce_axes("max", self.value, [1]))

    def product(self, x: Node) -> Node:
        return matmul(x, self.fresh(x.shape[2], self.extent())) * (1 / x.shape[2])

    def product_from_left(self, x: Node) -> Node:
        other = self.fresh(self.extent(), x.shape[1])
        return matmul(other, x) * (1 / x.shape[1])

    def softmax(self, x: Node) -> Node:
        powers = apply("exp", x - reduce_axes("max", x, [2], keepdim=True))
        return powers * apply("reciprocal", reduce_axes("add", powers, [2], keepdim=True))

    def bent(self, x: Node) -> Node:
        bent = apply("tanh", x) + x
        return views.permute(bent, (0, 2, 1)) if self.random.random() < 0.4 else bent

    def graph(self) -> tuple[list[Node], list[Node]]:
        """The inputs and the results, with gradients by the first inputs."""
        for _ in range(int(self.random.integers(3, 7))):
            self.grow()
        given = self.fresh(*self.value.shape[1:])
        wanted = self.inputs[: int(self.random.integers(0, 4))]
        found = pullback([self.value], [given], wanted) if wanted else []
        return self.inputs, [self.value, *self.results, *(g for g in found if g is not None)]


@pytest.mark.parametrize("seed", SEEDS)
def test_random_chains(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    change_thresholds(monkeypatch, least_bytes=1)
    inputs, outputs = Chain(seed).graph()
    generator = np.random.default_rng(seed)
    arrays = [generator.standard_normal(x.shape).astype(np.float32) for x in inputs]
    host = replace(host_machine(), threads=1)
    found = []
    for near_bytes in (0, int(generator.choice([1 << 12, 1 << 14, 1 << 20]))):
        machine = replace(host, tile=replace(host.tile, near_bytes=near_bytes))
        plan = schedule(inputs, outputs, machine)
        results = LLVMProgram(plan).run([Buffer.from_numpy(array.copy()) for array in arrays])
        found.append([r.view(o.shape, np.float32) for r, o in zip(results, plan.outputs)])
    for apart, tiled in zip(*found):
        scale = max(float(np.abs(apart).max()), 1e-3)
        np.testing.assert_allclose(tiled, apart, rtol=1e-4, atol=1e-5 * scale)


@pytest.mark.parametrize("seed", SEEDS)
def test_searches_that_are_ended_would_find_nothing(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    change_thresholds(monkeypatch, least_bytes=1)
    inputs, outputs = Chain(seed).graph()
    host = replace(host_machine(), threads=1)
    machine = replace(host, tile=replace(host.tile, near_bytes=1 << 14))
    found = schedule(inputs, outputs, machine).launches
    monkeypatch.setattr(_Finder, "_may_match", lambda *arguments: True)
    wanted = schedule(inputs, outputs, machine).launches
    assert [launch.nest for launch in found] == [launch.nest for launch in wanted]
