"""Profiles: which kernels ran, for how long, and which lines of the program asked for them."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from metaop import executor
from metaop.codegen.backend import Program, observers
from metaop.errors import describe_location
from metaop.unified_graph.cut import Subgraph
from metaop.unified_graph.recording import watched


class KernelRun(NamedTuple):
    """One launch of a kernel; times in nanoseconds of the monotonic clock."""

    name: str
    start: int
    end: int


class ProgramRun(NamedTuple):
    """One cut: its kernels in order, and the operators that it computed by source line."""

    kernels: tuple[KernelRun, ...]
    operators: dict[str, list[str]]

    @property
    def start(self) -> int:
        return self.kernels[0].start

    @property
    def end(self) -> int:
        return self.kernels[-1].end


class Profile:
    """What ran inside a `with metaop.profile():` block.

    `runs` lists the programs, `table()` sums the kernels up, `save(path)` writes a trace for
    chrome://tracing or ui.perfetto.dev. Kernels of generated code are seen; the NumPy reference
    backend reports nothing.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self.runs: list[ProgramRun] = []
        self._path = path
        self._kept_locations = False

    def __enter__(self) -> Profile:
        self._kept_locations, watched.locations = watched.locations, True
        observers.append(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        observers.remove(self)
        watched.locations = self._kept_locations
        if self._path is not None:
            self.save(self._path)

    def ran(self, program: Program, names: Sequence[str], times: Sequence[int]) -> None:
        """Takes down one run of a program: `times` before each kernel and after the last."""
        if names:
            spans = tuple(map(KernelRun, names, times[:-1], times[1:]))
            self.runs.append(ProgramRun(spans, _operators_by_line(executor.running())))

    def table(self) -> str:
        """The kernels by total time: calls, milliseconds, share, name."""
        totals: dict[str, tuple[int, int]] = {}
        for run in self.runs:
            for kernel in run.kernels:
                count, time = totals.get(kernel.name, (0, 0))
                totals[kernel.name] = count + 1, time + kernel.end - kernel.start
        whole = sum(time for _, time in totals.values()) or 1
        lines = [f"{'calls':>8}  {'ms':>10}  {'share':>6}  kernel"]
        for name, (count, time) in sorted(totals.items(), key=lambda item: -item[1][1]):
            lines.append(f"{count:>8}  {time / 1e6:>10.3f}  {time / whole:>6.1%}  {name}")
        return "\n".join(lines) + "\n"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the runs in the trace event format of Chrome."""
        events = [event for run in self.runs for event in _trace_events(run)]
        trace = {"traceEvents": events, "displayTimeUnit": "ms"}
        Path(path).write_text(json.dumps(trace))


def profile(path: str | os.PathLike[str] | None = None) -> Profile:
    """A context manager that profiles its block and writes a trace to `path` if one is given.

    Example:

        with metaop.profile("trace.json") as result:
            train_one_epoch()
        print(result.table())
    """
    return Profile(path)


def _operators_by_line(subgraph: Subgraph | None) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for call in subgraph.order if subgraph else ():
        if call.signature is not None:
            line = describe_location(call.location) or "unknown"
            found.setdefault(line, []).append(call.signature.composite.name)
    return found


def _trace_events(run: ProgramRun) -> list[dict[str, Any]]:
    whole = _event("program", run.start, run.end, {"lines": run.operators})
    return [whole, *(_event(kernel.name, kernel.start, kernel.end, {}) for kernel in run.kernels)]


def _event(name: str, start: int, end: int, details: dict[str, Any]) -> dict[str, Any]:
    # The format counts in microseconds; complete events ("X") nest by their times.
    return {
        "name": name,
        "ph": "X",
        "ts": start / 1000,
        "dur": (end - start) / 1000,
        "pid": os.getpid(),
        "tid": 0,
        "args": details,
    }
