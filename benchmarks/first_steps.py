"""The first steps of training in fresh processes, imports included, and how often they compile.

Each network trains for three steps in a process without anything on disk and in one that finds
what the first has left there. A step whose shapes have been seen must compile nothing.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from benchmarks import whole_steps  # noqa: F401  registers workloads
from benchmarks.comparison import reason
from benchmarks.frameworks import is_compiled
from benchmarks.fresh_process import disk_cache, run_program, same_threads
from benchmarks.workload import named_in

GROUP = "first_steps"
_STEPS, _QUICK_STEPS = 3, 2
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
    from metaop.codegen.llvm.objects.engine import statistics
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


class FirstSteps(NamedTuple):
    """The steps of a network with an empty disk cache, a filled one, and in PyTorch's modes.

    `excluded` tells why PyTorch's compiler cannot run the workload in a mode.
    """

    name: str
    cold: tuple[Step, ...]
    warm: tuple[Step, ...]
    torch: dict[str, tuple[Step, ...]]
    excluded: dict[str, str]

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        runs = {"cold": self.cold, "warm": self.warm, **self.torch}
        steps = {key: [step._asdict() for step in run] for key, run in runs.items()}
        return {"name": self.name, **steps, "excluded": self.excluded}


def names() -> dict[str, str]:
    """The workloads by the names under which the command knows them."""
    return named_in(GROUP, "training")


def measure(workload: str, modes: Sequence[str], quick: bool) -> FirstSteps:
    """The first steps of one network."""
    count = _QUICK_STEPS if quick else _STEPS
    torch, excluded = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        environment = disk_cache(folder)
        cold, warm = (_steps("metaop", workload, count, environment) for _ in range(2))
        for mode in modes:
            try:
                torch[mode] = _steps(mode, workload, count, environment)
            except RuntimeError as error:
                if not is_compiled(mode):
                    raise
                excluded[mode] = reason(error)
    return FirstSteps(workload, cold, warm, torch, excluded)


def _steps(
    library: str, workload: str, count: int, environment: Mapping[str, str]
) -> tuple[Step, ...]:
    program = _PROGRAM.format(library=library, workload=workload, steps=count)
    steps = json.loads(run_program(program, {**environment, **same_threads()}))
    return tuple(Step(*step) for step in steps)


HEAD = (
    "| network | first step s (CPU s) | kernels | from the disk cache s | kernels "
    "| second step s | kernels | last step s | kernels | PyTorch's first step s |",
    "| --- |" + " ---: |" * 9,
)


def markdown_row(row: FirstSteps) -> str:
    """One line of the table."""
    ours = _cells(row.cold[0], row.warm[0], row.cold[1], row.cold[-1])
    theirs = [f"{mode} {_seconds(steps[0])}" for mode, steps in row.torch.items()]
    theirs += [f"{mode} excluded: {why}" for mode, why in row.excluded.items()]
    return f"| {row.name} | {' | '.join(ours)} | {', '.join(theirs)} |"


def _cells(*steps: Step) -> Iterator[str]:
    for step in steps:
        yield _seconds(step)
        yield str(step.kernels)


def _seconds(step: Step) -> str:
    return f"{step.seconds:.2f} ({step.processor:.2f})"
