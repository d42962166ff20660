"""The functions of `torch.jit`, which leave functions and modules unchanged.

PyTorch scripts and traces models to compile them; metaop compiles everything that it runs.
`metaop.jit` is something else: it captures whole steps.
"""

from __future__ import annotations

import builtins
import contextlib
from collections.abc import Callable
from types import UnionType
from typing import Any, Final, TypeVar, Union, get_args, get_origin

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
    "isinstance",
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


def isinstance(obj: Any, target_type: Any) -> bool:
    """Whether a value is of a type that `typing` writes, such as `Dict[str, List[Tensor]]`.

    A tuple of types stands for any of them. Empty lists and dictionaries are of every such type.
    """
    if builtins.isinstance(target_type, tuple):
        return any(isinstance(obj, one) for one in target_type)
    kind, inner = get_origin(target_type), get_args(target_type)
    if kind in (Union, UnionType):
        return any(isinstance(obj, one) for one in inner)
    if kind is None:
        return builtins.isinstance(obj, type(None) if target_type is None else target_type)
    if not builtins.isinstance(obj, kind):
        return False
    if kind is dict:
        return all(isinstance(k, inner[0]) and isinstance(obj[k], inner[1]) for k in obj)
    if kind is tuple:
        return len(obj) == len(inner) and all(map(isinstance, obj, inner))
    return all(isinstance(one, inner[0]) for one in obj)


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
