"""`out=`: results written into tensors that exist, for every function that takes it in PyTorch.

One wrapper does it for all of them. It is put on the functions of the public modules only, so
methods, operators and metaop's own calls do not pay for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial, wraps
from inspect import Parameter
from types import FunctionType
from typing import Any

from metaop.errors import ArgumentTypeError, GradientError
from metaop.tensor.casting import without_casts
from metaop.tensor.core import Tensor
from metaop.tensor.operands import names_operands, otherwise, signature_of, takes_tensors
from metaop.tensor.resizing import resize_
from metaop.tensor.writing import convert_for_write
from metaop.unified_graph.recording import modes, next_sequence


def offer(namespace: dict[str, Any], taking_out: Iterable[str] = ()) -> None:
    """Makes the functions of a public module what users call.

    Those of `taking_out` take `out=`; all of them name an argument that is not a tensor.
    """
    for name in {*taking_out}.intersection(namespace):
        namespace[name] = takes_out(namespace[name], namespace["__name__"])
    for name, found in [*namespace.items()]:
        if isinstance(found, FunctionType) and not name.startswith("_"):
            if "out" not in signature_of(found).parameters and takes_tensors(found):
                namespace[name] = names_operands(found, namespace["__name__"])


def takes_out(function: Callable[..., Any], module: str) -> Callable[..., Any]:
    """The function, as `module` has it: with a keyword argument `out`, a tensor for each result."""

    @wraps(function)
    def with_out(*args: Any, out: Any = None, **kwargs: Any) -> Any:
        try:
            if out is None:
                return function(*args, **kwargs)
            return _into(out, function, *args, **kwargs)
        except Exception as error:
            return otherwise(function, error, args, kwargs, partial(_into, out))

    plain = signature_of(function)
    parameters = list(plain.parameters.values())
    if "out" in plain.parameters:
        return function
    place = len(parameters)
    if parameters and parameters[-1].kind is Parameter.VAR_KEYWORD:
        place -= 1
    parameters.insert(place, Parameter("out", Parameter.KEYWORD_ONLY, default=None))
    with_out.__module__ = module
    with_out.__signature__ = plain.replace(parameters=parameters)  # type: ignore[attr-defined]
    return with_out


def _into(out: Any, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    if out is None:
        return function(*args, **kwargs)
    with without_casts():
        return _written(function.__name__, function(*args, **kwargs), out)


def _written(name: str, result: Any, out: Any) -> Any:
    if isinstance(result, Tensor):
        if not isinstance(out, Tensor):
            raise ArgumentTypeError(
                f"{name}: argument 'out' must be Tensor, not {type(out).__name__}",
                fix="pass a tensor, for example metaop.empty(0)",
            )
        _write(name, result, out)
        return out
    for one, target in zip(result, out, strict=True):
        _write(name, one, target)
    make = getattr(type(result), "_make", tuple)
    return make(out)


def _write(name: str, result: Tensor, out: Tensor) -> None:
    if modes.gradients and (result.requires_grad or out.requires_grad):
        raise GradientError(
            f"{name}(): functions with out=... arguments don't support automatic "
            "differentiation, but one of the arguments requires grad.",
            fix="omit out=, or call it inside metaop.no_grad()",
        )
    if out.shape != result.shape:
        resize_(out, result.shape)
    call = convert_for_write(result, out.dtype, name)
    out._rebind(call, name, next_sequence())
