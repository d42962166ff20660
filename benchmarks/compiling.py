"""What compiling costs: the first steps of training in fresh processes, and how often they compile.

Each network trains for three steps in a process without anything on disk and in one that finds
what the first has left there. A step whose shapes have been seen must compile nothing.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from benchmarks import whole_steps  # noqa: F401  registers workloads
from benchmarks.fresh_process import run_program
from benchmarks.workload import named_in
from metaop.codegen.llvm.runtime import runtime

GROUP = "compile"
_STEPS = 3
_PROGRAM = """
import json, time
start = time.perf_counter()
from benchmarks import whole_steps
from benchmarks.frameworks import alone
from benchmarks.workload import WORKLOADS
framework = alone({library!r})
run = WORKLOADS[{workload!r}].prepare(framework).run
framework.finish()
compiled = lambda: 0
if {library!r} == "metaop":
    from metaop.codegen.llvm.engine import statistics
    compiled = lambda: statistics.compiled
steps = []
before = start, 0, 0
for number in range({steps}):
    run()
    framework.finish()
    now = time.perf_counter(), time.process_time(), compiled()
    steps.append([after - earlier for after, earlier in zip(now, before)])
    before = now
print(json.dumps(steps))
"""


class Step(NamedTuple):
    """Seconds of a step, processor seconds of all threads, and how many kernels it compiled.

    The first step of a process counts from its start: imports and the making of the model belong
    to it. With one thread no other process helps to compile, whose seconds would not be counted.
    """

    seconds: float
    processor: float
    kernels: int


class Compilation(NamedTuple):
    """The steps of a network without a disk cache, with one, and in PyTorch's eager mode."""

    name: str
    cold: tuple[Step, ...]
    warm: tuple[Step, ...]
    torch: tuple[Step, ...]

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        runs = {"cold": self.cold, "warm": self.warm, "torch": self.torch}
        steps = {key: [step._asdict() for step in run] for key, run in runs.items()}
        return {"name": self.name, **steps}


def names() -> dict[str, str]:
    """The workloads by the names under which the command knows them."""
    return named_in(GROUP, "training")


def measure(workload: str) -> Compilation:
    """The first steps of one network."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {"METAOP_CACHE_DIR": folder, "METAOP_DISK_CACHE": "1"}
        cold, warm = (_steps("metaop", workload, environment) for _ in range(2))
    return Compilation(workload, cold, warm, _steps("torch", workload, {}))


def _steps(library: str, workload: str, environment: dict[str, str]) -> tuple[Step, ...]:
    program = _PROGRAM.format(library=library, workload=workload, steps=_STEPS)
    threads = str(runtime().get_num_threads())
    limits = {"METAOP_NUM_THREADS": threads, "OMP_NUM_THREADS": threads}
    steps = json.loads(run_program(program, {**environment, **limits}))
    return tuple(Step(*step) for step in steps)


HEAD = (
    "| network | first step s (CPU s) | kernels | from the disk cache s | kernels "
    "| second step s | kernels | third step s | kernels | PyTorch's first step s |",
    "| --- |" + " ---: |" * 9,
)


def markdown_row(row: Compilation) -> str:
    """One line of the table."""
    cells = [row.name, *_cells(row.cold[:1]), *_cells(row.warm[:1]), *_cells(row.cold[1:])]
    first = row.torch[0]
    return f"| {' | '.join(cells)} | {first.seconds:.2f} ({first.processor:.2f}) |"


def _cells(steps: Sequence[Step]) -> Iterator[str]:
    for step in steps:
        yield f"{step.seconds:.2f} ({step.processor:.2f})"
        yield str(step.kernels)
