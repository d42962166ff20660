"""Classes of programs below `Tensor`: results keep the class, `__torch_function__` sees all calls.

Nothing looks for such classes before a program defines one. From then on, what programs call is
replaced by functions that look at their arguments first: the methods of `Tensor`, the functions of
the public modules, and the layers of `metaop.nn`.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import wraps
from types import FunctionType
from typing import Any

from metaop.tensor import attributes
from metaop.tensor.core import Tensor

# The modules whose functions see such classes.
_MODULES = ("metaop", "metaop.nn.functional", "metaop.linalg", "metaop.fft", "metaop.special")
# What no class overrides: it makes tensors of data, or of a class that is named.
_PLAIN = ("as_subclass", "as_tensor", "asarray", "is_tensor", "tensor")
_OPERATORS = (
    *("abs", "add", "and", "eq", "floordiv", "ge", "getitem", "gt", "iadd", "iand", "ifloordiv"),
    *("ilshift", "imod", "imul", "invert", "ior", "ipow", "irshift", "isub", "itruediv", "ixor"),
    *("le", "lshift", "lt", "matmul", "mod", "mul", "ne", "neg", "or", "pos", "pow", "radd"),
    *("rand", "rfloordiv", "rlshift", "rmatmul", "rmod", "rmul", "ror", "rpow", "rrshift"),
    *("rshift", "rsub", "rtruediv", "rxor", "setitem", "sub", "truediv", "xor"),
)
_VIEWS = ("H", "T", "data", "imag", "mH", "mT", "real")

# The classes whose `__torch_function__` is called; they stay, as what they replaced does.
_classes: set[type] = set()


class _State(threading.local):
    """Whether this thread calls no `__torch_function__`."""

    is_off = False


_state = _State()


class DisableTorchFunctionSubclass:
    """A scope in which tensors of any class are plain ones: no `__torch_function__` is called."""

    def __enter__(self) -> None:
        self._outer, _state.is_off = _state.is_off, True

    def __exit__(self, *exception: object) -> None:
        _state.is_off = self._outer


def _disabled_torch_function_impl(
    cls: type, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
) -> Any:
    """The `__torch_function__` of classes whose operators give plain tensors, as of parameters."""
    # PyTorch itself asks, where one of its functions gets a tensor of metaop.
    if not isinstance(func, FunctionType) or func.__module__.partition(".")[0] == "torch":
        return NotImplemented
    with DisableTorchFunctionSubclass():
        return func(*args, **(kwargs or {}))


def _torch_function(
    cls: type, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
) -> Any:
    """Calls `func` on plain tensors; its results are of the class."""
    if not all(issubclass(cls, one) for one in types):
        return NotImplemented
    return _of_class(_disabled_torch_function_impl(cls, func, types, args, kwargs), cls)


def _of_class(result: Any, cls: type) -> Any:
    if cls is Tensor:
        return result
    if isinstance(result, Tensor) and not isinstance(result, cls):
        return result.as_subclass(cls)  # type: ignore[attr-defined]
    if isinstance(result, (tuple, list)):
        values = [_of_class(one, cls) for one in result]
        make = getattr(type(result), "_make", type(result))
        return make(values)
    return result


def overriding(values: Iterable[Any]) -> list[Any]:
    """The values whose class overrides, one of each class, classes before those above them."""
    found: list[Any] = []
    for value in _flat(values):
        kind = type(value)
        if kind in _classes and not any(type(one) is kind for one in found):
            places = [k for k, one in enumerate(found) if issubclass(kind, type(one))]
            found.insert(places[0] if places else len(found), value)
    return found


def _flat(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        if type(value) in (list, tuple):
            yield from value
        else:
            yield value


def dispatched(
    function: Callable[..., Any], found: Sequence[Any], args: Sequence[Any], kwargs: dict[str, Any]
) -> Any:
    """What the first class says that knows the call; TypeError if none does."""
    types = tuple(type(one) for one in found)
    for one in found:
        result = one.__torch_function__(function, types, tuple(args), kwargs)
        if result is not NotImplemented:
            return result
    raise TypeError(
        f"no implementation found for {getattr(function, '__name__', function)!r} on types that "
        f"implement __torch_function__: {list(types)}"
    )


def _looking(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which first looks whether an argument is of a class that overrides it."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not _state.is_off:
            found = overriding((*args, *kwargs.values()))
            if found:
                return dispatched(call, found, args, kwargs)
        return function(*args, **kwargs)

    return call


def _defined(cls: type) -> None:
    """Notes a class of a program; the first one replaces what programs call."""
    own = getattr(cls, "__torch_function__", None)
    is_disabled = getattr(own, "__func__", own) is _disabled_torch_function_impl
    if is_disabled or cls.__module__.partition(".")[0] == "metaop":
        return
    _classes.add(cls)
    if len(_classes) == 1:
        _replace()


def _replace() -> None:
    for name, value in [*vars(Tensor).items()]:
        is_operator = name.startswith("__") and name.strip("_") in _OPERATORS
        if is_operator or _is_public(name, value):
            setattr(Tensor, name, _looking(value))
            getattr(Tensor, name).__name__ = name
        elif name in _VIEWS:
            setattr(Tensor, name, property(_looking(value.fget), value.fset))
    for name in _MODULES:
        namespace = vars(importlib.import_module(name))
        for word, value in [*namespace.items()]:
            if _is_public(word, value):
                namespace[word] = _looking(value)
    _replace_layers()


def _is_public(name: str, value: object) -> bool:
    """Whether a method or function is one that classes override."""
    return isinstance(value, FunctionType) and not name.startswith("_") and name not in _PLAIN


def _replace_layers() -> None:
    """Layers call functions that programs do not see, so they look at their inputs themselves."""
    base = importlib.import_module("metaop.nn.module").Module
    kinds = [base]
    for kind in kinds:
        kinds += kind.__subclasses__()
        rooms = kind.__module__.split(".")
        is_layer = rooms[:2] == ["metaop", "nn"] and rooms[2] not in ("containers", "parallel")
        if is_layer and kind is not base and "forward" in vars(kind):
            kind.forward = _looking(kind.forward)


Tensor.__torch_function__ = classmethod(_torch_function)  # type: ignore[attr-defined]
Tensor._make_subclass = staticmethod(  # type: ignore[attr-defined]
    lambda cls, data, require_grad=False: (
        data.detach().as_subclass(cls).requires_grad_(require_grad)
    )
)
attributes.when_defined.append(_defined)
