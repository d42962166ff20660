"""How well the cost model ranks kernels: estimated beside measured seconds of training steps.

python -m benchmarks.cost_model                  # all steps of the training list
python -m benchmarks.cost_model mlp lenet        # those with one of these words in their name
python -m benchmarks.cost_model --threads 1

The estimate follows from the description of the processor (`python -m metaop tune --machine`
measures it); the profiler measures. Spearman's correlation is that of the ranks: 1 if kernels that
are estimated to take longer do.
"""

from __future__ import annotations

import argparse
import gc
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from tqdm import tqdm

import metaop
from benchmarks import whole_steps  # noqa: F401, registers workloads
from benchmarks.frameworks import MetaOp
from benchmarks.report import Metric
from benchmarks.workload import WORKLOADS, Workload
from metaop.codegen.backend import observers
from metaop.codegen.estimate import program_seconds
from metaop.codegen.llvm.machine import host_machine
from metaop.codegen.llvm.processor import host_processor
from metaop.codegen.llvm.tuning import tuned
from metaop.compiler import schedule
from metaop.execution import executor

_GROUP = "training"
_STEPS = 5


class Kernels(NamedTuple):
    """The kernels of a workload: names, and seconds estimated and measured of each."""

    names: list[str]
    estimated: list[float]
    measured: list[float]


class _Observer:
    """Records the minimum time of each kernel of each program, and its estimate."""

    def __init__(self) -> None:
        self.estimates: dict[int, list[float]] = {}
        self.names: dict[int, list[str]] = {}
        self.least: dict[int, np.ndarray] = {}
        self.programs: list[Any] = []

    def ran(self, program: Any, names: Sequence[str], times: Sequence[int]) -> None:
        key, seconds = id(program), np.diff(times) * 1e-9
        if key not in self.least:
            self.programs.append(program)
            self.names[key], self.least[key] = list(names), seconds
            self.estimates[key] = _estimates(names)
        else:
            self.least[key] = np.minimum(self.least[key], seconds)


def _estimates(names: Sequence[str]) -> list[float]:
    """Those of the program that runs; none where its kernels are not those of a schedule."""
    subgraph = executor.running()
    if subgraph is None:
        return []
    plan = schedule(*subgraph.expand(), tuned(host_machine()))
    is_same = [launch.nest.name for launch in plan.launches] == list(names)
    return program_seconds(plan, host_processor()) if is_same else []


def kernels_of(workload: Workload, steps: int = _STEPS) -> Kernels:
    """The kernels of some steps of a workload."""
    framework = MetaOp([])
    prepared = workload.prepare(framework)
    framework.finish()
    for _ in range(2):
        prepared.run()
        executor.realize()
    observers.append(observer := _Observer())
    try:
        for _ in range(steps):
            prepared.run()
            executor.realize()
    finally:
        observers.remove(observer)
    found = Kernels([], [], [])
    for key, estimates in observer.estimates.items():
        if estimates:
            found.names.extend(observer.names[key])
            found.estimated.extend(estimates)
            found.measured.extend(observer.least[key])
    return found


def spearman(one: Sequence[float], other: Sequence[float]) -> float:
    """Spearman's rank correlation; ties share the mean of their ranks."""
    return float(np.corrcoef(_ranks(one), _ranks(other))[0, 1])


def _ranks(numbers: Sequence[float]) -> np.ndarray:
    _, which, counts = np.unique(np.asarray(numbers), return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[which]


def rows(words: Sequence[str], steps: int = _STEPS) -> Iterator[tuple[str, Kernels]]:
    """The kernels of the workloads of the training list whose names have one of the words."""
    wanted = [word.lower() for word in words]
    chosen = [
        row
        for row in WORKLOADS.values()
        if row.group == _GROUP and (not wanted or any(word in row.name.lower() for word in wanted))
    ]
    for row in tqdm(chosen, "cost model", unit=" steps", disable=None):
        yield row.name, kernels_of(row, steps)
        executor.clear_programs()
        gc.collect()


def measure() -> list[Metric]:
    """The correlation over all kernels of the training list."""
    found = [kernels for _, kernels in rows(())]
    estimated = [x for one in found for x in one.estimated]
    measured = [x for one in found for x in one.measured]
    return [
        Metric("rank correlation of estimated and measured seconds", "metaop",
               spearman(estimated, measured), "")
    ]  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the correlation of each workload and of all kernels together."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="words of names; all without any")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--steps", type=int, default=_STEPS)
    parser.add_argument("--kernels", action="store_true", help="print each kernel as well")
    options = parser.parse_args(arguments)
    if options.threads:
        metaop.set_num_threads(options.threads)
    origin = "measured" if host_processor().is_measured else "typical"
    print(f"{metaop.get_num_threads()} threads, {origin} processor")
    print("| step | kernels | rank correlation | estimated ms | measured ms |")
    print("| --- | ---: | ---: | ---: | ---: |")
    every = Kernels([], [], [])
    for name, found in rows(options.names, options.steps):
        print(_row(name, found))
        if options.kernels:
            for kernel, *seconds in zip(*found):
                print(f"    {kernel:60s}", *(f"{1e6 * one:10.2f} us" for one in seconds))
        for whole, part in zip(every, found):
            whole.extend(part)
    print(_row("all", every))


def _row(name: str, found: Kernels) -> str:
    correlation = spearman(found.estimated, found.measured)
    sums = (f"{1e3 * sum(x):.2f}" for x in (found.estimated, found.measured))
    return f"| {name} | {len(found.names)} | {correlation:.3f} | {' | '.join(sums)} |"


if __name__ == "__main__":
    main()
