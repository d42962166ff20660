"""Timing trials: candidates are compiled and run in turns on the same data."""

from __future__ import annotations

import time
from array import array
from collections.abc import Sequence

import numpy as np

from metaop.codegen.caches.kernels import KernelCache
from metaop.codegen.llvm.kernels import compile_nest
from metaop.codegen.llvm.runtime import ERROR_WORDS, Step, StepTable, runtime
from metaop.codegen.lowering import LoweredKernel
from metaop.codegen.memory.buffers import Buffer, allocate
from metaop.unified_graph.node import Node

# The seconds of a turn, approximately.
_TURN_SECONDS = 2e-4
# A candidate that takes this many times as long as the fastest in each of some turns drops out.
_HOPELESS, _FAIR_TURNS = 1.4, 4
# Data repeat after this many random numbers.
_PERIOD = 1 << 16


class Candidate:
    """Launches with their memory, ready to run."""

    def __init__(self, launches: Sequence[LoweredKernel], memory: Memory) -> None:
        # A separate cache: losing candidates must not affect the families of the process's kernels.
        cache = KernelCache(compile_nest)
        nodes = list(dict.fromkeys(node for launch in launches for node in launch.buffers))
        steps = []
        for launch in launches:
            address, arguments = cache.kernel_for(launch.nest)
            slots = [nodes.index(node) for node in launch.buffers]
            steps.append(Step(address, slots, arguments, launch.nest.tasks, launch.nest.grain))
        self._table = StepTable(steps)
        self._buffers = [memory.of(node) for node in nodes]
        self._slots = array("q", [buffer.address for buffer in self._buffers])
        self._error = array("q", bytes(8 * ERROR_WORDS))
        # The first run finds memory and code in no cache.
        self.run(1)
        self._times = max(1, int(_TURN_SECONDS / max(self.run(1), 1e-6)))

    def run(self, times: int) -> float:
        """The seconds of one run, the mean of several in a row.

        A single thread is measured by its processor time, which other processes hardly affect.
        """
        run = runtime().run
        clock = time.thread_time if runtime().get_num_threads() == 1 else time.perf_counter
        steps, slots, error = (
            self._table.address,
            self._slots.buffer_info()[0],
            self._error.buffer_info()[0],
        )
        start = clock()
        for _ in range(times):
            run(steps, len(self._table), slots, error, 0)
        return (clock() - start) / times

    def turn(self) -> float:
        """The seconds of one run, measured for long enough."""
        return self.run(self._times)


class Memory:
    """Buffers full of random numbers, one for each node; indices are 0, which every array has."""

    def __init__(self) -> None:
        self._buffers: dict[Node, Buffer] = {}
        self._numbers = np.random.default_rng(0).standard_normal(_PERIOD, np.float32)

    def of(self, node: Node) -> Buffer:
        """The buffer of a node."""
        found = self._buffers.get(node)
        if found is None:
            found = self._buffers[node] = allocate(max(node.nbytes, 8))
            values = found.view(node.shape, node.dtype.numpy)
            values[...] = 0
            if node.dtype.kind == "float":
                values[...] = np.resize(self._numbers, node.shape).astype(node.dtype.numpy)
        return found


def timing_trial(candidates: Sequence[Candidate], seconds: float, turns: int) -> np.ndarray:
    """The times [turn, candidate] for about `seconds`, with at least `turns` turns.

    Candidates that dropped out have infinite times.
    """
    found: list[list[float]] = []
    best = np.full(len(candidates), np.inf)
    stop = time.perf_counter() + seconds
    while len(found) < turns or time.perf_counter() < stop:
        # All candidates run the first turns, because a single one may be slow by chance.
        limit = _HOPELESS * best.min() if len(found) >= _FAIR_TURNS else np.inf
        found.append([one.turn() if t <= limit else np.inf for one, t in zip(candidates, best)])
        best = np.minimum(best, found[-1])
    return np.array(found)
