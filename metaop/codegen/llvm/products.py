"""The products that a step of the micro-kernel accumulates: a table, by the elements per step.

Packed elements have 32 bits if a step takes several neighbours along the depth. Processors multiply
bytes only as unsigned by signed. If both factors are signed, or both unsigned, the top bits of the
left one are flipped, which offsets its values by 128. One more sum per column accumulates what that
adds, and is subtracted at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from metaop.codegen.llvm.builder import Builder
from metaop.codegen.llvm.instructions.value import Value
from metaop.codegen.nest.ir import PAIR, QUAD
from metaop.unified_graph.dtype import DType

# The top bits of four bytes, as an int32.
FLIP = 0x80808080 - (1 << 32)


class Product(NamedTuple):
    """How a step multiplies: the types of a packed element and of its parts, and the accumulation.

    The accumulation adds the products of a left and a right element to a total. Empty types are
    those of the sums. `is_flipped` says that the top bits of the left factor must be flipped.
    """

    element: str
    number: str
    added: Callable[[Builder, Value, Value, Value], Value]
    is_flipped: bool = False


def product_of(step: int, dtype: DType, signs: str) -> Product:
    """The row of the table for a step, the type of the sums and the signs of the factors."""
    return _PRODUCTS[step, dtype.kind, signs]


def _fused(code: Builder, left: Value, right: Value, total: Value) -> Value:
    return code.fma(left, right, total)


def _whole(code: Builder, left: Value, right: Value, total: Value) -> Value:
    return code.add(code.mul(left, right), total)


def _bfloat16_pairs(code: Builder, left: Value, right: Value, total: Value) -> Value:
    pairs = f"<{2 * total.lanes} x bfloat>"
    one, other = (code.emit(f"bitcast {x.typed} to {pairs}") for x in (left, right))
    return _called(code, "avx512bf16.dpbf16ps", total, pairs, (one, other))


def _int16_pairs(code: Builder, left: Value, right: Value, total: Value) -> Value:
    """Products in plain IR, for which LLVM finds the instruction (`pmaddwd`, `vpdpwssd`)."""
    count = PAIR * total.lanes
    halves = (code.bitcast(x, "i16") for x in (left, right))
    one, other = (code.to_type(x, "i32") for x in halves)
    products = code.mul(one, other)
    parts = []
    for start in range(PAIR):
        picked = ", ".join(f"i32 {k}" for k in range(start, count, PAIR))
        operands = f"{products.typed}, {products.full_type} poison"
        text = f"shufflevector {operands}, <{total.lanes} x i32> <{picked}>"
        parts.append(code.like(total, code.emit(text)))
    return code.add(total, code.add(*parts))


def _bytes(code: Builder, left: Value, right: Value, total: Value) -> Value:
    """Products of unsigned left and signed right bytes."""
    return _called(code, "avx512.vpdpbusd", total, total.full_type, (left.text, right.text))


def _transposed_bytes(code: Builder, left: Value, right: Value, total: Value) -> Value:
    """Products of signed left and unsigned right bytes."""
    return _bytes(code, right, left, total)


def _called(
    code: Builder, instruction: str, total: Value, type: str, factors: tuple[str, str]
) -> Value:
    """The sum of a total and the products of factors of a type."""
    result, symbol = total.full_type, f"llvm.x86.{instruction}.{32 * total.lanes}"
    code.declare(f"declare {result} @{symbol}({result}, {type}, {type})")
    operands = ", ".join(f"{type} {factor}" for factor in factors)
    return code.like(total, code.emit(f"call {result} @{symbol}({total.typed}, {operands})"))


_PRODUCTS = {
    (1, "float", ""): Product("", "", _fused),
    (1, "int", ""): Product("", "", _whole),
    (PAIR, "float", ""): Product("i32", "i16", _bfloat16_pairs),
    (PAIR, "int", ""): Product("i32", "i16", _int16_pairs),
    (QUAD, "int", "us"): Product("i32", "i8", _bytes),
    (QUAD, "int", "su"): Product("i32", "i8", _transposed_bytes),
    (QUAD, "int", "ss"): Product("i32", "i8", _bytes, True),
    (QUAD, "int", "uu"): Product("i32", "i8", _transposed_bytes, True),
}
