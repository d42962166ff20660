"""Streams of new sizes: the cost of compilation in each step, and what remains of it later.

Each stream runs in a fresh process without anything on disk, step by step in turns in all
frameworks: first over batches whose sizes are new, then over the same batches again, a few times,
of which the fastest counts. The first step of a process belongs to neither.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from tqdm import tqdm

from benchmarks.comparison import PAUSE, reason
from benchmarks.frameworks import Framework, frameworks, is_compiled
from benchmarks.fresh_process import disk_cache, run_program, same_threads
from benchmarks.streams import STREAMS, Batch, Step
from metaop.codegen.llvm.runtime import runtime

GROUP = "sizes"
_STEPS, _QUICK_STEPS = 200, 4
_REPETITIONS = 3
# Rounding differences grow with the steps, so only the first are compared.
_COMPARED, _TOLERANCE = 24, 2e-2
_PROGRAM = """
import json
from benchmarks import sizes
print(json.dumps(sizes.stream({name!r}, {modes!r}, {steps})))
"""


class Pass(NamedTuple):
    """Seconds of all steps, and how many programs and kernels metaop made meanwhile."""

    seconds: dict[str, float]
    programs: int
    kernels: int


class Streamed(NamedTuple):
    """A stream over sizes that are new, and over the same sizes again.

    `error` is the largest difference of a step's value, relative to it; `excluded` tells why
    PyTorch's compiler cannot run the stream in a mode.
    """

    name: str
    steps: int
    new: Pass
    seen: Pass
    error: float
    excluded: dict[str, str]

    def ratio(self, run: Pass, mode: str) -> float:
        """Seconds of a mode of PyTorch over metaop's: above 1, metaop is faster."""
        return run.seconds[mode] / run.seconds["metaop"]

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        return {**self._asdict(), "new": self.new._asdict(), "seen": self.seen._asdict()}


def names() -> dict[str, str]:
    """The streams by the names under which the command knows them."""
    return {f"{GROUP}: {name}": name for name in STREAMS}


def measure(name: str, modes: Sequence[str], quick: bool) -> Streamed:
    """Runs one stream in a fresh process."""
    steps = _QUICK_STEPS if quick else _STEPS
    program = _PROGRAM.format(name=name, modes=list(modes), steps=steps)
    with tempfile.TemporaryDirectory() as folder:
        found = json.loads(run_program(program, {**disk_cache(folder), **same_threads()}))
    new, seen = (Pass(*part) for part in found["passes"])
    return Streamed(name, steps, new, seen, found["error"], found["excluded"])


def stream(name: str, modes: Sequence[str], count: int) -> dict[str, Any]:
    """Runs one stream in this process, which should be a fresh one."""
    first, *batches = STREAMS[name].sizes(np.random.default_rng(0), count + 1)
    runners, excluded = [], {}
    for framework in frameworks(modes):
        runner = _Runner(framework, STREAMS[name].prepare(framework))
        try:
            runner(first)
        except Exception as error:  # whatever a compiler raises for what it does not support
            if not is_compiled(framework.name):
                raise
            excluded[framework.name] = reason(error)
        else:
            runners.append(runner)
    made, values, passes = _made(), [], []
    for title in ["new sizes"] + ["sizes seen before"] * _REPETITIONS:
        before = made()
        for runner in runners:
            runner.seconds = 0.0
        for batch in tqdm(batches, title, unit=" steps", leave=False):
            values.append([runner(batch) for runner in runners])
        counts = [after - earlier for after, earlier in zip(made(), before)]
        passes.append(Pass({each.framework.name: each.seconds for each in runners}, *counts))
    ours, *theirs = np.array(values[: min(_COMPARED, len(batches))]).T
    difference = max(float(np.abs(ours / other - 1).max()) for other in theirs)
    least = _fastest(passes[1:])
    return {"passes": [passes[0], least], "error": difference, "excluded": excluded}


def _fastest(passes: Sequence[Pass]) -> Pass:
    """The minimum seconds of each framework, and all programs and kernels that were made."""
    seconds = {mode: min(each.seconds[mode] for each in passes) for mode in passes[0].seconds}
    programs, kernels = (sum(counts) for counts in zip(*(each[1:] for each in passes)))
    return Pass(seconds, programs, kernels)


class _Runner:
    """Runs the steps of a stream in one framework, and adds up their seconds."""

    def __init__(self, framework: Framework, step: Step) -> None:
        self.framework, self.step = framework, step
        self.seconds = 0.0
        # Other processes hardly change the CPU time of one thread, compiling included.
        one = runtime().get_num_threads() == 1
        self.clock = time.process_time if one else time.perf_counter

    def __call__(self, batch: Batch) -> float:
        tensors = [self._own(part) for part in batch]
        time.sleep(PAUSE)
        start = self.clock()
        value = self.step(*tensors)
        self.framework.finish()
        number = float(value.item())
        self.seconds += self.clock() - start
        return number

    def _own(self, part: Any) -> Any:
        return self.framework.tensor(part) if isinstance(part, np.ndarray) else part


def _made() -> Callable[[], tuple[int, int]]:
    """A function that tells how many programs were made since, and how many kernels compiled."""
    from metaop.codegen.llvm.objects.engine import statistics
    from metaop.execution import specialisation

    programs = 0

    def counting(function: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any) -> Any:
            nonlocal programs
            programs += 1
            return function(*arguments)

        return counted

    for name in ("compile_subgraph", "compile_generally"):
        setattr(specialisation, name, counting(getattr(specialisation, name)))
    return lambda: (programs, statistics.compiled)


HEAD = (
    "| stream | PyTorch's mode | metaop ms, new sizes | PyTorch ms | ratio "
    "| metaop ms, seen sizes | PyTorch ms | ratio | programs | kernels | same |",
    "| --- | --- |" + " ---: |" * 8 + " --- |",
)


def markdown_row(row: Streamed) -> str:
    """The lines of the table, one for each of PyTorch's modes."""
    lines = [f"| {row.name} | {mode} excluded: {why} |" for mode, why in row.excluded.items()]
    for mode in row.new.seconds:
        if mode == "metaop":
            continue
        cells = []
        for run in (row.new, row.seen):
            cells += [f"{run.seconds[key] / row.steps * 1e3:.2f}" for key in ("metaop", mode)]
            cells.append(f"{row.ratio(run, mode):.2f}")
        made = [f"{new} + {seen}" for new, seen in zip(row.new[1:], row.seen[1:])]
        same = "yes" if row.error <= _TOLERANCE else f"no: {row.error:.1e}"
        lines.append(f"| {row.name} | {mode} | {' | '.join([*cells, *made])} | {same} |")
    return "\n".join(lines)
