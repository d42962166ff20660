"""Small complete trainings: the total time of a program, from start to end.

Each runs in processes of its own with nothing on disk; metaop runs a second time, with what the
first process has left there. Processor seconds are those of all threads, and of the processes that
help to compile.
"""

from __future__ import annotations

import json
import pkgutil
import resource
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from benchmarks import programs
from benchmarks.comparison import reason
from benchmarks.frameworks import is_compiled
from benchmarks.fresh_process import disk_cache, run_program, same_threads

GROUP = "programs"
_STEPS, _QUICK_STEPS = 100, 5
_COLD, _WARM = "metaop", "metaop, filled cache"
_PROGRAM = """
import json
from benchmarks.frameworks import alone
framework = alone({library!r})
program = framework.load("benchmarks.programs.{name}")
print(json.dumps(program.main({steps}, framework.function)))
"""


class Run(NamedTuple):
    """Seconds of a whole process, processor seconds, and the first and last losses it had."""

    seconds: float
    processor: float
    first: float
    last: float


class Whole(NamedTuple):
    """The runs of a program by framework; `excluded` tells why a mode of PyTorch has none."""

    name: str
    steps: int
    runs: dict[str, Run]
    excluded: dict[str, str]

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        return {**self._asdict(), "runs": {key: run._asdict() for key, run in self.runs.items()}}


def names() -> dict[str, str]:
    """The programs by the names under which the command knows them."""
    return {f"{GROUP}: {each.name}": each.name for each in pkgutil.iter_modules(programs.__path__)}


def measure(name: str, modes: Sequence[str], quick: bool) -> Whole:
    """Runs one program in all frameworks."""
    steps = _QUICK_STEPS if quick else _STEPS
    runs, excluded = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        environment = {**disk_cache(folder), **same_threads()}
        runs[_COLD] = _run("metaop", name, steps, environment)
        runs[_WARM] = _run("metaop", name, steps, environment)
        for mode in modes:
            try:
                runs[mode] = _run(mode, name, steps, environment)
            except RuntimeError as error:
                if not is_compiled(mode):
                    raise
                excluded[mode] = reason(error)
    return Whole(name, steps, runs, excluded)


def _run(library: str, name: str, steps: int, environment: Mapping[str, str]) -> Run:
    program = _PROGRAM.format(library=library, name=name, steps=steps)
    start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    losses = json.loads(run_program(program, environment))
    seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Run(seconds, processor, losses[0], losses[-1])


HEAD = (
    "| program | steps | framework | s | CPU s | ratio to metaop, cold (of CPU s) "
    "| first loss | last loss |",
    "| --- | ---: | --- |" + " ---: |" * 5,
)


def markdown_row(row: Whole) -> str:
    """The lines of the table, one for each framework."""
    lines = [
        f"| {row.name} | {row.steps} | {mode} excluded: {why} |"
        for mode, why in row.excluded.items()
    ]
    cold = row.runs[_COLD]
    for library, run in row.runs.items():
        ratios = f"{run.seconds / cold.seconds:.2f} ({run.processor / cold.processor:.2f})"
        lines.append(
            f"| {row.name} | {row.steps} | {library} | {run.seconds:.2f} | {run.processor:.2f} "
            f"| {ratios} | {run.first:.3f} | {run.last:.3f} |"
        )
    return "\n".join(lines)
