"""The memory bandwidth and arithmetic rate of this machine, measured by generated code."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import metaop
from metaop.codegen.estimate import program_work
from metaop.codegen.llvm.machine import host_machine
from metaop.compiler import schedule
from metaop.execution.executor import pending_subgraph
from metaop.inspect.profiler import Profile
from metaop.tensor.core import Tensor

_ELEMENTS, _SIDE, _ROUNDS = 1 << 23, 1024, 3


class Limits(NamedTuple):
    """Bytes and operations per second."""

    bandwidth: float
    arithmetic: float

    def seconds(self, nbytes: int, operations: int) -> float:
        """The minimum time for this much work; memory traffic and arithmetic overlap."""
        return max(nbytes / self.bandwidth, operations / self.arithmetic)


def limits() -> Limits:
    """The rates of a pass over 32 MiB and of a large matrix product, best of three."""
    vector, matrix = metaop.rand(_ELEMENTS), metaop.rand(_SIDE, _SIDE)
    vector.numpy(), matrix.numpy()
    nbytes, _, passing = _best(lambda: vector + 1)
    _, operations, multiplying = _best(lambda: matrix @ matrix)
    return Limits(nbytes / passing, operations / multiplying)


def _best(function: Callable[[], Tensor]) -> tuple[int, int, float]:
    """Bytes, operations and the minimum seconds of a function's kernels."""
    pending = pending_subgraph([function().call])
    work = program_work(schedule(*pending.expand(), host_machine())).kernels
    times = []
    for _ in range(_ROUNDS):
        with Profile() as result:
            function().numpy()
        times.append(sum(k.end - k.start for run in result.runs for k in run.kernels) / 1e9)
    return sum(k.nbytes for k in work), sum(k.operations for k in work), min(times)
