"""Runs that a device has not finished: whether they met a value that an operator refuses.

A program on a GPU returns when its kernels are queued. What they refuse is known when the device is
done with them, and raised the next time that the program waits for the device or starts a new run.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from metaop.unified_graph.faults import Fault

Explain = Callable[[Fault], Exception]


class Check(Protocol):
    """The end of a run on a device."""

    def is_done(self) -> bool:
        """Whether the device is done with the run."""

    def fault(self) -> Fault | None:
        """What a finished run has refused."""


class _Run:
    """A run that may have failed, and what makes an error for users of its fault."""

    __slots__ = ("check", "explain")

    def __init__(self, check: Check) -> None:
        self.check = check
        self.explain: Explain = _plain


def _plain(fault: Fault) -> Exception:
    return fault.kind.error(str(fault), fix=fault.kind.fix)


class Unchecked:
    """The runs that nobody has waited for, in the order in which they started."""

    def __init__(self) -> None:
        self._runs: deque[_Run] = deque()
        self._unexplained: list[_Run] = []

    def add(self, check: Check) -> None:
        """Notes a run that has been queued."""
        run = _Run(check)
        self._runs.append(run)
        self._unexplained.append(run)

    def explain(self, describe: Callable[[], Explain]) -> None:
        """Says how the faults of the runs added since the last call become errors."""
        if self._unexplained:
            explain = describe()
            for run in self._unexplained:
                run.explain = explain
            self._unexplained.clear()

    def raise_first(self) -> None:
        """Raises the error of the first finished run that failed; the others are forgotten."""
        while self._runs and self._runs[0].check.is_done():
            run = self._runs.popleft()
            fault = run.check.fault()
            if fault is not None:
                # What ran later has computed with what this run left.
                self._runs.clear()
                raise run.explain(fault) from None


unchecked = Unchecked()
