"""Scalar index arithmetic: folded, hoisted, and simplified by known ranges."""

from __future__ import annotations

import math
from typing import Union

from metaop.codegen.llvm.emission.code import Code

# A literal, or the name of an i64 value.
Coefficient = Union[int, str]  # noqa: UP007

_BITS = 63


class ScalarArithmetic:
    """Arithmetic on scalars of 64 bits.

    `limits` has an upper bound, possibly infinity, of each scalar that is not negative.
    """

    def __init__(self, code: Code) -> None:
        self.code = code
        self.limits: dict[str, float] = {}

    def limit(self, value: Coefficient) -> float | None:
        """An upper bound of a scalar that is not negative; None for others."""
        if isinstance(value, int):
            return value if value >= 0 else None
        return self.limits.get(value)

    def binary(self, operation: str, left: Coefficient, right: Coefficient) -> Coefficient:
        """A 64-bit instruction on scalars; operations on literals are folded."""
        if operation == "mul":
            if left == 0 or right == 0:
                return 0
            if left == 1:
                return right
            if right == 1:
                return left
        elif right == 0 and operation in ("add", "sub"):
            return left
        elif left == 0 and operation == "add":
            return right
        if isinstance(left, int) and isinstance(right, int) and operation in _FOLD:
            return _FOLD[operation](left, right)
        divides = operation in _DIVISIONS
        if divides and isinstance(right, str):
            return self._divided_by_argument(operation, left, right)
        if divides and isinstance(left, str) and isinstance(right, int) and left in self.limits:
            return self._divided_by_literal(operation[1:], left, right)
        name = self.code.pure(f"{operation} i64 {left}, {right}", str(left), str(right))
        self._note_limit(name, operation, left, right)
        return name

    def _note_limit(self, name: str, operation: str, left: Coefficient, right: Coefficient) -> None:
        first, second = self.limit(left), self.limit(right)
        if operation == "and" and first is not None:
            self.limits[name] = first
        elif first is None or second is None:
            return
        elif operation == "add":
            self.limits[name] = first + second
        elif operation == "mul":
            self.limits[name] = first * second if first and second else 0  # not NaN of 0 * inf
        elif operation in _DIVISIONS:
            self.limits[name] = first

    def _divided_by_literal(self, operation: str, left: str, divisor: int) -> Coefficient:
        """The quotient or the remainder of a scalar that is not negative.

        Code generators take long over a division of 64 bits by a literal, which has to be right
        for all numbers; for those up to the limit it is a multiplication and a shift.
        """
        limit, code = self.limits[left], self.code
        if limit < divisor:
            return 0 if operation == "div" else left
        found = None if math.isinf(limit) else reciprocal(divisor, int(limit), _BITS)
        if found is None:
            name = code.pure(f"u{operation} i64 {left}, {divisor}", left)
            self.limits[name] = limit if operation == "div" else divisor - 1
            return name
        factor, shift = found
        product = self.binary("mul", left, factor)
        quotient = code.pure(f"lshr i64 {product}, {shift}", str(product))
        self.limits[quotient] = limit // divisor
        if operation == "div":
            return quotient
        whole = self.binary("mul", quotient, divisor)
        rest = code.pure(f"sub i64 {left}, {whole}", left, str(whole))
        self.limits[rest] = divisor - 1
        return rest

    def _divided_by_argument(self, operation: str, left: Coefficient, divisor: str) -> Coefficient:
        """The quotient, rounded down, or the remainder by a positive argument.

        Processors take up to a hundred clocks for a division of 64 bits, so it multiplies by the
        reciprocal in doubles. Of integers below 2^50, the dividend plus a half, times the rounded
        reciprocal, is nearer to the quotient than that is to another integer.
        """
        code = self.code
        under = code.pure(f"sitofp i64 {divisor} to double", divisor)
        inverse = code.pure(f"fdiv double 1.0, {under}", under)
        real = code.pure(f"sitofp i64 {left} to double", str(left))
        real = code.pure(f"fadd double {real}, 5.0e-1", real)
        ratio = code.pure(f"fmul double {real}, {inverse}", real, inverse)
        if operation[0] == "s":
            with code.placed(code.level_among(ratio)):
                ratio = code.floor(code.value(ratio, "double")).text
        quotient = code.pure(f"fptosi double {ratio} to i64", ratio)
        self._note_limit(quotient, operation, left, divisor)
        if operation[1:] == "div":
            return quotient
        whole = self.binary("mul", quotient, divisor)
        rest = code.pure(f"sub i64 {left}, {whole}", str(left), str(whole))
        self._note_limit(rest, operation, left, divisor)
        return rest

    def clamped(self, value: Coefficient, low: int, high: int) -> Coefficient:
        """An i64 brought into a range, as an i32."""
        code = self.code
        if isinstance(value, int):
            return min(max(value, low), high)
        limit = self.limit(value)
        for function, end in (("smax", low), ("smin", high)):
            if limit is not None and (limit <= high if function == "smin" else low <= 0):
                continue
            code.declare(f"declare i64 @llvm.{function}.i64(i64, i64)")
            value = code.pure(f"call i64 @llvm.{function}.i64(i64 {value}, i64 {end})", value)
        return self.narrow(value)

    def lesser(self, left: Coefficient, right: Coefficient) -> Coefficient:
        """The lesser of two i64."""
        if isinstance(left, int) and isinstance(right, int):
            return min(left, right)
        return self._extreme("smin", left, right)

    def greater(self, left: Coefficient, right: Coefficient) -> Coefficient:
        """The greater of two i64."""
        if isinstance(left, int) and isinstance(right, int):
            return max(left, right)
        return self._extreme("smax", left, right)

    def _extreme(self, function: str, left: Coefficient, right: Coefficient) -> Coefficient:
        self.code.declare(f"declare i64 @llvm.{function}.i64(i64, i64)")
        text = f"call i64 @llvm.{function}.i64(i64 {left}, i64 {right})"
        return self.code.pure(text, str(left), str(right))

    def narrow(self, value: Coefficient) -> Coefficient:
        """An i64 as an i32."""
        if isinstance(value, int):
            return value
        return self.code.pure(f"trunc i64 {value} to i32", value)

    def narrow_difference(self, left: Coefficient, right: Coefficient) -> Coefficient:
        """The difference of two i32."""
        if isinstance(left, int) and isinstance(right, int):
            return left - right
        return self.code.pure(f"sub i32 {left}, {right}", str(left), str(right))


def reciprocal(divisor: int, limit: int, bits: int) -> tuple[int, int] | None:
    """A factor and a shift with `x * factor >> shift == x // divisor` for 0 <= x <= limit.

    The product stays below 2**bits; None if no pair does that. With
    factor = (2**shift + error) / divisor the quotient is too large by error * x / (divisor *
    2**shift), which stays below the distance to the next integer, 1 / divisor.
    """
    for shift in range(bits):
        factor = -(-(1 << shift) // divisor)
        if factor * limit >= 1 << bits:
            return None
        error = factor * divisor - (1 << shift)
        if error * limit < 1 << shift:
            return factor, shift
    return None


_DIVISIONS = ("udiv", "urem", "sdiv", "srem")
_FOLD = {
    "add": lambda left, right: left + right,
    "sub": lambda left, right: left - right,
    "mul": lambda left, right: left * right,
    "and": lambda left, right: left & right,
    "udiv": lambda left, right: left // right,
    "urem": lambda left, right: left % right,
    "sdiv": lambda left, right: abs(left) // right * (1 if left >= 0 else -1),
    "srem": lambda left, right: abs(left) % right * (1 if left >= 0 else -1),
}
