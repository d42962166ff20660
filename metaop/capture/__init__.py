"""`metaop.jit`: a function that is recorded once and then runs without recording."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeVar

from metaop.capture.replay import Replay
from metaop.capture.trace import traced
from metaop.errors import CaptureError
from metaop.tensor.core import Tensor
from metaop.unified_graph.recording import modes
from metaop.unified_graph.tracing import state

_Function = TypeVar("_Function", bound=Callable[..., Any])
_PLAIN = (int, float, bool, str, bytes, type(None))
# A call that cannot be captured so often in a row is not tried again.
_ATTEMPTS = 4


class _Entry:
    """What is known of the calls of one signature."""

    def __init__(self) -> None:
        self.replay: Replay | None = None
        self.constants: dict[int, bytes] = {}
        self.refused = 0


class Captured:
    """A function under `metaop.jit`; `traces` counts how often it ran as Python."""

    def __init__(self, function: Callable[..., Any], fallback: bool) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.fallback = fallback
        self.traces = 0
        self._entries: dict[Any, _Entry] = {}
        self._cells, self._globals = _surroundings(function)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if state.trace is not None:
            return self.function(*args, **kwargs)
        tensors: list[Tensor] = []
        key = (
            modes.gradients,
            modes.casts,
            _key(args, tensors),
            _key(kwargs, tensors),
            *self._values(),
        )
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = _Entry()
        replay = entry.replay
        if replay is not None:
            if replay.configuration == state.configuration:
                calls = replay.calls(tensors)
                if calls is not None:
                    return replay.run(tensors, calls)
            entry.replay = None
        return self._trace(entry, tensors, args, kwargs)

    def _trace(
        self, entry: _Entry, tensors: list[Tensor], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        self.traces += 1
        call = functools.partial(self.function, *args, **kwargs)
        if entry.refused >= _ATTEMPTS:
            return call()
        result, outcome = traced(call, tensors, entry.constants, self._read)
        if isinstance(outcome, Replay):
            entry.replay, entry.refused = outcome, 0
            return result
        entry.refused += 1
        if entry.refused == _ATTEMPTS:
            name = getattr(self.function, "__name__", "the function")
            warnings.warn(f"metaop.jit runs {name} as it is: {outcome}", stacklevel=3)
        return result

    def _read(self) -> None:
        """A value was asked for: later calls could take another way."""
        trace = state.trace
        if trace is None:
            return
        if not self.fallback:
            state.trace = None
            raise CaptureError(
                "a captured function reads a value that it computes or is given, so what it does "
                "may depend on data",
                fix="return the tensor and read it outside, use metaop.where, or allow "
                "metaop.jit(fallback=True)",
            )
        trace.reasons.append("it reads values")
        state.trace = None

    def _values(self) -> tuple[Any, ...]:
        """Plain values of the closure and the globals that the function names."""
        values = []
        for cell in self._cells:
            value = cell.cell_contents
            if type(value) in _PLAIN:
                values.append(value)
        names = self._globals
        if names:
            space = self.function.__globals__  # type: ignore[attr-defined]
            values += [_key(space.get(name), []) for name in names]
        return tuple(values)


def jit(function: _Function | None = None, *, fallback: bool = False) -> Any:
    """Captures a function, usually a whole training step, and runs it without recording.

    The first call of a signature (shapes, dtypes and requires_grad of tensor arguments, values of
    all others) runs as Python and is recorded; later ones bind their arguments and run the
    program. Raises CaptureError where the function reads a value, or with `fallback` runs it as
    it is.

    Example:
        @metaop.jit
        def step(x, y):
            optimizer.zero_grad()
            loss = F.cross_entropy(net(x), y)
            loss.backward()
            optimizer.step()
            return loss
    """
    if function is None:
        return functools.partial(jit, fallback=fallback)
    return Captured(function, fallback)


def _surroundings(function: Any) -> tuple[tuple[Any, ...], tuple[str, ...]]:
    if not isinstance(function, FunctionType):
        return (), ()
    space = function.__globals__
    names = tuple(
        name for name in function.__code__.co_names if name in space and type(space[name]) in _PLAIN
    )
    return function.__closure__ or (), names


class _Identity:
    """Any other object, equal to itself alone and kept alive by the key."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


def _key(value: Any, tensors: list[Tensor]) -> Any:
    """What calls must agree in; tensors are collected in order."""
    if isinstance(value, Tensor):
        for position, known in enumerate(tensors):
            if known is value:
                return position
        tensors.append(value)
        call = value.call
        return (call.type, call.requires_grad)
    kind = type(value)
    if kind in _PLAIN:
        return (kind, value)
    if kind in (tuple, list):
        return (kind, *[_key(part, tensors) for part in value])
    if kind is dict:
        return (kind, *[(name, _key(part, tensors)) for name, part in value.items()])
    return _Identity(value)
