"""Truth values and bits: comparisons, logical and bitwise operations, tests of floats."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from metaop.elementwise import reference
from metaop.elementwise.scalar_function import ScalarFunction, to_bool
from metaop.unified_graph import dtype as dtypes


def _comparison(name: str, numpy: Callable[..., Any], symbol: str) -> ScalarFunction:
    return ScalarFunction(
        name,
        2,
        numpy=numpy,
        llvm=lambda b, x, y: b.compare(name, x, y),
        cuda="({0} " + symbol + " {1})",
        result=to_bool,
    )


def _bits(name: str, numpy: Callable[..., Any], method: str, symbol: str) -> ScalarFunction:
    return ScalarFunction(
        name,
        2,
        numpy=numpy,
        llvm=lambda b, x, y: getattr(b, method)(x, y),
        cuda="({0} " + symbol + " {1})",
        accepts=("bool", "int"),
    )


def _logical(name: str, numpy: Callable[..., Any], method: str, symbol: str) -> ScalarFunction:
    return ScalarFunction(
        name,
        2,
        numpy=numpy,
        llvm=lambda b, x, y: getattr(b, method)(b.truth(x), b.truth(y)),
        cuda="(({0} != 0) " + symbol + " ({1} != 0))",
        result=to_bool,
    )


def _sort_key(b: Any, x: Any) -> Any:
    """The bits of a float; those of negative ones, whose order is reversed, are turned."""
    bits = b.bits(x)
    greatest = b.constant_like(bits, (1 << (bits.bits - 1)) - 1)
    key = b.select(bits < 0, bits ^ greatest, bits)
    key = b.select(x.equals(0), b.constant_like(bits, 0), key)
    return b.select(b.is_nan(x), greatest, key)


ROWS = (
    _comparison("eq", np.equal, "=="),
    _comparison("ne", np.not_equal, "!="),
    _comparison("lt", np.less, "<"),
    _comparison("le", np.less_equal, "<="),
    _comparison("gt", np.greater, ">"),
    _comparison("ge", np.greater_equal, ">="),
    _logical("logical_and", np.logical_and, "bit_and", "&&"),
    _logical("logical_or", np.logical_or, "bit_or", "||"),
    _logical("logical_xor", np.logical_xor, "bit_xor", "!="),
    ScalarFunction(
        "logical_not",
        1,
        numpy=np.logical_not,
        llvm=lambda b, x: b.bit_not(b.truth(x)),
        cuda="({0} == 0)",
        result=to_bool,
    ),
    _bits("bitwise_and", np.bitwise_and, "bit_and", "&"),
    _bits("bitwise_or", np.bitwise_or, "bit_or", "|"),
    _bits("bitwise_xor", np.bitwise_xor, "bit_xor", "^"),
    ScalarFunction(
        "bitwise_not",
        1,
        numpy=np.invert,
        llvm=lambda b, x: b.bit_not(x),
        cuda="metaop_bitwise_not({0})",
        accepts=("bool", "int"),
    ),
    # Shifts by a negative amount or by the width and more move every bit out, as in PyTorch.
    ScalarFunction(
        "left_shift",
        2,
        numpy=np.left_shift,
        llvm=lambda b, x, y: b.shift_left(x, y),
        cuda="metaop_left_shift({0}, {1})",
        accepts=("int",),
    ),
    ScalarFunction(
        "right_shift",
        2,
        numpy=np.right_shift,
        llvm=lambda b, x, y: b.shift_right(x, y),
        cuda="metaop_right_shift({0}, {1})",
        accepts=("int",),
    ),
    # Two numbers side by side in 32 bits, as processors multiply pairs: the first in the low half.
    ScalarFunction(
        "bfloat16_pair",
        2,
        numpy=reference.bfloat16_pair,
        llvm=lambda b, x, y: b.pair_of_bfloat16(x, y),
        cuda="((int)((unsigned)__float_as_int({0}) >> 16)"
        " | (int)((unsigned)__float_as_int({1}) & 0xffff0000u))",
        accepts=("float",),
        operand=lambda dtype: dtypes.float32,
        result=lambda dtype: dtypes.int32,
    ),
    # Integers compare as the floats do, 0 as -0, and NaN is the greatest.
    ScalarFunction(
        "sort_key",
        1,
        numpy=reference.sort_key,
        llvm=_sort_key,
        cuda="metaop_sort_key({0})",
        accepts=("float",),
        operand=lambda dtype: dtype.compute,
        result=lambda dtype: dtypes.int64 if dtype is dtypes.float64 else dtypes.int32,
    ),
    ScalarFunction(
        "isnan",
        1,
        numpy=lambda x: x != x,
        llvm=lambda b, x: b.compare("ne", x, x),
        cuda="({0} != {0})",
        result=to_bool,
    ),
    # For an infinity alone, x - x differs from itself although x does not.
    ScalarFunction(
        "isinf",
        1,
        numpy=reference.isinf,
        llvm=lambda b, x: b.is_infinite(x),
        cuda="({0} == {0} && {0} - {0} != {0} - {0})",
        result=to_bool,
    ),
    ScalarFunction(
        "isfinite",
        1,
        numpy=np.isfinite,
        llvm=lambda b, x: b.is_finite(x),
        cuda="({0} - {0} == {0} - {0})",
        result=to_bool,
    ),
    ScalarFunction(
        "signbit",
        1,
        numpy=reference.signbit,
        llvm=lambda b, x: b.sign_bit(x),
        cuda="metaop_signbit({0})",
        result=to_bool,
    ),
)
