"""Arithmetic, comparisons, selection, bits and rounding: the instructions that compute."""

from __future__ import annotations

import math
from collections.abc import Sequence

from metaop.codegen.llvm.instructions.core import Core
from metaop.codegen.llvm.instructions.value import Operand, Value

_FLOAT_COMPARE = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}
# Adding and subtracting this rounds to an integer, half to even: it fills the mantissa.
_MANTISSA_FULL = {"float": 2.0**23, "double": 2.0**52}


class Arithmetic(Core):
    """The computing half of `Builder`; operands are values or Python numbers.

    Integers wrap. On "i1" add and max are or, mul and min are and. Floats follow IEEE 754; a
    product that is added to something is a fused multiply-add if the target has one, except inside
    `exact` and after `rounded`. That is decided here and not by LLVM, so that every level of
    optimisation gives the same bits.
    """

    # Sums and products

    def add(self, x: Operand, y: Operand) -> Value:
        x, y = self.together(x, y)
        for product, other in ((x, y), (y, x)):
            if factors := self._factors_of(product):
                return self.fma(*factors, other)
        return self._binary("add", "fadd", "or", x, y)

    def sub(self, x: Operand, y: Operand) -> Value:
        x, y = self.together(x, y)
        if factors := self._factors_of(x):
            return self.fma(*factors, self.neg(y))
        if factors := self._factors_of(y):
            return self.fma(self.neg(factors[0]), factors[1], x)
        return self._binary("sub", "fsub", "xor", x, y)

    def mul(self, x: Operand, y: Operand) -> Value:
        x, y = self.together(x, y)
        product = self._binary("mul", "fmul", "and", x, y)
        if product.is_float and self.fuses and self.target.has_fma:
            self._factors[product.text] = x, y
        return product

    def rounded(self, x: Value) -> Value:
        """The value, which will not round together with what is added to it."""
        self._factors.pop(x.text, None)
        return x

    def _factors_of(self, x: Value) -> tuple[Value, Value] | None:
        """The factors of a product that may round together with what is added to it."""
        return self._factors.get(x.text) if self.fuses else None

    def square(self, x: Value) -> Value:
        return self.mul(x, x)

    def div(self, x: Operand, y: Operand) -> Value:
        """The quotient of floats."""
        x, y = self.together(x, y)
        return self._two("fdiv", x, y)

    def fma(self, x: Operand, y: Operand, z: Operand) -> Value:
        """x * y + z for floats; rounded once where the target has the instruction."""
        x, y, z = self.together(x, y, z)
        if self.target.has_fma:
            return self.intrinsic("llvm.fma", x, y, z)
        return self.add(self.mul(x, y), z)

    def neg(self, x: Value) -> Value:
        if x.is_float:
            return self.like(x, self.emit(f"fneg {x.typed}"))
        return self.sub(self.constant_like(x, 0), x)

    def absolute(self, x: Value) -> Value:
        if x.is_float:
            return self.intrinsic("llvm.fabs", x)
        if not x.signed:
            return x
        return self.intrinsic("llvm.abs", x, self.constant(0, "i1"))

    def sqrt(self, x: Value) -> Value:
        return self.intrinsic("llvm.sqrt", x)

    def copysign(self, x: Operand, y: Operand) -> Value:
        x, y = self.together(x, y)
        return self.intrinsic("llvm.copysign", x, y)

    def sign(self, x: Value) -> Value:
        """-1, 0 or 1 in the operand's type; 0 for NaN."""
        if x.type == "i1":
            return x
        zero, one = self.constant_like(x, 0), self.constant_like(x, 1)
        positive = self.select(x > zero, one, zero)
        if not x.signed:
            return positive
        return self.select(x < zero, self.constant_like(x, -1), positive)

    def _binary(self, integer: str, floating: str, boolean: str, x: Operand, y: Operand) -> Value:
        x, y = self.together(x, y)
        if x.is_float:
            return self._two(floating, x, y)
        return self._two(boolean if x.type == "i1" else integer, x, y)

    def _two(self, instruction: str, x: Value, y: Value) -> Value:
        """The instruction on two operands of the same type, giving that type."""
        return self.like(x, self.emit(f"{instruction} {x.typed}, {y.text}"))

    # Comparison and selection

    def compare(self, name: str, x: Operand, y: Operand) -> Value:
        """`name` is eq, ne, lt, le, gt or ge; with NaN only `ne` holds."""
        x, y = self.together(x, y)
        if x.is_float:
            condition = f"fcmp {_FLOAT_COMPARE[name]}"
        elif name in ("eq", "ne"):
            condition = f"icmp {name}"
        else:
            condition = f"icmp {'s' if x.signed else 'u'}{name}"
        return self.value(self.emit(f"{condition} {x.typed}, {y.text}"), "i1", x.lanes)

    def is_nan(self, x: Value) -> Value:
        return self.value(self.emit(f"fcmp uno {x.typed}, {x.text}"), "i1", x.lanes)

    def is_infinite(self, x: Value) -> Value:
        if not x.is_float:
            return self.constant(0, "i1", x.lanes)
        return abs(x).equals(math.inf)

    def is_finite(self, x: Value) -> Value:
        if not x.is_float:
            return self.constant(1, "i1", x.lanes)
        return abs(x) < math.inf

    def sign_bit(self, x: Value) -> Value:
        if x.is_float:
            return self.bits(x) < 0
        return (x < 0) if x.signed else self.constant(0, "i1", x.lanes)

    def truth(self, x: Value) -> Value:
        """Whether the value differs from zero."""
        return x if x.type == "i1" else x.differs(0)

    def select(self, condition: Value, x: Operand, y: Operand) -> Value:
        """x where the condition holds, else y."""
        x, y = self.together(x, y)
        if condition.lanes < x.lanes:
            condition = self.splat(condition, x.lanes)
        elif condition.lanes > x.lanes:
            x, y = self.splat(x, condition.lanes), self.splat(y, condition.lanes)
        return self.like(x, self.emit(f"select {condition.typed}, {x.typed}, {y.typed}"))

    def maximum(self, x: Operand, y: Operand) -> Value:
        """The greater; NaN when either operand is NaN."""
        return self._extreme("gt", "or", x, y)

    def minimum(self, x: Operand, y: Operand) -> Value:
        """The smaller; NaN when either operand is NaN."""
        return self._extreme("lt", "and", x, y)

    def _extreme(self, wins: str, boolean: str, x: Operand, y: Operand) -> Value:
        x, y = self.together(x, y)
        if x.type == "i1":
            return self._two(boolean, x, y)
        if y.is_constant:
            x, y = y, x
        chosen = self._first_that_wins(wins, x, y)
        if not x.is_float or x.is_constant:
            return chosen
        # A literal, because LLVM would merge the selects if both had the same first branch.
        return self.select(self.is_nan(x), self.constant_like(x, math.nan), chosen)

    def _first_that_wins(self, wins: str, x: Value, y: Value) -> Value:
        """x if it is greater ("gt") or less ("lt") than y, else y, also if one is NaN.

        Vector instructions do just this; LLVM would use masks instead if more code follows.
        """
        width = x.lanes * x.bits
        if not x.is_float or width not in (256, 512) or width > 8 * self.target.vector_bytes:
            return self.select(self.compare(wins, x, y), x, y)
        name = "max" if wins == "gt" else "min"
        kind = f"p{x.type[0].replace('f', 's')}.{width}"
        symbol = f"llvm.x86.avx{'512' if width == 512 else ''}.{name}.{kind}"
        # The long form has one more operand, the rounding mode; this value means the current mode.
        types, rounding = (", i32", ", i32 4") if width == 512 else ("", "")
        self.declare(f"declare {x.full_type} @{symbol}({x.full_type}, {x.full_type}{types})")
        call = f"call {x.full_type} @{symbol}({x.typed}, {y.typed}{rounding})"
        return self.like(x, self.emit(call))

    def fmax(self, x: Operand, y: Operand) -> Value:
        """The greater; the other operand if one is NaN."""
        return self._extreme_of_numbers("gt", "or", x, y)

    def fmin(self, x: Operand, y: Operand) -> Value:
        """The smaller; the other operand if one is NaN."""
        return self._extreme_of_numbers("lt", "and", x, y)

    def _extreme_of_numbers(self, wins: str, boolean: str, x: Operand, y: Operand) -> Value:
        x, y = self.together(x, y)
        if x.type == "i1":
            return self._two(boolean, x, y)
        chosen = self.select(self.compare(wins, y, x), y, x)
        return self.select(self.is_nan(x), y, chosen) if x.is_float else chosen

    # Bits

    def bit_and(self, x: Operand, y: Operand) -> Value:
        return self._two("and", *self.together(x, y))

    def bit_or(self, x: Operand, y: Operand) -> Value:
        return self._two("or", *self.together(x, y))

    def bit_xor(self, x: Operand, y: Operand) -> Value:
        return self._two("xor", *self.together(x, y))

    def bit_not(self, x: Value) -> Value:
        return self.bit_xor(x, self.constant_like(x, 1 if x.type == "i1" else -1))

    def shift_left(self, x: Value, amount: Operand) -> Value:
        """Amounts outside 0 … width-1 give 0; a Python integer must lie inside."""
        if isinstance(amount, int):
            return self._two("shl", *self.together(x, amount))
        x, amount = self.together(x, amount)
        inside = self._in_width(x, amount)
        shifted = self._two("shl", x, self.select(inside, amount, 0))
        return self.select(inside, shifted, 0)

    def shift_right(self, x: Value, amount: Operand) -> Value:
        """Arithmetic for signed values; amounts outside 0 … width-1 shift every bit out."""
        instruction = "ashr" if x.signed else "lshr"
        if isinstance(amount, int):
            return self._two(instruction, *self.together(x, amount))
        x, amount = self.together(x, amount)
        inside = self._in_width(x, amount)
        shifted = self._two(instruction, x, self.select(inside, amount, x.bits - 1))
        return shifted if x.signed else self.select(inside, shifted, 0)

    def _in_width(self, x: Value, amount: Value) -> Value:
        return self.compare("lt", self.as_unsigned(amount), self.constant(x.bits, x.type, x.lanes))

    def rotate_left(self, x: Value, amount: int) -> Value:
        return self.intrinsic("llvm.fshl", x, x, self.constant_like(x, amount))

    def as_unsigned(self, x: Value) -> Value:
        return Value(self, x.text, x.type, x.lanes, signed=False)

    def as_signed(self, x: Value) -> Value:
        return Value(self, x.text, x.type, x.lanes)

    # Rounding

    def floor(self, x: Value) -> Value:
        if self._rounds_natively(x):
            return self._round("llvm.floor", x)
        nearest = self.round_even(x)
        return self.copysign(nearest - self.select(nearest > x, 1.0, self.constant_like(x, 0)), x)

    def ceil(self, x: Value) -> Value:
        if self._rounds_natively(x):
            return self._round("llvm.ceil", x)
        nearest = self.round_even(x)
        return self.copysign(nearest + self.select(nearest < x, 1.0, self.constant_like(x, 0)), x)

    def trunc(self, x: Value) -> Value:
        if self._rounds_natively(x):
            return self._round("llvm.trunc", x)
        return self.copysign(self.floor(abs(x)), x)

    def round_even(self, x: Value) -> Value:
        """The nearest integer, halves to the even one; integers stay."""
        if self._rounds_natively(x):
            return self._round("llvm.roundeven", x)
        full = _MANTISSA_FULL[x.type]
        magnitude = abs(x)
        with self.exact():
            rounded = (magnitude + full) - full
        return self.select(magnitude < full, self.copysign(rounded, x), x)

    def _rounds_natively(self, x: Value) -> bool:
        return not x.is_float or self.target.has_rounding

    def _round(self, intrinsic: str, x: Value) -> Value:
        return self.intrinsic(intrinsic, x) if x.is_float else x

    # Vectors

    def shuffle(self, x: Value, y: Value | None, order: Sequence[int]) -> Value:
        """The lanes of x followed by those of y, picked by `order` (constants)."""
        if len(order) == 1:
            return self.extract(x, order[0])
        second = f"{x.full_type} {y.text if y is not None else 'poison'}"
        picks = ", ".join(f"i32 {position}" for position in order)
        text = self.emit(f"shufflevector {x.typed}, {second}, <{len(order)} x i32> <{picks}>")
        return Value(self, text, x.type, len(order), x.signed)

    def extract(self, x: Value, lane: int | Value) -> Value:
        """One lane as a scalar."""
        if x.lanes == 1:
            return x
        position = lane.typed if isinstance(lane, Value) else f"i32 {lane}"
        text = self.emit(f"extractelement {x.typed}, {position}")
        return Value(self, text, x.type, 1, x.signed)

    def insert(self, x: Value, scalar: Value, lane: int | Value) -> Value:
        """The vector with one lane replaced."""
        if x.lanes == 1:
            return scalar
        position = lane.typed if isinstance(lane, Value) else f"i32 {lane}"
        return self.like(x, self.emit(f"insertelement {x.typed}, {scalar.typed}, {position}"))

    def halves(self, x: Value) -> tuple[Value, Value]:
        """The lower and the upper half of the lanes."""
        half = x.lanes // 2
        return (
            self.shuffle(x, None, range(half)),
            self.shuffle(x, None, range(half, x.lanes)),
        )

    def concatenate(self, x: Value, y: Value) -> Value:
        """The lanes of x followed by those of y."""
        if x.lanes == 1:
            pair = Value(self, "poison", x.type, 2, x.signed)
            return self.insert(self.insert(pair, x, 0), y, 1)
        return self.shuffle(x, y, range(2 * x.lanes))

    def joined(self, values: Sequence[Value]) -> Value:
        """The lanes of some vectors, as many as a power of two, in turn."""
        whole = list(values)
        while len(whole) > 1:
            whole = [self.concatenate(*whole[k : k + 2]) for k in range(0, len(whole), 2)]
        return whole[0]

    def parts(self, x: Value, count: int) -> list[Value]:
        """The lanes of a vector cut into so many vectors, a power of two."""
        found = [x]
        while len(found) < count:
            found = [half for part in found for half in self.halves(part)]
        return found

    def reduce(self, name: str, x: Value) -> Value:
        """All lanes combined pairwise by the method `name` (add, mul, maximum, bit_or, …)."""
        combine = getattr(self, name)
        while x.lanes > 1:
            x = combine(*self.halves(x))
        return x

    def any(self, x: Value) -> Value:
        """Whether an i1 vector has a true lane, as a scalar i1."""
        return x if x.lanes == 1 else self.intrinsic("llvm.vector.reduce.or", x, lanes=1)
