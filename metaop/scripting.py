"""The functions of `torch.jit`, which leave functions and modules unchanged.

PyTorch scripts and traces models to compile them; metaop compiles everything that it runs.
`metaop.jit` is something else: it captures whole steps.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, Final, TypeVar

from metaop.nn.module import Module as ScriptModule
from metaop.unified_graph.tracing import state

__all__ = [
    "Final",
    "ScriptFunction",
    "ScriptModule",
    "TracerWarning",
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


class TracerWarning(Warning):
    """What tracing warns of in PyTorch; nothing here does."""


def is_scripting() -> bool:
    """Returns False: metaop never scripts code."""
    return False


def is_tracing() -> bool:
    """Returns False: shapes and numbers are always those of the present run."""
    return False


def _are_transforms_active() -> bool:
    """Whether `vmap` or `jit` records the present run, so that no value can be read."""
    return state.trace is not None


def _is_fake(x: object) -> bool:
    """Returns False: there are no tensors without values."""
    return False


def _get_tracing_state() -> None:
    """None: nothing is being traced."""


def script(obj: _Anything, *_options: Any, **_more: Any) -> _Anything:
    """Returns the function, module or class unchanged; the options have no effect."""
    return obj


def trace(func: _Anything, *_options: Any, **_more: Any) -> _Anything:
    """Returns the function or module unchanged, without running it on the example inputs."""
    return func


def annotate(the_type: Any, the_value: _Anything) -> _Anything:
    """Returns the value: no type annotation is needed."""
    return the_value


def ignore(drop: Any = False, **_options: Any) -> Any:
    """A decorator without effect; options as in `@ignore(drop=True)` are accepted."""
    return drop if callable(drop) else script


def _overload(func: _Anything) -> _Anything:
    """Returns the function unchanged: it only declares a signature."""
    return func


_overload_method = _overload
export = interface = script_if_tracing = script_method = unused = freeze = script
trace_module = trace


@contextlib.contextmanager
def optimized_execution(should_optimize: bool) -> Any:
    """Has no effect."""
    yield
