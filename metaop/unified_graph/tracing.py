"""Traces: what a captured function does besides recording, told by those who do it.

While `state.trace` is set nothing is computed. Numbers that the host makes anew in every call
(seeds, learning rates, bias corrections) are announced with `repeated`; what cannot be repeated is
announced with `refuse`.
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
    """Python that a captured call runs again: `run` gives the numbers that `calls` stand for.

    `check` tells, before anything is run, whether the step would still do the same; `changes` are
    the containers of users' state that it may write.
    """

    run: Callable[[], Numbers]
    calls: tuple[Call, ...]
    check: Callable[[], bool]
    changes: tuple[Any, ...] = ()


class Trace:
    """One traced call: `started` is older than every call it records.

    `read` is called when the function wants to know a value.
    """

    def __init__(self, read: Callable[[], None]) -> None:
        self.started = next_sequence()
        self.read = read
        self.steps: list[HostStep] = []
        self.reasons: list[str] = []
        self.inside_step = False


class State(threading.local):
    """The trace that is going on in a thread."""

    trace: Trace | None = None


class Configuration:
    """A number that grows when a module, or a default, is configured anew."""

    __slots__ = ("number",)

    def __init__(self) -> None:
        self.number = 0


state = State()
configuration = Configuration()


def repeated(
    run: Callable[[], Numbers], calls: Sequence[Call] = (), check: Callable[[], bool] = _always
) -> None:
    """Tells the trace, if there is one, to run a host step in every captured call."""
    trace = state.trace
    if trace is not None and not trace.inside_step:
        trace.steps.append(HostStep(run, tuple(calls), check))


def refuse(reason: str) -> None:
    """Tells the trace, if there is one, that this call cannot stand for later ones."""
    if state.trace is not None:
        state.trace.reasons.append(reason)


def configured(description: str) -> None:
    """Notes that an attribute of a module was changed; captured functions are traced again."""
    configuration.number += 1
    refuse(f"it changes {description}")


def host_side(
    changes: Callable[[Any], Sequence[Any]],
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A method that works on Python state only; captured calls run it again, as a whole.

    `changes` gives, of the object, the containers that the method may write.
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
