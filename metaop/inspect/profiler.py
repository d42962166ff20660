"""Profiles: which kernels ran, for how long, and which lines of the program caused them."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from metaop.codegen.backend import Program, observers
from metaop.errors import ArgumentError, describe_location, user_location
from metaop.execution import executor
from metaop.inspect.by_line import COMPILING, HOST, Ledger, LineTime, as_text, place_of
from metaop.inspect.flame import flame
from metaop.tensor.html import table
from metaop.unified_graph.cut import Subgraph
from metaop.unified_graph.recording import watched

_HEAD = ("calls", "ms", "share", "kernel")


class KernelRun(NamedTuple):
    """One kernel launch; times are nanoseconds of the monotonic clock."""

    name: str
    start: int
    end: int


class ProgramRun(NamedTuple):
    """One cut: its kernels in order, and its operators by source line."""

    kernels: tuple[KernelRun, ...]
    operators: dict[str, list[str]]

    @property
    def start(self) -> int:
        return self.kernels[0].start

    @property
    def end(self) -> int:
        return self.kernels[-1].end


class Profile(executor.Watcher):
    """The programs that ran inside a `with metaop.profile():` block.

    `runs` lists the programs, `table()` sums up kernels in milliseconds, `lines()` shows the time
    by source line, `flame(path)` draws it, `save(path)` writes a trace for chrome://tracing or
    ui.perfetto.dev. Only kernels of generated code are recorded; the NumPy reference backend
    reports none.

    >>> with metaop.profile() as result:
    ...     x = metaop.ones(3).exp().tolist()
    >>> len(result.runs)
    1
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self.runs: list[ProgramRun] = []
        self._path = path
        self._kept_locations = False
        self._ledger = Ledger()
        self._begin = self._end = 0
        # Start and duration of kernels and compilations since the last cut.
        self._inside: list[tuple[int, int]] = []

    def __enter__(self) -> Profile:
        self._kept_locations, watched.locations = watched.locations, True
        observers.append(self)
        executor.watchers.append(self)
        self._begin, self._end = time.monotonic_ns(), 0
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end = time.monotonic_ns()
        observers.remove(self)
        executor.watchers.remove(self)
        watched.locations = self._kept_locations
        if self._path is not None:
            self.save(self._path)

    def ran(self, program: Program, names: Sequence[str], times: Sequence[int]) -> None:
        """Records one run of a program; `times` are before each kernel and after the last."""
        if names:
            spans = tuple(map(KernelRun, names, times[:-1], times[1:]))
            subgraph = executor.running()
            self.runs.append(ProgramRun(spans, _operators_by_line(subgraph)))
            # A captured call records no operators: its kernels belong to the calling line.
            own = {place_of(user_location()): 1.0}
            shares = own if subgraph is None else self._ledger.shares(subgraph)
            for kernel in spans:
                self._ledger.add(shares, "kernel", kernel.name, kernel.end - kernel.start)
            self._inside.append((spans[0].start, spans[-1].end - spans[0].start))

    def compiled(self, subgraph: Subgraph, start: int, end: int) -> None:
        """Records how long a program took to compile."""
        self._ledger.add(self._ledger.shares(subgraph), COMPILING, COMPILING, end - start)
        self._inside.append((start, end - start))

    def computed(self, subgraph: Subgraph, start: int, end: int) -> None:
        """Records a cut: time spent neither in kernels nor compiling is host overhead."""
        self._ledger.note_operators(subgraph)
        inside = sum(length for begin, length in self._inside if begin >= start)
        host = max(0, end - start - inside)
        self._ledger.add({place_of(user_location()): 1.0}, HOST, HOST, host)
        self._inside.clear()

    def table(self) -> str:
        """The kernels by total time: calls, milliseconds, share, name."""
        rows = [_HEAD, *self._rows()]
        lines = [f"{count:>8}  {time:>10}  {share:>6}  {name}" for count, time, share, name in rows]
        return "\n".join(lines) + "\n"

    def _repr_html_(self) -> str:
        return table(self._rows(), _HEAD)

    def by_kernel(self) -> list[tuple[str, int, int]]:
        """Name, calls and nanoseconds of each kernel, the longest first."""
        totals: dict[str, tuple[int, int]] = {}
        for run in self.runs:
            for kernel in run.kernels:
                count, time = totals.get(kernel.name, (0, 0))
                totals[kernel.name] = count + 1, time + kernel.end - kernel.start
        longest_first = sorted(totals.items(), key=lambda item: -item[1][1])
        return [(name, count, time) for name, (count, time) in longest_first]

    def _rows(self) -> list[tuple[str, str, str, str]]:
        kernels = self.by_kernel()
        whole = sum(time for _, _, time in kernels) or 1
        return [
            (str(count), f"{time / 1e6:.3f}", f"{time / whole:.1%}", name)
            for name, count, time in kernels
        ]

    def by_line(self) -> list[LineTime]:
        """The lines of the program with their times, the longest first.

        Shares are of `nanoseconds`. Compilation and kernels shared by several lines are divided
        among them by the estimated work of their operators.
        """
        return self._ledger.lines(self.nanoseconds)

    @property
    def nanoseconds(self) -> float:
        """The time of the block so far."""
        passed = (self._end or time.monotonic_ns()) - self._begin if self._begin else 0
        # Programs of several threads may overlap.
        return max(passed, sum(line.nanoseconds for line in self._ledger.lines(0)))

    def lines(self) -> str:
        """The time by source line: milliseconds, share, kernels, compilation, host.

        The last row is Python between programs, including the recording of operators; all shares
        add up to 100 %.
        """
        whole = self.nanoseconds
        return as_text(self._ledger.lines(whole), whole)

    def flame(self, path: str | os.PathLike[str]) -> None:
        """Draws the time by file, function, line and kernel as an SVG flame view.

        Raises ArgumentError unless the name ends in .svg.
        """
        if Path(path).suffix != ".svg":
            raise ArgumentError(f"a flame view is an SVG file, not {path}", fix="name it ….svg")
        whole = self.nanoseconds
        Path(path).write_text(flame(self._ledger.lines(whole), whole), encoding="utf-8")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the runs in Chrome's trace event format."""
        events = [event for run in self.runs for event in _trace_events(run)]
        trace = {"traceEvents": events, "displayTimeUnit": "ms"}
        Path(path).write_text(json.dumps(trace))


def profile(path: str | os.PathLike[str] | None = None) -> Profile:
    """A context manager that profiles its block; with `path`, it writes a trace there.

    Its times are in milliseconds; see `metaop.inspect.Profile`.

    >>> with metaop.profile() as result:
    ...     x = metaop.ones(3).exp().tolist()
    >>> result.table().split()[:2]
    ['calls', 'ms']
    """
    return Profile(path)


def _operators_by_line(subgraph: Subgraph | None) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for call, signature in subgraph.operators if subgraph else ():
        line = describe_location(call.location) or "unknown"
        found.setdefault(line, []).append(signature.composite.name)
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
