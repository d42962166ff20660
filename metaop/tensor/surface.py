"""What users find of a function of tensors: declared once, where it is defined.

    @public(method=True, in_place=True, out=True)
    def square(input: Tensor) -> Tensor:

makes `metaop.square(x)`, `x.square()`, `x.square_()` and `metaop.square(x, out=y)`. Nothing else
lists the name: `exports.py` gives `metaop` its functions, and the stubs beside it have their types.
The decorated function itself stays plain, so metaop's own calls pay for none of this.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import cleandoc, unwrap
from typing import Any, NamedTuple

from metaop.tensor.casting import IN_FLOAT32, IN_LOW_PRECISION, Function, Policy, casts_on_cpu
from metaop.tensor.core import Tensor
from metaop.tensor.operands import names_operands, otherwise, signature_of
from metaop.tensor.writing import in_place as write_in_place


class Declaration(NamedTuple):
    """What a function of `metaop` has beside its name."""

    function: Callable[..., Any]
    method: bool | str = False
    in_place: bool = False
    in_place_function: bool = False
    out: bool = False


# The functions of `metaop` by name.
DECLARED: dict[str, Declaration] = {}
# The in-place methods that `metaop` has as functions too.
IN_PLACE_FUNCTIONS: list[str] = []


def public(
    name: str = "",
    *,
    method: bool | str = False,
    in_place: bool = False,
    in_place_function: bool = False,
    out: bool = False,
    export: bool = True,
    precision: Policy | None = None,
    low_precision: str = "",
    float32_on_cuda: str = "",
) -> Callable[[Function], Function]:
    """Declares a function of tensors.

    `name`: what users call it, where the module calls it otherwise. `export`: `metaop` has it.
    `method`: tensors have it too, with the first parameter as the tensor; a string is another name.
    `in_place`: tensors have `name_`, which writes the result into the tensor; `in_place_function`:
    so has `metaop`. `out`: the function of `metaop` takes `out=`.

    Under `autocast`, `precision` chooses the type in which the CPU runs the function, and nothing
    that it calls is cast again. `low_precision` and `float32_on_cuda` name the composite that it
    records and that every device runs in the low precision, or a GPU in float32.

    Raises ValueError for a name that is declared already.
    """

    def declare(function: Function) -> Function:
        if precision is not None:
            function = casts_on_cpu(precision)(function)
        function.__name__ = name or function.__name__
        if low_precision:
            for composites in IN_LOW_PRECISION.values():
                composites.add(low_precision)
        if float32_on_cuda:
            IN_FLOAT32["cuda"].add(float32_on_cuda)
        found = Declaration(function, method, in_place, in_place_function, out)
        _give(function.__name__, found, export)
        return function

    return declare


def in_every_form(name: str = "", **options: Any) -> Callable[[Function], Function]:
    """Declares a function that has every form: method, in place, and with `out=`."""
    return public(name, method=True, in_place=True, out=True, **options)


def method(name: str = "", **options: Any) -> Callable[[Function], Function]:
    """Declares a function that only tensors have, as the method `name`."""
    return public(method=name or True, export=False, **options)


def attribute(
    *names: str, written: Callable[[Tensor, Any], None] | None = None
) -> Callable[[Function], Function]:
    """Declares a function of a tensor as a property, under its own name or under `names`.

    `written` is what an assignment to it does; without it, there is none.
    """

    def declare(function: Function) -> Function:
        for name in names or (function.__name__,):
            _bind(name, property(function, written))
        return function

    return declare


def synonym(name: str, function: Function, **changes: Any) -> Function:
    """Declares another name of a function; `changes` are what it has otherwise."""
    found = DECLARED.get(function.__name__)
    if found is None or found.function is not function:
        found = Declaration(function)
    _give(name, found._replace(**changes), True)
    return function


def _give(name: str, declared: Declaration, export: bool) -> None:
    if export:
        if name in DECLARED:
            raise ValueError(f"two functions are declared as metaop.{name}")
        DECLARED[name] = declared
    bound = declared.method if isinstance(declared.method, str) else name
    if declared.method:
        _bind(bound, _method_form(declared.function))
    if declared.in_place:
        _bind(bound + "_", _in_place_form(declared.function))
    if declared.in_place_function:
        IN_PLACE_FUNCTIONS.append(name + "_")


def _bind(name: str, value: Any) -> None:
    if name in vars(Tensor):
        raise ValueError(f"Tensor.{name} is declared twice")
    setattr(Tensor, name, value)


def _method_form(function: Callable[..., Any]) -> Callable[..., Any]:
    """The method that a function becomes: only what follows the tensor may be something else."""
    if len(signature_of(function).parameters) > 1:
        function = names_operands(function, function.__module__)
    return _taking_axis(function)


def _taking_axis(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, with `axis` and `keepdims` for `dim` and `keepdim`, as in NumPy and PyTorch."""
    code = unwrap(function).__code__
    if "dim" not in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]:
        return function

    @wraps(function)
    def method(*args: Any, **kwargs: Any) -> Any:
        if kwargs:
            for word, name in (("axis", "dim"), ("keepdims", "keepdim")):
                if word in kwargs:
                    kwargs[name] = kwargs.pop(word)
        return function(*args, **kwargs)

    return method


def _in_place_form(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    @wraps(function)
    def method(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        try:
            return write_in_place(self, function, *args, **kwargs)
        except Exception as error:

            def run(
                function: Callable[..., Tensor], _: Tensor, *args: Any, **kwargs: Any
            ) -> Tensor:
                return write_in_place(self, function, *args, **kwargs)

            name = function.__name__ + "_"
            return otherwise(function, error, (self, *args), kwargs, run, name)

    method.__name__ = function.__name__ + "_"
    method.__doc__ = written_words(function)
    return method


def written_words(function: Callable[..., Any]) -> str:
    """The docstring of the in-place form of a function: where the result goes, and the function's.

    >>> metaop.exp_.__doc__.split("\\n")[0]
    '`exp` written into its input, which is returned and keeps its shape.'
    """
    first = f"`{function.__name__}` written into its input, which is returned and keeps its shape."
    return f"{first}\n\n{cleandoc(function.__doc__ or '')}"
