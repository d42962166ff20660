"""Element types: conversion, kinds, limits, promotion without regard to dimensions."""

from __future__ import annotations

from typing import Any, NamedTuple

import metaop
from metaop.errors import ArgumentError
from metaop.tensor.core import Tensor
from metaop.tensor.promotion import default_dtype_of
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.dtype import DType, kind_rank, promote

_SIGNED = (dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64)
_UNSIGNED = (dtypes.uint8,)
_REAL = (dtypes.float32, dtypes.float64)
KINDS: dict[str, tuple[DType, ...]] = {
    "bool": (dtypes.bool_,),
    "signed integer": _SIGNED,
    "unsigned integer": _UNSIGNED,
    "integral": (*_SIGNED, *_UNSIGNED),
    "real floating": _REAL,
    "complex floating": dtypes.COMPLEX,
    "numeric": (*_SIGNED, *_UNSIGNED, *_REAL, *dtypes.COMPLEX),
}


class FloatLimits(NamedTuple):
    """What `finfo` gives."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: DType


class IntegerLimits(NamedTuple):
    """What `iinfo` gives."""

    bits: int
    max: int
    min: int
    dtype: DType


def _dtype_of(value: Tensor | DType) -> DType:
    return value.dtype if isinstance(value, Tensor) else value


def finfo(type: Tensor | DType, /) -> FloatLimits:
    """The limits of a floating-point type, or of the parts of a complex one."""
    dtype = _dtype_of(type).part
    found = metaop.finfo(dtype)
    return FloatLimits(found.bits, found.eps, found.max, found.min, found.smallest_normal, dtype)


def iinfo(type: Tensor | DType, /) -> IntegerLimits:
    """The limits of an integer type."""
    dtype = _dtype_of(type)
    found = metaop.iinfo(dtype)
    return IntegerLimits(found.bits, found.max, found.min, dtype)


def isdtype(dtype: DType, kind: DType | str | tuple[DType | str, ...]) -> bool:
    """Whether a type is of a kind ("integral", "real floating", …), or is another type."""
    if isinstance(kind, tuple):
        return any(isdtype(dtype, one) for one in kind)
    if isinstance(kind, DType):
        return dtype is kind
    if kind not in KINDS:
        raise ArgumentError(f"isdtype: kind {kind!r} is unknown", fix=f"use {', '.join(KINDS)}")
    return dtype in KINDS[kind]


def can_cast(from_: Tensor | DType, to: DType, /) -> bool:
    """Whether promotion leads from one type to the other."""
    source = _dtype_of(from_)
    return promote(source, to) is to


def result_type(*arrays_and_dtypes: Any) -> DType:
    """The type that operands are promoted to; numbers of Python decide only by their kind."""
    result: DType | None = None
    for operand in arrays_and_dtypes:
        if isinstance(operand, (Tensor, DType)):
            dtype = _dtype_of(operand)
            result = dtype if result is None else promote(result, dtype)
    numbers = [one for one in arrays_and_dtypes if isinstance(one, (bool, int, float, complex))]
    if result is None:
        raise ArgumentError("result_type: at least one array or dtype is required")
    for number in numbers:
        dtype = default_dtype_of(number)
        if dtype.is_complex and result.kind == "float":
            dtype = result.whole
        if kind_rank(dtype) > kind_rank(result):
            result = dtype
    return result


def astype(x: Tensor, dtype: DType, /, *, copy: bool = True, device: Any = None) -> Tensor:
    """The values as another type; `copy=False` gives `x` itself where nothing changes."""
    return x.to(dtype=dtype, device=device, copy=copy)  # type: ignore[attr-defined]


def promoted(*arrays: Any) -> list[Any]:
    """Arrays in their common type; numbers stay numbers."""
    dtype = result_type(*arrays)
    return [
        one.to(dtype) if isinstance(one, Tensor) and one.dtype is not dtype else one
        for one in arrays
    ]
