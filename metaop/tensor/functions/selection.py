"""Choosing and mixing values: clamp, where, lerp, addcmul, addcdiv."""

from __future__ import annotations

from typing import Any

from metaop.errors import ArgumentError, DTypeError, UnsupportedError
from metaop.operators import pointwise as operators
from metaop.operators.pointwise import POINTWISE
from metaop.tensor.arguments import plain_number
from metaop.tensor.core import Tensor, wrap
from metaop.tensor.promotion import (
    Number,
    Operand,
    device_among,
    fitting_call,
    mixed,
    number_call,
    operand_argument,
    result_type,
)
from metaop.tensor.surface import in_every_form, method, public, synonym
from metaop.unified_graph.dtype import DType
from metaop.unified_graph.recording import Call, record
from metaop.unified_graph.tensor_type import Device


@in_every_form(in_place_function=True)
def clamp(input: Tensor, min: Operand | None = None, max: Operand | None = None) -> Tensor:
    """Clamps to [min, max]; either bound may be a number, a tensor that broadcasts, or None.

    Where min > max, the result is max. The gradient is 1 at the bounds. Raises ArgumentError
    without bounds.

    >>> metaop.clamp(metaop.tensor([-1.0, 0.5, 3.0]), min=0.0, max=1.0)
    tensor([0.0000, 0.5000, 1.0000])
    """
    if min is None and max is None:
        raise ArgumentError(
            "clamp: At least one of 'min' or 'max' must not be None", fix="pass a bound"
        )
    min, max = plain_number(min), plain_number(max)
    operands = [x for x in (input, min, max) if x is not None]
    dtype = result_type(*operands)
    result = input
    if min is not None:
        result = mixed(POINTWISE["clamp_min"], (result, min), dtype)
    if max is not None:
        result = mixed(POINTWISE["clamp_max"], (result, max), dtype)
    return result


@in_every_form(in_place_function=True)
def clamp_min(input: Tensor, min: Operand) -> Tensor:
    """Clamps from below to a number or a tensor; the operands broadcast to one shape.

    >>> metaop.clamp_min(metaop.tensor([-1.0, 0.5]), 0.0)
    tensor([0.0000, 0.5000])
    """
    return clamp(input, min, None)


@in_every_form(in_place_function=True)
def clamp_max(input: Tensor, max: Operand) -> Tensor:
    """Clamps from above to a number or a tensor; the operands broadcast to one shape.

    >>> metaop.clamp_max(metaop.tensor([-1.0, 0.5]), 0.0)
    tensor([-1.,  0.])
    """
    return clamp(input, None, max)


@public(out=True)
def where(condition: Tensor, input: Any = None, other: Any = None) -> Any:
    """`input` where `condition` is true, else `other`; without these, the indices of `condition`.

    The operands broadcast to one shape.

    >>> x = metaop.tensor([-1.0, 2.0])
    >>> metaop.where(x > 0, x, 0.0), metaop.where(x > 0)
    (tensor([0., 2.]), (tensor([1]),))
    """
    if input is None and other is None:
        return condition.nonzero(as_tuple=True)
    if condition.dtype.name == "uint8":  # masks were once bytes
        condition = condition.bool()
    elif condition.dtype.kind != "bool":
        raise DTypeError(
            f"where expected condition to be a boolean tensor, but got a tensor with dtype "
            f"{condition.dtype.name}",
            fix="compare first: where(x != 0, ...)",
        )
    branches = (operand_argument(input, "where", 2), operand_argument(other, "where", 3))
    dtype = result_type(*branches)
    device = device_among((condition, *branches))
    calls = [operand_call(branch, dtype, device) for branch in branches]
    return wrap(record(operators.select, (condition.call, *calls)))


def operand_call(operand: Operand, dtype: DType, device: Device) -> Call:
    """A tensor's value, or a number as an argument, converted to `dtype`."""
    if isinstance(operand, Tensor):
        return operand.to(dtype).call
    return fitting_call(operand, dtype, device)


@method("where")
def _where_method(input: Tensor, condition: Tensor, other: Operand) -> Tensor:
    return where(condition, input, other)


@in_every_form()
def lerp(input: Tensor, end: Tensor, weight: Operand) -> Tensor:
    """Interpolates: `input + weight * (end - input)`; the operands broadcast to one shape.

    >>> metaop.lerp(metaop.tensor([0.0, 10.0]), metaop.tensor([4.0, 20.0]), 0.25)
    tensor([ 1.0000, 12.5000])
    """
    if input.dtype is not end.dtype:
        raise DTypeError(
            f"expected dtype {input.dtype.name} for `end` but got dtype {end.dtype.name}",
            fix="convert one of them with .to()",
        )
    factor = operand_call(weight, input.dtype, input.device)
    return wrap(record(operators.lerp, (input.call, end.call, factor)))


@in_every_form()
def addcmul(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Number = 1) -> Tensor:
    """`input + value * tensor1 * tensor2`; the operands broadcast to one shape.

    >>> metaop.addcmul(metaop.ones(1), metaop.tensor([2.0]), metaop.tensor([3.0]), value=10)
    tensor([61.])
    """
    return _combined(operators.addcmul, input, tensor1, tensor2, value)


@in_every_form()
def addcdiv(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Number = 1) -> Tensor:
    """`input + value * tensor1 / tensor2`; the operands broadcast to one shape.

    >>> metaop.addcdiv(metaop.ones(2), metaop.tensor([1.0, 2.0]), metaop.tensor([4.0, 4.0]))
    tensor([1.2500, 1.5000])
    """
    if not result_type(tensor1, tensor2).is_differentiable:
        raise UnsupportedError(
            "Integer division with addcdiv is no longer supported",
            fix="convert the tensors with .float()",
        )
    return _combined(operators.addcdiv, input, tensor1, tensor2, value)


def _combined(step: Any, input: Tensor, tensor1: Tensor, tensor2: Tensor, value: Number) -> Tensor:
    dtype = result_type(input, tensor1, tensor2)
    scale = None if value == 1 else number_call(value, dtype, input.device)
    return wrap(record(step, (input.call, tensor1.call, tensor2.call, scale), (dtype,)))


clip = synonym("clip", clamp)
