"""The words of `torch.jit`, for programs that have them: functions and modules stay what they are.

PyTorch needs tracing and scripting to run a model without Python; metaop records what runs anyway,
so there is nothing to do. `metaop.jit` is something else: it captures whole steps.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, Final, TypeVar

from metaop.nn.module import Module as ScriptModule

__all__ = [
    "Final",
    "ScriptFunction",
    "ScriptModule",
    "annotate",
    "export",
    "freeze",
    "ignore",
    "interface",
    "is_scripting",
    "is_tracing",
    "optimized_execution",
    "script",
    "script_if_tracing",
    "script_method",
    "trace",
    "trace_module",
    "unused",
]

_Anything = TypeVar("_Anything")

ScriptFunction = Callable


def is_scripting() -> bool:
    """False: no code is ever translated."""
    return False


def is_tracing() -> bool:
    """False: shapes and numbers in a program are always those of this run."""
    return False


def script(obj: _Anything, *_options: Any, **_more: Any) -> _Anything:
    """The function, module or class itself; options are ignored."""
    return obj


def trace(func: _Anything, *_options: Any, **_more: Any) -> _Anything:
    """The function or module itself; it is not run on the example inputs."""
    return func


def annotate(the_type: Any, the_value: _Anything) -> _Anything:
    """The value: its type needs no telling."""
    return the_value


def ignore(drop: Any = False, **_options: Any) -> Any:
    """Changes nothing; takes a function, or options as in `@ignore(drop=True)`."""
    return drop if callable(drop) else script


def _overload(func: _Anything) -> _Anything:
    """The function itself: it says only how it may be called."""
    return func


_overload_method = _overload
export = interface = script_if_tracing = script_method = unused = freeze = script
trace_module = trace


@contextlib.contextmanager
def optimized_execution(should_optimize: bool) -> Any:
    """Changes nothing."""
    yield
