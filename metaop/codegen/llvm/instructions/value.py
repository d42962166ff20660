"""Values of LLVM IR text, and the spelling of their types and constants."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Union

if TYPE_CHECKING:
    from metaop.codegen.llvm.builder import Builder

FLOAT_TYPES = ("float", "double")
_BITS = {"i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64, "float": 32, "double": 64, "half": 16}
_BITS["ptr"] = 64


class Value:
    """A scalar or a vector in LLVM IR text.

    `text` is a register (`%v3`) or a constant, `type` the LLVM type of one element, `lanes` the
    length of the vector, 1 for a scalar. `signed` tells how integers compare, divide, shift right
    and widen; "i1" is never signed. Python's operators emit instructions through the value's
    builder, with numbers and scalars splatted to the other operand's lanes; comparisons give i1.
    """

    __slots__ = ("builder", "text", "type", "lanes", "signed")
    builder: Builder

    def __init__(
        self, builder: Any, text: str, type: str, lanes: int = 1, signed: bool = True
    ) -> None:
        self.builder = builder
        self.text = text
        self.type = type
        self.lanes = lanes
        self.signed = signed and type != "i1"

    @property
    def is_float(self) -> bool:
        return self.type in FLOAT_TYPES

    @property
    def is_constant(self) -> bool:
        return self.text[0] not in "%@"

    @property
    def bits(self) -> int:
        """The width of one element."""
        return _BITS[self.type]

    @property
    def full_type(self) -> str:
        """The LLVM type, `float` or `<8 x float>`."""
        return vector_type(self.type, self.lanes)

    @property
    def typed(self) -> str:
        """The value as an operand with its type: `<8 x float> %v3`."""
        return f"{self.full_type} {self.text}"

    def __repr__(self) -> str:
        return f"<{self.typed}>"

    def __add__(self, other: Operand) -> Value:
        return self.builder.add(self, other)

    def __radd__(self, other: Operand) -> Value:
        return self.builder.add(other, self)

    def __sub__(self, other: Operand) -> Value:
        return self.builder.sub(self, other)

    def __rsub__(self, other: Operand) -> Value:
        return self.builder.sub(other, self)

    def __mul__(self, other: Operand) -> Value:
        return self.builder.mul(self, other)

    def __rmul__(self, other: Operand) -> Value:
        return self.builder.mul(other, self)

    def __truediv__(self, other: Operand) -> Value:
        return self.builder.div(self, other)

    def __rtruediv__(self, other: Operand) -> Value:
        return self.builder.div(other, self)

    def __neg__(self) -> Value:
        return self.builder.neg(self)

    def __abs__(self) -> Value:
        return self.builder.absolute(self)

    def __and__(self, other: Operand) -> Value:
        return self.builder.bit_and(self, other)

    def __or__(self, other: Operand) -> Value:
        return self.builder.bit_or(self, other)

    def __xor__(self, other: Operand) -> Value:
        return self.builder.bit_xor(self, other)

    def __invert__(self) -> Value:
        return self.builder.bit_not(self)

    def __lshift__(self, amount: Operand) -> Value:
        return self.builder.shift_left(self, amount)

    def __rshift__(self, amount: Operand) -> Value:
        return self.builder.shift_right(self, amount)

    def __lt__(self, other: Operand) -> Value:
        return self.builder.compare("lt", self, other)

    def __le__(self, other: Operand) -> Value:
        return self.builder.compare("le", self, other)

    def __gt__(self, other: Operand) -> Value:
        return self.builder.compare("gt", self, other)

    def __ge__(self, other: Operand) -> Value:
        return self.builder.compare("ge", self, other)

    def equals(self, other: Operand) -> Value:
        """Elementwise equality; False for NaN."""
        return self.builder.compare("eq", self, other)

    def differs(self, other: Operand) -> Value:
        """Elementwise inequality; True for NaN."""
        return self.builder.compare("ne", self, other)


Operand = Union["Value", int, float]


def vector_type(type: str, lanes: int) -> str:
    """The type of `lanes` elements: the element type itself for one lane."""
    return type if lanes == 1 else f"<{lanes} x {type}>"


def bits_of(type: str) -> int:
    """The width of an element type, by its LLVM name."""
    return _BITS[type]


_SUFFIXES = {"float": "f32", "double": "f64", "half": "f16", "ptr": "p0"}


def intrinsic_suffix(type: str, lanes: int) -> str:
    """The part of an intrinsic's name that tells a type."""
    name = _SUFFIXES.get(type, type)
    return name if lanes == 1 else f"v{lanes}{name}"


def constant_text(number: Any, type: str, lanes: int = 1) -> str:
    """A number as LLVM spells it; floats in hexadecimal so that no digit is lost."""
    if type in FLOAT_TYPES:
        text = _float_text(float(number), type)
    elif type == "i1":
        text = "true" if number else "false"
    else:
        # LLVM wants integers in two's complement range, whatever their signedness.
        half = 1 << (_BITS[type] - 1)
        text = str((int(number) + half) % (2 * half) - half)
    return text if lanes == 1 else f"splat ({type} {text})"


def _float_text(number: float, type: str) -> str:
    if type == "float":
        # LLVM writes a float constant as the double of the same value.
        number = _to_float32(number)
    return f"0x{struct.unpack('<Q', struct.pack('<d', number))[0]:016X}"


def _to_float32(number: float) -> float:
    try:
        return struct.unpack("<f", struct.pack("<f", number))[0]
    except OverflowError:
        return float("inf") if number > 0 else float("-inf")
