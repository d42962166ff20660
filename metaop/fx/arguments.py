"""The arguments with which a function is traced: proxies, and values that are given for good."""

from __future__ import annotations

import inspect
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

import metaop
from metaop.errors import ArgumentError, UnsupportedError

if TYPE_CHECKING:
    from metaop.fx._symbolic_trace import Tracer

__all__ = ["PH", "arguments_for"]

_VARIABLE = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS


class PHBase:
    """Stands for an argument that stays one, among those that are given a value."""

    def __repr__(self) -> str:
        return "PH"


PH = PHBase()


def arguments_for(
    tracer: Tracer, function: FunctionType, concrete: dict[str, Any] | tuple[Any, ...] | None
) -> tuple[Any, list[Any]]:
    """The function, taking all its arguments by position, and these arguments.

    Adds a placeholder for each. Raises ArgumentError where values are given for other arguments.
    """
    inner = inspect.unwrap(function)
    code = inner.__code__
    count = code.co_argcount + code.co_kwonlyargcount
    names = list(code.co_varnames[:count])
    args: list[Any] = []
    if tracer.traces_module:
        if not names:
            raise ArgumentError("``self`` argument cannot be part of *args expansion!")
        names.pop(0)
        args.append(tracer.root)
    values = _by_name(names, concrete)
    parameters = inspect.signature(inner).parameters
    args += [_argument(tracer, inner, parameters[name], values) for name in names]
    starred = list(code.co_varnames[count:])
    for flag, stars in ((inspect.CO_VARARGS, "*"), (inspect.CO_VARKEYWORDS, "**")):
        if code.co_flags & flag:
            args.append(tracer.create_proxy("placeholder", stars + starred.pop(0), (), {}))
    if code.co_kwonlyargcount or code.co_flags & _VARIABLE:
        function = _by_position(function, len(args))
    return function, args


def _by_name(names: list[str], concrete: Any) -> dict[str, Any]:
    if concrete is None:
        return {}
    if isinstance(concrete, tuple):
        if len(concrete) != len(names):
            raise ArgumentError(
                f"Tracing expected {len(names)} arguments but got {len(concrete)} concrete "
                "arguments",
                fix="give fx.PH for those that stay arguments",
            )
        return dict(zip(names, concrete))
    return concrete


def _argument(
    tracer: Tracer, function: FunctionType, parameter: inspect.Parameter, values: dict[str, Any]
) -> Any:
    """The proxy of an argument, or its value, asserted in the graph."""
    name = parameter.name
    default = () if parameter.default is inspect.Parameter.empty else (parameter.default,)
    if name not in values:
        annotation = function.__annotations__.get(name)
        return tracer.create_proxy("placeholder", name, default, {}, type_expr=annotation)
    value = values[name]
    if isinstance(value, (tuple, list, dict)):
        raise UnsupportedError(
            f"concrete_args: the value of {name} is a container",
            fix="trace a function that makes the container of its arguments",
        )
    proxy = tracer.create_proxy("placeholder", f"{name}_1", default, {})
    if isinstance(value, PHBase):
        return proxy
    message = f"{name} has been specialized to have value {value} but got another value"
    if value is None:
        tracer.create_proxy("call_function", _assert_is_none, (proxy, message), {})
    elif isinstance(value, (str, int, float, bool, complex)):
        metaop._assert(proxy == value, message)
    else:
        raise UnsupportedError(
            f"concrete_args: {name} of type {type(value).__name__} cannot be asserted",
            fix="give a number, a text or None, or bind it with functools.partial in a function",
        )
    return value


def _assert_is_none(value: Any, message: str) -> None:
    """What a graph asserts of an argument that was traced as None."""
    assert value is None, message


def _by_position(function: FunctionType, count: int) -> FunctionType:
    """The function with `*args` and the like as plain arguments: a proxy cannot be unpacked."""
    code = function.__code__
    plain: CodeType = code.replace(
        co_flags=code.co_flags & ~_VARIABLE,
        co_argcount=count,
        co_posonlyargcount=0,
        co_kwonlyargcount=0,
    )
    return FunctionType(plain, function.__globals__, function.__name__, None, function.__closure__)
