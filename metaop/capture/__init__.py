"""`metaop.jit`: a function that is recorded once and then runs without recording."""

from __future__ import annotations

import functools
import os
import warnings
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from metaop.budget import memory_budget
from metaop.capture.guards import PLAIN
from metaop.capture.replay import Replay
from metaop.capture.trace import TraceRecord, traced
from metaop.codegen.budget import budget
from metaop.codegen.llvm.run_ahead import report
from metaop.errors import ArgumentError, CaptureError
from metaop.settings import bytes_of
from metaop.tensor.core import Tensor
from metaop.tensor.sharded import data_parallel
from metaop.tensor.shared_storage import settle
from metaop.unified_graph.recording import Call, modes
from metaop.unified_graph.tracing import configuration, state

_Function = TypeVar("_Function", bound=Callable[..., Any])
# After this many consecutive calls that cannot be captured, no further one is tried.
_ATTEMPTS = 4
# How many states of Python a signature keeps replays for.
_KEPT_REPLAYS = 8


class _Entry:
    """What is known about the calls of one signature; the most recently used replay comes first."""

    def __init__(self) -> None:
        self.replays: list[Replay] = []
        self.history: list[TraceRecord] = []
        self.refused = 0


class Captured:
    """A function under `metaop.jit`; `traces` counts how often it ran as Python."""

    def __init__(
        self,
        function: Callable[..., Any],
        fallback: bool,
        asynchronous: bool = False,
        keeps_graphs: bool = False,
        memory_budget: int | str | None = None,
        spill: str | os.PathLike[str] | None = None,
    ) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.fallback = fallback
        self.traces = 0
        self._asynchronous = asynchronous
        self._keeps_graphs = keeps_graphs
        if spill is not None and memory_budget is None:
            raise ArgumentError("jit: without a budget nothing is spilled", fix="set memory_budget")
        self._budget = None if memory_budget is None else bytes_of(memory_budget)
        self._folder = spill
        self._entries: dict[Any, _Entry] = {}

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._budget is None:
            return self._call(args, kwargs)
        with memory_budget(self._budget, self._folder):
            return self._call(args, kwargs)

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        # Comparing traces reads the values of ranks, which may not happen in the same order on all.
        if state.trace is not None or data_parallel.is_on():
            return self.function(*args, **kwargs)
        if self._asynchronous:
            report()
        entry, tensors = self._entry(args, kwargs)
        found = self._replay(entry, tensors)
        if found is not None:
            replay, calls = found
            return replay.run(tensors, calls)
        return self._trace(entry, tensors, args, kwargs)

    def replay_for(self, *args: Any, **kwargs: Any) -> tuple[Replay, list[Tensor]] | None:
        """What a call would run without Python, if that is known, and its tensor arguments."""
        if state.trace is not None or data_parallel.is_on():
            return None
        entry, tensors = self._entry(args, kwargs)
        found = self._replay(entry, tensors)
        return None if found is None else (found[0], tensors)

    def _entry(self, args: Any, kwargs: Any) -> tuple[_Entry, list[Tensor]]:
        """What is known about the signature of a call, and its tensor arguments."""
        tensors: list[Tensor] = []
        key = (
            modes.gradients,
            modes.casts,
            budget.key,
            _key(args, tensors),
            _key(kwargs, tensors),
        )
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = _Entry()
        return entry, tensors

    @staticmethod
    def _replay(entry: _Entry, tensors: list[Tensor]) -> tuple[Replay, list[Call]] | None:
        """The replay for the current state of Python, and the values that it starts from."""
        for replay in entry.replays:
            calls = replay.calls(tensors)
            if calls is not None:
                if replay is not entry.replays[0]:
                    entry.replays.remove(replay)
                    entry.replays.insert(0, replay)
                return replay, calls
        return None

    def _trace(
        self, entry: _Entry, tensors: list[Tensor], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        self.traces += 1
        call = functools.partial(self.function, *args, **kwargs)
        if entry.refused >= _ATTEMPTS:
            return call()
        usable = [one for one in entry.replays if one.configuration == configuration.number]
        entry.replays = usable[:_KEPT_REPLAYS]
        roots = [self.function, *_objects((args, kwargs))]
        result, outcome = traced(
            call, tensors, roots, entry.history, self._read, self._keeps_graphs
        )
        settle()
        if isinstance(outcome, Replay):
            outcome.is_asynchronous = self._asynchronous
            entry.replays.insert(0, outcome)
            entry.refused = 0
            return result
        entry.refused += 1
        if entry.refused == _ATTEMPTS:
            entry.history.clear()
            name = getattr(self.function, "__name__", "the function")
            warnings.warn(f"metaop.jit runs {name} as it is: {outcome}", stacklevel=3)
        return result

    def _read(self) -> None:
        """Called when a value is read: later calls could take another path."""
        trace = state.trace
        if trace is None:
            return
        if not self.fallback:
            state.trace = None
            raise CaptureError(
                "a captured function reads a value that it computes or receives, so what it does "
                "may depend on data",
                fix="return the tensor and read it outside, use metaop.where, or allow "
                "metaop.jit(fallback=True)",
            )
        trace.reasons.append("it reads values")
        state.trace = None


def jit(
    function: _Function | None = None,
    *,
    fallback: bool = False,
    asynchronous: bool = False,
    memory_budget: int | str | None = None,
    spill: str | os.PathLike[str] | None = None,
) -> Any:
    """Captures a function, usually a whole training step, and runs it without recording.

    The first calls of a signature (shapes, dtypes and requires_grad of tensor arguments, values of
    all others) run as Python and are recorded. Once two calls did the same, later calls bind their
    arguments and run the program, as long as the Python state that the function reads (globals,
    closures, attributes, containers) stays the same. If the function reads a value, it raises
    CaptureError or, with `fallback`, runs as plain Python.

    With `asynchronous`, a call returns at once if its state is as the last call left it, and
    another thread runs the programs in order. Reading any value waits for them. The next
    asynchronous call or the next read raises the error of a failed program; the results of that
    call and of later ones raise CaptureError when they are used.

    With `memory_budget` and `spill`, calls run as if inside `metaop.memory_budget(...)`.

    >>> layer = nn.Linear(2, 1)
    >>> optimizer = metaop.optim.SGD(layer.parameters(), lr=0.1)
    >>> @metaop.jit
    ... def step(x):
    ...     optimizer.zero_grad()
    ...     loss = layer(x).square().mean()
    ...     loss.backward()
    ...     optimizer.step()
    ...     return loss
    >>> losses = [step(metaop.ones(4, 2)).item() for _ in range(5)]
    >>> losses[-1] < losses[0]
    True
    """
    if function is None:
        return functools.partial(
            jit,
            fallback=fallback,
            asynchronous=asynchronous,
            memory_budget=memory_budget,
            spill=spill,
        )
    return Captured(function, fallback, asynchronous, memory_budget=memory_budget, spill=spill)


class _Identity:
    """Any other object; it equals only itself, and the key keeps it alive."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


def _objects(value: Any) -> Iterator[Any]:
    """The arguments whose identity is part of the signature."""
    if type(value) in (tuple, list, dict):
        for part in value.values() if type(value) is dict else value:
            yield from _objects(part)
    elif type(value) not in PLAIN and not isinstance(value, Tensor):
        yield value


def _key(value: Any, tensors: list[Tensor]) -> Any:
    """What calls must agree on; collects the tensors in order."""
    if isinstance(value, Tensor):
        for position, known in enumerate(tensors):
            if known is value:
                return position
        tensors.append(value)
        call = value.call
        return (call.type, call.requires_grad)
    kind = type(value)
    if kind in PLAIN:
        return (kind, value if value or kind is not float else str(value))  # 0.0 equals -0.0
    if kind in (tuple, list):
        return (kind, *[_key(part, tensors) for part in value])
    if kind is dict:
        return (kind, *[(name, _key(part, tensors)) for name, part in value.items()])
    return _Identity(value)
