"""Runs one workload in all frameworks, in turns, and compares times and values."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from benchmarks.frameworks import Framework, frameworks, is_compiled
from benchmarks.roofline import Roofline
from benchmarks.workload import Prepared, Workload

# Idle threads of one framework spin for a while and would take a core from the other.
PAUSE = 0.004


class Effort(NamedTuple):
    """How long to measure: the turns of each framework, and about the seconds of a turn.

    `clock` tells the time; that of one thread does not run while others have its core.
    """

    rounds: int
    burst: float
    clock: Callable[[], float] = time.perf_counter


class Timing(NamedTuple):
    """Seconds of one run: the first one (with compilation), least and median of the turns."""

    first: float
    least: float
    median: float


class Comparison(NamedTuple):
    """A row of the table; `share` is the share of the roofline that metaop's median reached.

    `excluded` tells why PyTorch cannot run the workload in a mode.
    """

    name: str
    group: str
    timings: dict[str, Timing]
    error: float
    tolerance: float
    share: float | None
    excluded: dict[str, str]

    @property
    def best(self) -> str:
        """The fastest mode of PyTorch."""
        return min(
            (name for name in self.timings if name != "metaop"),
            key=lambda name: self.timings[name].median,
        )

    @property
    def ratio(self) -> float:
        """Median of the best mode of PyTorch over metaop's: above 1, metaop is faster."""
        return self.timings[self.best].median / self.timings["metaop"].median

    @property
    def ratio_of_minima(self) -> float:
        return self.timings[self.best].least / self.timings["metaop"].least

    @property
    def equal(self) -> bool:
        """Whether the values of all frameworks agree within the tolerance."""
        return self.error <= self.tolerance


def compare(
    workload: Workload, modes: Sequence[str], effort: Effort, roofline: Roofline
) -> Comparison:
    """Measures one workload.

    What PyTorch's compiler refuses is told in the row; eager PyTorch and metaop have to run it.
    """
    started, excluded = [], {}
    for framework in frameworks(modes):
        try:
            started.append(_start(framework, workload, effort))
        except Exception as error:  # whatever a compiler raises for what it does not support
            if not is_compiled(framework.name):
                raise
            excluded[framework.name] = reason(error)
    difference = max(_difference(started[0].values, other.values) for other in started[1:])
    bursts = interleaved([_finished(each.framework, each.prepared) for each in started], effort)
    timings = {
        each.framework.name: Timing(each.seconds, min(times), statistics.median(times))
        for each, times in zip(started, bursts)
    }
    least = roofline.seconds(workload.nbytes, workload.flops)
    share = least / timings["metaop"].median if least else None
    return Comparison(
        workload.name, workload.group, timings, difference, workload.tolerance, share, excluded
    )


class _Started(NamedTuple):
    """A workload after its first run in a framework: the time it took, and what it computed."""

    framework: Framework
    prepared: Prepared
    seconds: float
    values: list[np.ndarray]


def _start(framework: Framework, workload: Workload, effort: Effort) -> _Started:
    prepared = workload.prepare(framework)
    start = effort.clock()
    results = prepared.run()
    framework.finish()
    seconds = effort.clock() - start
    watched = prepared.observe() if prepared.observe else _flat(results)
    return _Started(framework, prepared, seconds, [framework.numpy(value) for value in watched])


def interleaved(runs: Sequence[Callable[[], Any]], effort: Effort) -> list[list[float]]:
    """Seconds of one call of each function, one list a function, taken in turns A B A B."""
    repetitions = []
    for run in runs:
        run()
        start = effort.clock()
        run()
        repetitions.append(max(1, int(effort.burst / (effort.clock() - start))))
    times: list[list[float]] = [[] for _ in runs]
    for _ in range(effort.rounds):
        for run, count, seconds in zip(runs, repetitions, times):
            time.sleep(PAUSE)
            run()
            start = effort.clock()
            for _ in range(count):
                run()
            seconds.append((effort.clock() - start) / count)
    return times


def _finished(framework: Framework, prepared: Any) -> Callable[[], None]:
    run, finish = prepared.run, framework.finish

    def whole() -> None:
        results = run()
        finish()
        del results

    return whole


def reason(error: Exception) -> str:
    """The type and the first line of an error."""
    return f"{type(error).__name__}: {error}".split("\n")[0]


def _flat(results: Any) -> list[Any]:
    if isinstance(results, (tuple, list)):
        return [value for part in results for value in _flat(part)]
    return [results]


def _difference(found: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> float:
    """The largest difference relative to the largest value; infinite when shapes differ."""
    worst = 0.0
    for left, right in zip(found, expected, strict=True):
        if left.shape != right.shape:
            return float("inf")
        scale = max(float(np.abs(right).max()), 1e-30)
        difference = float(np.abs(left.astype(np.float64) - right.astype(np.float64)).max())
        worst = max(worst, difference / scale)
    return worst
