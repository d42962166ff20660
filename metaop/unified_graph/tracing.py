"""Traces: what a captured function does besides recording, as its callees report it.

While `state.trace` is set, nothing is computed. Code that makes new numbers on the host in every
call (seeds, learning rates, bias corrections) calls `repeated`; code that cannot be repeated calls
`refuse`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, NamedTuple

from metaop.unified_graph.recording import Call, next_sequence

Numbers = Sequence["int | float | bool"]


def _always() -> bool:
    return True


class HostStep(NamedTuple):
    """Python that a captured call runs again: `run` returns the numbers of the leaves `calls`.

    `check` says, before anything runs, whether the step would still do the same; `changes` are the
    containers of users' state that it may write.
    """

    run: Callable[[], Numbers]
    calls: tuple[Call, ...]
    check: Callable[[], bool]
    changes: tuple[Any, ...] = ()


class Trace:
    """One traced call: `started` is older than every call it records.

    `read` is called when the function reads a value. With `for_any_size`, what is recorded for one
    step of a loop should be what is recorded for many.
    """

    def __init__(self, read: Callable[[], None], for_any_size: bool = False) -> None:
        self.for_any_size = for_any_size
        self.started = next_sequence()
        self.read = read
        self.steps: list[HostStep] = []
        self.reasons: list[str] = []
        self.inside_step = False


class State(threading.local):
    """The active trace of a thread."""

    trace: Trace | None = None


class Configuration:
    """A counter of changes to the configuration of modules and to defaults."""

    __slots__ = ("number",)

    def __init__(self) -> None:
        self.number = 0


state = State()
configuration = Configuration()


def repeated(
    run: Callable[[], Numbers], calls: Sequence[Call] = (), check: Callable[[], bool] = _always
) -> None:
    """Makes the active trace, if any, run a host step in every captured call."""
    trace = state.trace
    if trace is not None and not trace.inside_step:
        trace.steps.append(HostStep(run, tuple(calls), check))


def refuse(reason: str) -> None:
    """Makes the active trace, if any, refuse to capture the call."""
    if state.trace is not None:
        state.trace.reasons.append(reason)


def configured(description: str) -> None:
    """Records a change to an attribute of a module: captured functions are traced again."""
    configuration.number += 1
    refuse(f"it changes {description}")


def host_side(
    changes: Callable[[Any], Sequence[Any]],
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Declares a method that uses only Python state; captured calls run it again as a whole.

    `changes` returns the containers of the object that the method may write.
    """

    def decorate(method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
            trace = state.trace
            if trace is None or trace.inside_step:
                return method(self, *args, **kwargs)
            trace.inside_step = True
            try:
                result = method(self, *args, **kwargs)
            finally:
                trace.inside_step = False

            def run() -> Numbers:
                method(self, *args, **kwargs)
                return ()

            trace.steps.append(HostStep(run, (), _always, tuple(changes(self))))
            return result

        return wrapped

    return decorate
