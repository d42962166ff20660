"""Elementwise functions on tensors and numbers, with PyTorch's promotion."""

from __future__ import annotations

import math
from typing import Union

from metaop.errors import ArgumentTypeError
from metaop.operators.pointwise import POINTWISE
from metaop.tensor.core import Tensor, wrap
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.dtype import DType, kind_rank, promote
from metaop.unified_graph.recording import Call, record, scalar_leaf
from metaop.unified_graph.tensor_type import Device

Number = Union[int, float, bool]
Operand = Union[Tensor, Number]

# Numbers that are compiled in, because kernels get simpler with them. All others are arguments,
# so that a number that changes from step to step compiles nothing.
_COMPILED_IN = {(kind, value) for kind in (int, float) for value in (kind(-1), kind(1), kind(2))}
_COMPILED_IN |= {(int, 0), (float, 0.5), (bool, True), (bool, False)}


def default_dtype_of(number: Number) -> DType:
    """The type that a Python number has beside tensors of a lower kind."""
    if isinstance(number, bool):
        return dtypes.bool_
    if isinstance(number, int):
        return dtypes.int64
    return defaults.dtype


class Defaults:
    """The default floating-point type (`set_default_dtype`)."""

    __slots__ = ("dtype",)

    def __init__(self) -> None:
        self.dtype = dtypes.float32


defaults = Defaults()


def result_type(*operands: Operand) -> DType:
    """PyTorch's result type: tensors with dimensions first, then 0-d tensors, then numbers.

    A lower category decides only when its kind (bool, int, float) is higher.
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
    for dtype in categories:
        if dtype is not None and (result is None or kind_rank(dtype) > kind_rank(result)):
            result = dtype
    assert result is not None
    return result


def pointwise(name: str, *operands: Operand) -> Tensor:
    """The scalar function `name` of the table applied to tensors and numbers."""
    first = operands[0]
    if len(operands) == 1:
        if not isinstance(first, Tensor):
            raise _not_a_tensor(name, first)
        return wrap(record(POINTWISE[name], (first.call,)))
    second = operands[1]
    if isinstance(first, Tensor) and isinstance(second, Tensor) and len(operands) == 2:
        left, right = first.call, second.call
        if left.type.dtype is right.type.dtype:
            return wrap(record(POINTWISE[name], (left, right)))
    return _mixed(name, operands)


def _mixed(name: str, operands: tuple[Operand, ...]) -> Tensor:
    dtype = result_type(*(_checked(name, operand) for operand in operands))
    device = next((x.device for x in operands if isinstance(x, Tensor)), None)
    number: Number | None = None
    calls: list[Call | None] = []
    for operand in operands:
        if isinstance(operand, Tensor):
            calls.append(operand.call)
        elif number is None and (type(operand), operand) in _COMPILED_IN:
            number = operand
            calls.append(None)
        else:
            assert device is not None
            calls.append(number_call(operand, dtype, device))
    return wrap(record(POINTWISE[name], calls, (dtype, number)))


def number_call(number: Number, dtype: DType, device: Device) -> Call:
    """A Python number as a program argument of type `dtype`."""
    if dtype.kind == "int" and isinstance(number, float) and not math.isfinite(number):
        number = 0
    return scalar_leaf(number, dtype, device)


def _checked(name: str, operand: Operand) -> Operand:
    if isinstance(operand, (Tensor, int, float)):
        return operand
    raise _not_a_tensor(name, operand)


def _not_a_tensor(name: str, operand: object) -> ArgumentTypeError:
    return ArgumentTypeError(
        f"{name}(): argument must be Tensor or Number, not {type(operand).__name__}",
        fix="make it a tensor with metaop.tensor(...)",
    )


