"""Names that tracing exchanges for a while: wrapped functions, calls and attributes of modules."""

from __future__ import annotations

import builtins
import functools
import sys
from collections.abc import Callable
from typing import Any, TypeVar

from metaop.errors import ArgumentError, UnsupportedError
from metaop.fx.interception import find
from metaop.fx.proxy import Proxy

__all__ = ["Patcher", "patch_wrapped", "wrap"]

_Wrapped = TypeVar("_Wrapped", bound="str | Callable")
_ABSENT = object()
# The functions that programs wrapped: the global names of a module, and a name among them.
_wrapped: dict[tuple[int, str], dict[str, Any]] = {}


def wrap(fn_or_name: _Wrapped) -> _Wrapped:
    """Has tracing record calls of a global function as one step; returns the argument.

    It takes a function, as a decorator does, or the name of one (`fx.wrap("len")`), and is called
    at the top level of the module whose calls are meant. Raises ArgumentError for anything else,
    and UnsupportedError within a function.
    """
    if not isinstance(fn_or_name, str) and not callable(fn_or_name):
        raise ArgumentError(
            "Unsupported type for global function! Must be either a callable or string name"
        )
    name = fn_or_name if isinstance(fn_or_name, str) else fn_or_name.__name__
    frame = sys._getframe(1)
    if frame.f_code.co_name != "<module>":
        raise UnsupportedError(
            "wrap must be called at the top level of a module", fix="move the call out"
        )
    _wrapped[id(frame.f_globals), name] = frame.f_globals
    return fn_or_name


class Patcher:
    """Exchanges entries of dictionaries and attributes of classes, and puts all back at the end."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], Any]] = []
        self._visited: set[int] = set()

    def __enter__(self) -> Patcher:
        return self

    def __exit__(self, *error: Any) -> None:
        for undo in reversed(self._undo):
            undo()

    def item(self, names: dict[str, Any], name: str, value: Any) -> None:
        """Exchanges an entry."""
        before = names.get(name, _ABSENT)
        if before is _ABSENT:
            self._undo.append(lambda: names.pop(name, None))
        else:
            self._undo.append(lambda: names.__setitem__(name, before))
        names[name] = value

    def attribute(self, owner: type, name: str, value: Any) -> None:
        """Exchanges an attribute that the class itself has, or gives it one."""
        if name in vars(owner):
            before = vars(owner)[name]
            self._undo.append(lambda: setattr(owner, name, before))
        else:
            self._undo.append(lambda: delattr(owner, name))
        setattr(owner, name, value)

    def globals_of(self, names: dict[str, Any], functions: set[int]) -> None:
        """Exchanges the functions of some identities among the global names of a module."""
        if id(names) in self._visited:
            return
        self._visited.add(id(names))
        for name, value in list(names.items()):
            if not name.startswith("_") and callable(value) and id(value) in functions:
                self.item(names, name, recorded(value))


def patch_wrapped(patcher: Patcher) -> None:
    """Exchanges all functions that programs wrapped."""
    for (_, name), names in list(_wrapped.items()):
        function = names.get(name, getattr(builtins, name, None))
        if callable(function):
            patcher.item(names, name, recorded(function))


def recorded(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, but a call with a proxy among its arguments becomes a node."""

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        proxy = find(args, kwargs)
        if not isinstance(proxy, Proxy):
            return function(*args, **kwargs)
        result = proxy.tracer.create_proxy("call_function", function, args, kwargs)
        result.node.meta["is_wrapped"] = True
        return result

    return wrapped
