"""Calling scalar functions on tensors and Python numbers, with PyTorch's type promotion."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from metaop.elementwise.functions import FUNCTIONS
from metaop.elementwise.scalar_function import to_float
from metaop.errors import ArgumentTypeError, DivisionError, RangeError
from metaop.operators.complex_numbers import joined
from metaop.operators.pointwise import POINTWISE
from metaop.tensor.core import Tensor, from_array, wrap
from metaop.tensor.operands import not_a_tensor
from metaop.tensor.surface import public
from metaop.tensor.words import elementwise_words
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.composite import Composite
from metaop.unified_graph.dtype import DType, kind_rank, promote
from metaop.unified_graph.faults import DIVISION_BY_ZERO
from metaop.unified_graph.recording import Call, record, scalar_leaf
from metaop.unified_graph.tensor_type import Device

Real = int | float | bool
Number = Real | complex
Operand = Tensor | int | float | bool | complex

# Numbers that are compiled in, because kernels get simpler with them. All others are arguments,
# so that a number that changes from step to step compiles nothing.
_COMPILED_IN = {(kind, value) for kind in (int, float) for value in (kind(-1), kind(1), kind(2))}
_COMPILED_IN |= {(int, 0), (float, 0.5), (bool, True), (bool, False)}


class Defaults:
    """The default floating-point type (`set_default_dtype`)."""

    __slots__ = ("dtype",)

    def __init__(self) -> None:
        self.dtype = dtypes.float32


defaults = Defaults()


def default_dtype_of(number: Number) -> DType:
    """The type that a Python number has beside tensors of a lower kind."""
    if isinstance(number, bool):
        return dtypes.bool_
    if isinstance(number, int):
        return dtypes.int64
    if isinstance(number, complex):
        return defaults.dtype.whole
    return defaults.dtype


@public()
def result_type(*operands: Operand) -> DType:
    """PyTorch's result type: tensors with dimensions first, then 0-d tensors, then numbers.

    A lower category decides only when its kind (bool, int, float, complex) is higher.

    >>> metaop.result_type(metaop.tensor([1], dtype=metaop.int32), 2)
    metaop.int32
    >>> metaop.result_type(metaop.tensor([1], dtype=metaop.int32), 2.5)
    metaop.float32
    """
    categories: list[DType | None] = [None, None, None]
    for operand in operands:
        if isinstance(operand, Tensor):
            category, dtype = (0 if operand.ndim else 1), operand.dtype
        else:
            category, dtype = 2, default_dtype_of(operand)
        current = categories[category]
        categories[category] = dtype if current is None else promote(current, dtype)
    result: DType | None = None
    for candidate in categories:
        if candidate is None:
            continue
        if result is not None and result.kind == "float" and candidate.is_complex:
            result = result.whole
        elif result is None or kind_rank(candidate) > kind_rank(result):
            result = candidate
    assert result is not None
    return result


_DIVISIONS = frozenset(
    name
    for name, row in FUNCTIONS.items()
    if row.refusal is not None and row.refusal.kind is DIVISION_BY_ZERO
)


def pointwise(name: str, *operands: Any) -> Tensor:
    """The scalar function `name` of the table applied to tensors and numbers."""
    if len(operands) == 2:
        return binary(POINTWISE[name], operands[0], operands[1])
    if len(operands) == 1:
        return wrap(record(POINTWISE[name], (operands[0].call,)))
    return mixed(POINTWISE[name], operands)


def binary(step: Composite, left: Any, right: Any) -> Tensor:
    """A scalar function of two operands, of which at least one is a tensor."""
    if step.name in _DIVISIONS and type(right) in (int, bool) and not right:
        if not left.dtype.is_differentiable:
            raise DivisionError(
                f"{step.name}: {DIVISION_BY_ZERO.message}",
                fix="divide by another number, or convert the tensor with .float()",
            )
    if isinstance(left, Tensor):
        if isinstance(right, Tensor):
            first, second = left.call, right.call
            if first.type.dtype is second.type.dtype:
                return wrap(record(step, (first, second)))
        elif type(right) is float or type(right) is int:
            # The common case of a number that does not change the tensor's type.
            call = left.call
            dtype = call.type.dtype
            if dtype.is_differentiable or (dtype.kind == "int" and type(right) is int):
                if (type(right), right) in _COMPILED_IN:
                    return wrap(record(step, (call, None), (None, right)))
                leaf = scalar_leaf if dtype.is_differentiable else number_call
                return wrap(record(step, (call, leaf(right, dtype, call.type.device))))
    return mixed(step, (left, right))


def mixed(step: Composite, operands: tuple[Any, ...], dtype: DType | None = None) -> Tensor:
    """A scalar function of any operands, converted to `dtype` (their result type) first."""
    operands = tuple(
        [operand_argument(x, step.name, position) for position, x in enumerate(operands, 1)]
    )
    if dtype is None:
        dtype = result_type(*operands)
    device = device_among(operands)
    number: Number | None = None
    calls: list[Call | None] = []
    for operand in operands:
        if isinstance(operand, Tensor):
            calls.append(operand.call)
        elif number is None and (type(operand), operand) in _COMPILED_IN:
            number = operand
            calls.append(None)
        else:
            calls.append(number_call(operand, dtype, device))
    return wrap(record(step, calls, (dtype, number)))


def device_among(operands: tuple[Any, ...]) -> Device:
    """The device of the first tensor with dimensions, else of the first tensor."""
    tensors = [operand for operand in operands if isinstance(operand, Tensor)]
    if not tensors:
        raise ArgumentTypeError(
            f"no tensor among the operands {operands!r}", fix="make one with metaop.tensor(...)"
        )
    return next((tensor for tensor in tensors if tensor.ndim), tensors[0]).device


def number_call(number: Number, dtype: DType, device: Device) -> Call:
    """A Python number as a program argument of type `dtype`; a complex one is two arguments."""
    if isinstance(number, complex):
        parts = [scalar_leaf(x, dtype, device) for x in (number.real, number.imag)]
        return record(joined, parts)
    if dtype.kind == "int":
        if isinstance(number, float) and not math.isfinite(number):
            number = 0
        elif not -(2**63) <= number < 2**64:
            # Narrower types wrap, but no memory holds so large an integer.
            check_fits(number, dtypes.int64)
    return scalar_leaf(number, dtype, device)


def fitting_call(number: Number, dtype: DType, device: Device) -> Call:
    """`number_call` for a number that fills elements: an error where the type cannot hold it."""
    check_fits(number, dtype)
    return number_call(number, dtype, device)


def check_fits(number: Number, dtype: DType) -> None:
    """Raises RangeError for a number out of the range of a type; negative ones wrap as in C."""
    if isinstance(number, complex):
        if not dtype.is_complex:
            raise RangeError(
                f"value cannot be converted to type {dtype.name} without overflow: {number}",
                fix="use a complex type, or take .real",
            )
        return
    if dtype.is_differentiable:
        dtype = dtype.part
        fits = not math.isfinite(number) or abs(number) <= _largest(dtype)
    elif dtype.kind == "int":
        least, most = _bounds(dtype)
        wraps = least == 0 and isinstance(number, int)
        fits = (-most if wraps else least) <= number <= most
    else:
        return
    if not fits:
        raise RangeError(
            f"value cannot be converted to type {dtype.name} without overflow: {number}",
            fix="use a type that holds the number",
        )


@cache
def _bounds(dtype: DType) -> tuple[int, int]:
    """The smallest and the largest number of an integer type."""
    found = np.iinfo(dtype.numpy)
    return int(found.min), int(found.max)


@cache
def _largest(dtype: DType) -> float:
    """The largest number of a floating-point type: all bits of the exponent but the last."""
    if dtype.name == "bfloat16":
        return 255 * 2.0**120
    return float(np.finfo(dtype.numpy).max)


def operand_argument(operand: Any, name: str, position: int) -> Operand:
    """A tensor or a Python number; NumPy scalars and arrays are converted.

    `position`: which argument of the function `name` it is, from 1.
    """
    if isinstance(operand, (Tensor, bool, int, float, complex)):
        return operand
    if isinstance(operand, np.generic):
        return operand.item()
    if isinstance(operand, np.ndarray):
        dtype = dtypes.from_numpy_dtype(operand.dtype)
        if dtype is not None:
            return from_array(operand, dtype)
    argument = "other" if position == 2 else "input"
    raise not_a_tensor(name, operand, argument, position, "Tensor or Number")


_BECOME_FLOATS = "Integers become numbers of the default floating-point type."


def unary_function(name: str, row: str = "") -> Callable[[Tensor], Tensor]:
    """The user's function for a row of the table with one operand, to be called `name`."""
    step = POINTWISE[row or name]
    makes_floats = FUNCTIONS[row or name].operand is to_float

    def function(input: Tensor) -> Tensor:
        call = input.call
        if makes_floats and not call.type.dtype.is_differentiable:
            return wrap(record(step, (call,), (defaults.dtype,)))
        return wrap(record(step, (call,)))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = elementwise_words(name, *((_BECOME_FLOATS,) if makes_floats else ()))
    return function


def binary_function(name: str, row: str = "") -> Callable[[Operand, Operand], Tensor]:
    """The user's function for a row of the table with two operands, to be called `name`."""
    step = POINTWISE[row or name]

    def function(input: Operand, other: Operand) -> Tensor:
        return binary(step, input, other)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = elementwise_words(name)
    return function
