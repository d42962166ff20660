"""What happens to calls that fail: numbers are read from tensors, wrong arguments are named.

No argument is checked before the call. A function that fails is looked at afterwards. If a tensor
or an array without dimensions stands where a number belongs, the function is called again with its
number, as PyTorch reads it; `int` and the other types of Python's numbers become dtypes. Numbers
before the last tensor, the way of PyTorch before 1.5, go to the keywords that they have now, and
keywords of PyTorch's other overloads to those of this one. If a tensor is sparse, the function of
sparse tensors of that name is called instead. Otherwise, if a parameter that is declared as
`Tensor` got something else, the error names it. So calls with tensors pay one Python
frame, which Python 3.11 calls cheaply.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache, update_wrapper
from inspect import BoundArguments, Parameter, Signature, signature
from numbers import Number
from types import CodeType, FunctionType, NoneType
from typing import Any

import numpy as np

from metaop.errors import ArgumentTypeError, MetaopError, UnsupportedError
from metaop.unified_graph.dtype import DType, from_python_type

# A function's is read up to four times while metaop is imported, and takes 30 us to make.
signature_of = cache(signature)

# The types of parameters that are tensors, and those of numbers that may stand beside them.
_TENSORS = frozenset(("Tensor", "SparseTensor", "PackedSequence", "Operand"))
_NUMBERS = frozenset(("Operand", "int", "float", "bool", "complex", "Number", "Real"))
# The keywords whose numbers once stood before the last tensor, in that order.
_ONCE_BY_POSITION = ("beta", "alpha", "value")
# The keywords of one of PyTorch's overloads, and what the parameter is called here.
_OTHER_NAMES = {
    "dtype": "shape",
    "indices": "indices_or_sections",
    "sections": "indices_or_sections",
    "size": "shape",
    "split_size": "split_size_or_sections",
    "tensor_indices_or_sections": "indices_or_sections",
}
# Functions of sparse tensors under the names of those of dense ones (`sparse/forms.py`).
SPARSE_FORMS: dict[str, Callable[..., Any]] = {}
# Lower limits that are 0 where only the upper one is given.
_LOWER_LIMITS = {"end": "start", "high": "low"}
_BY_NAME = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
_BY_POSITION = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


def names_operands(function: Callable[..., Any], module: str) -> Callable[..., Any]:
    """The function, as `module` has it: with an error that names an argument that is not a tensor.

    The function itself is returned if no parameter is a tensor or a dtype.
    """
    if not takes_tensors(function) and not takes_dtypes(function):
        return function
    parameters = signature_of(function).parameters.values()
    if any(p.kind not in _BY_POSITION or p.name in _OTHER_NAMES.values() for p in parameters):
        return update_wrapper(_of_any_arguments(function), function)
    names = tuple([parameter.name for parameter in parameters])
    code = _template(len(names)).replace(co_varnames=(*names, "error"))
    known = {"__name__": module, "function": function}
    known |= {"otherwise": otherwise}
    defaults = tuple([p.default for p in parameters if p.default is not Parameter.empty])
    named = update_wrapper(FunctionType(code, known, function.__name__, defaults), function)
    named.__module__ = module
    return named


def _of_any_arguments(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            return otherwise(function, error, args, kwargs)

    return call


@cache
def _template(count: int) -> CodeType:
    """The code of a function of `count` parameters, which takes half the time of `*args`."""
    names = ", ".join(f"argument_{k}" for k in range(count))
    text = f"""
def call({names}):
    try:
        return function({names})
    except Exception as error:
        return otherwise(function, error, ({names},), {{}})
"""
    made: dict[str, Any] = {}
    exec(compile(text, __file__, "exec"), made)
    code = made["call"].__code__
    assert isinstance(code, CodeType)
    return code


def _call(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return function(*args, **kwargs)


def otherwise(
    function: Callable[..., Any],
    error: Exception,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    run: Callable[..., Any] = _call,
    name: str = "",
) -> Any:
    """What a call that raised `error` gives if its arguments can be read in another way.

    `run` calls a function with arguments, `name` is what users call it. Raises `error`, or an error
    that says more, if they cannot.
    """
    if _is_sparse_call(function, args, kwargs):
        if form := SPARSE_FORMS.get(function.__name__):
            try:
                return run(form, *args, **kwargs)
            except MetaopError as refusal:
                raise refusal from None  # that the other function takes no sparse tensors is clear
        if isinstance(error, (AttributeError, TypeError, UnsupportedError)):
            raise no_sparse_form(name or function.__name__) from error
    if numbers := with_numbers(function, error, args, kwargs):
        try:
            return run(function, *numbers.args, **numbers.kwargs)
        except Exception as other:
            error, args, kwargs = other, numbers.args, numbers.kwargs
    name_wrong_operand(function, error, args, kwargs, name)
    raise error


def _is_sparse_call(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> bool:
    """Whether a function that is declared for dense tensors got a sparse one."""
    values = [*args, *kwargs.values()]
    values += [one for value in values if type(value) in (list, tuple) for one in value]
    if not any(getattr(value, "is_sparse", False) is True for value in values):
        return False
    return all("SparseTensor" not in _words(p) for p in signature(function).parameters.values())


def no_sparse_form(name: str) -> UnsupportedError:
    """The error for a function that sparse tensors do not have, and a fix."""
    return UnsupportedError(
        f"{name} is not supported for sparse tensors",
        fix="call .to_dense() first, or apply it to .coalesce().values()",
    )


def with_numbers(
    function: Callable[..., Any], error: Exception, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> BoundArguments | None:
    """The arguments of a call with numbers for tensors and arrays without dimensions.

    Types of Python's numbers become dtypes. Numbers that stand where they stood before PyTorch 1.5
    become keywords, and the keywords of other overloads those of this one. None if there is nothing
    to change, or if `error`, which the call raised, says that something else is wrong.
    """
    if not isinstance(error, (AttributeError, TypeError)):
        return None
    declared = signature(function)
    if renamed := from_other_overload(declared, args, kwargs):
        return renamed
    try:
        given = declared.bind(*args, **kwargs)
    except TypeError:
        return _from_old_order(function.__name__, declared, args, kwargs)
    found = False
    for name, value in given.arguments.items():
        parameter = declared.parameters[name]
        if parameter.kind is Parameter.VAR_KEYWORD:
            if dtype := from_python_type(value.get("dtype")):
                given.arguments[name], found = {**value, "dtype": dtype}, True
            continue
        if "DType" in _words(parameter) and (dtype := from_python_type(value)):
            given.arguments[name], found = dtype, True
            continue
        if not _may_be_number(parameter, value):
            continue
        if type(value) in (list, tuple):
            number = type(value)([_number(one) for one in value])
            found = found or any(one is not other for one, other in zip(value, number))
        else:
            number = _number(value)
            found = found or number is not value
        given.arguments[name] = number
    return given if found else None


def _from_old_order(
    name: str, declared: Signature, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> BoundArguments | None:
    """The arguments of `add(x, 2, y)` as those of `add(x, y, alpha=2)`; None for any other call."""
    keywords = [word for word in _ONCE_BY_POSITION if word in declared.parameters]
    numbers = [one for one in args if isinstance(one, Number)]
    tensors = [one for one in args if not isinstance(one, Number)]
    if not numbers or len(numbers) > len(keywords) or args[-1] is numbers[-1]:
        return None
    named = dict(zip(keywords, numbers))
    try:
        given = declared.bind(*tensors, **kwargs, **named)
    except TypeError:
        return None
    words = ", ".join(f"{word}={number}" for word, number in named.items())
    warnings.warn(f"{name}: pass {words} after the tensors", UserWarning, stacklevel=5)
    return given


def from_other_overload(
    declared: Signature, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> BoundArguments | None:
    """The arguments of a call with the keywords of another overload, such as `view(size=(2, 3))`.

    None if the call has no such keywords. Arguments are not looked at.
    """
    parameters = declared.parameters
    named: dict[str, Any] = {}
    for word, value in kwargs.items():
        other = _OTHER_NAMES.get(word, word)
        named[other if word not in parameters and other in parameters else word] = value
    for upper, lower in _LOWER_LIMITS.items():
        if upper in named and lower in parameters and parameters[upper].default is None:
            named.setdefault(lower, 0)
    in_a_row = [p.name for p in parameters.values() if p.kind is Parameter.VAR_POSITIONAL]
    sizes = {name: (named.pop(name),) for name in in_a_row if name in named}
    if named.keys() == kwargs.keys():
        return None
    try:
        given = declared.bind(*args, **named)
    except TypeError:
        return None
    if sizes.keys() & given.arguments.keys():
        return None
    given.arguments.update(sizes)
    return given


def _may_be_number(parameter: Parameter, value: object) -> bool:
    """Whether a number, or several of them, may stand in the place of a value."""
    words = _words(parameter)
    if words & _TENSORS or any("Tensor" in word for word in words):
        return bool(words & _NUMBERS) and isinstance(value, np.ndarray)
    return parameter.kind in _BY_NAME


def _number(value: Any) -> Any:
    """The number of what has no dimensions; anything else as it is."""
    return value.item() if getattr(value, "ndim", None) == 0 else value


def name_wrong_operand(
    function: Callable[..., Any],
    error: Exception,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    name: str = "",
) -> None:
    """Raises ArgumentTypeError if a call failed because of what is not a tensor, or no type.

    `error` is what the call raised; an ArgumentTypeError says more, so it stays. `name` is what
    users call the function.
    """
    if isinstance(error, ArgumentTypeError):
        return
    declared = signature(function)
    try:
        given = declared.bind(*args, **kwargs).arguments
    except TypeError:  # the call itself is wrong, and Python's error says how
        return
    name = name or function.__name__
    for position, parameter in enumerate(declared.parameters.values(), 1):
        if parameter.name not in given:
            continue
        value, wanted = given[parameter.name], _words(parameter)
        if "DType" in wanted and not isinstance(value, (DType, NoneType)):
            raise ArgumentTypeError(
                f"{name}(): argument '{parameter.name}' must be metaop.dtype, not "
                f"{type(value).__name__}",
                fix="pass one of metaop's types, for example metaop.float32",
            ) from error
        if _is_tensor(parameter) and not _may_be(value, wanted):
            words = "Tensor or Number" if wanted & _NUMBERS else "Tensor"
            raise not_a_tensor(name, value, parameter.name, position, words) from error


def not_a_tensor(
    name: str, value: object, argument: str = "input", position: int = 1, wanted: str = "Tensor"
) -> ArgumentTypeError:
    """The error for an argument of the function `name` that is not a tensor, and a fix."""
    fix = "make it a tensor with metaop.tensor(...)"
    if isinstance(value, np.ndarray):
        fix = "make it a tensor with metaop.from_numpy(...)"
    elif type(value).__module__ == "torch":
        fix = "make it a tensor with metaop.from_dlpack(...)"
    return ArgumentTypeError(
        f"{name}(): argument '{argument}' (position {position}) must be {wanted}, not "
        f"{type(value).__name__}",
        fix=fix,
    )


def takes_tensors(function: Callable[..., Any]) -> int:
    """How many parameters of a function are tensors."""
    return sum(map(_is_tensor, signature_of(function).parameters.values()))


def takes_dtypes(function: Callable[..., Any]) -> bool:
    """Whether a parameter of a function is a dtype, or may be one among its `**options`."""
    parameters = signature_of(function).parameters.values()
    return any(p.kind is Parameter.VAR_KEYWORD or "DType" in _words(p) for p in parameters)


def _words(parameter: Parameter) -> frozenset[str]:
    """The types that a parameter may have, as they are written."""
    written = parameter.annotation
    return frozenset(str(getattr(written, "__name__", written)).split(" | "))


def _is_tensor(parameter: Parameter) -> bool:
    """Whether a parameter is one tensor; numbers or None may stand in its place."""
    words = _words(parameter)
    return bool(words & _TENSORS) and words <= _TENSORS | _NUMBERS | {"None"}


def _may_be(value: object, words: frozenset[str]) -> bool:
    """Whether a value may be what `words` say: so may traced values, and users' classes."""
    if isinstance(value, (int, float, complex, np.generic, NoneType)):
        return bool(words & ({"None"} if value is None else _NUMBERS))
    others = (list, tuple, dict, set, range, str, bytes, np.ndarray)
    return not isinstance(value, others) and type(value).__module__ != "torch"
