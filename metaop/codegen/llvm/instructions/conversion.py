"""Conversions between element types, including 16-bit floats."""

from __future__ import annotations

from typing import TYPE_CHECKING

from metaop.codegen.llvm.instructions.arithmetic import Arithmetic
from metaop.codegen.llvm.instructions.value import FLOAT_TYPES, Value, bits_of, vector_type

if TYPE_CHECKING:
    from metaop.unified_graph.dtype import DType

_COMPUTE_TYPES = {
    "bool": "i1",
    "uint8": "i8",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "float16": "float",
    "bfloat16": "float",
    "float32": "float",
    "float64": "double",
}


def compute_type(dtype: DType) -> str:
    """The LLVM type in which values of an element type are computed."""
    return _COMPUTE_TYPES[dtype.name]


class Conversion(Arithmetic):
    """The converting part of `Builder`."""

    def convert(self, x: Value, dtype: DType) -> Value:
        """The value in the compute type of `dtype`, as C converts.

        To bool: whether it differs from zero. Floats outside the range of an integer type give
        an arbitrary value.
        """
        return self.to_type(x, compute_type(dtype), dtype.is_signed)

    def to_type(self, x: Value, type: str, signed: bool = True) -> Value:
        """Like `convert`, to an LLVM type."""
        if type == "i1":
            return self.truth(x)
        if x.type == type:
            return Value(self, x.text, type, x.lanes, signed)
        if x.type == "i1":
            one, zero = self.constant(1, type, x.lanes), self.constant(0, type, x.lanes)
            chosen = self.select(x, one, zero)
            return Value(self, chosen.text, type, x.lanes, signed)
        if type in FLOAT_TYPES:
            return self._to_float(x, type)
        if x.is_float:
            return self._float_to_integer(x, type, signed)
        if bits_of(type) < x.bits:
            return self._convert("trunc", x, type, signed)
        return self._convert("sext" if x.signed else "zext", x, type, signed)

    def _to_float(self, x: Value, type: str) -> Value:
        if x.is_float:
            return self._convert("fpext" if type == "double" else "fptrunc", x, type)
        if x.bits < 32:
            # The vector units convert from 32 and 64 bits only.
            x = self.to_type(x, "i32")
        return self._convert("sitofp" if x.signed else "uitofp", x, type)

    def _float_to_integer(self, x: Value, type: str, signed: bool) -> Value:
        if bits_of(type) < 32:
            return self._convert("trunc", self._convert("fptosi", x, "i32"), type, signed)
        return self._convert("fptosi" if signed else "fptoui", x, type, signed)

    def _convert(self, instruction: str, x: Value, type: str, signed: bool = True) -> Value:
        text = self.emit(f"{instruction} {x.typed} to {vector_type(type, x.lanes)}")
        return Value(self, text, type, x.lanes, signed)

    def widen_bfloat16(self, x: Value) -> Value:
        """The float whose upper half is the i16 `x`."""
        wide = self.to_type(self.as_unsigned(x), "i32")
        result = self.bitcast(wide << 16, "float")
        self.narrow_forms[result.text] = x
        return result

    def narrow_bfloat16(self, x: Value) -> Value:
        """A float rounded to the nearest bfloat16, ties to even, as i16; NaN stays NaN."""
        if x.text in self.narrow_forms:
            return self.narrow_forms[x.text]
        bits = self.as_unsigned(self.bits(x))
        odd = (bits >> 16) & 1
        rounded = (bits + odd + 0x7FFF) >> 16
        quiet_nan = (bits >> 16) | 0x40
        return self.to_type(self.select(self.is_nan(x), quiet_nan, rounded), "i16")

    def pair_of_bfloat16(self, x: Value, y: Value) -> Value:
        """The upper halves of two floats in an i32, that of `x` in the lower half."""
        low = self.as_unsigned(self.bits(x)) >> 16
        return self.as_signed(low | (self.as_unsigned(self.bits(y)) & 0xFFFF0000))

    def widen_float16(self, x: Value) -> Value:
        """The float with the value of the half whose bits are the i16 `x`."""
        if self.target.has_f16c:
            return self._convert("fpext", self.bitcast(x, "half"), "float")
        wide = self.to_type(self.as_unsigned(x), "i32", signed=False)
        magnitude = wide & 0x7FFF
        # In the fields of a float, the exponent is too small by 127 - 15; a
        # multiplication corrects it, and normalises subnormal numbers.
        scaled = self.bits(self.bitcast(magnitude << 13, "float") * 2.0**112)
        special = (magnitude << 13) | 0x7F800000
        chosen = self.select(magnitude >= 0x7C00, special, scaled)
        return self.bitcast(chosen | ((wide & 0x8000) << 16), "float")

    def narrow_float16(self, x: Value) -> Value:
        """A float rounded to the nearest half, ties to even, as i16; NaN stays NaN."""
        if self.target.has_f16c:
            return self.bitcast(self._convert("fptrunc", x, "half"), "i16")
        magnitude = self.as_unsigned(self.bits(abs(x)))
        odd = (magnitude >> 13) & 1
        normal = (magnitude + odd + (0xFFF - (112 << 23))) >> 13
        # An addition of 0.5 lines the bits of a subnormal half up with the end of the mantissa.
        subnormal = self.bits(abs(x) + 0.5) - (126 << 23)
        infinite = self.constant_like(magnitude, 0x7C00)
        special = self.select(magnitude > 0x7F800000, 0x7E00, infinite)
        finite = self.select(magnitude < (113 << 23), subnormal, normal)
        chosen = self.select(magnitude >= (143 << 23), special, finite)
        sign = (self.as_unsigned(self.bits(x)) >> 16) & 0x8000
        return self.to_type(chosen | sign, "i16")
