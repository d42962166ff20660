"""Symbolic integers: a program compiled on them is valid for all sizes that satisfy its guards.

A `SymInt` is a polynomial over atoms: symbols, quotients, remainders and maxima. It has a *hint*,
its value for the sizes being compiled. Arithmetic builds polynomials. A comparison is proved from
bounds if possible. Otherwise the hints decide it, and the `ShapeEnv` records the answer as a guard.
A symbol that is used as a plain integer is *pinned*: its guard is equality.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeGuard

if TYPE_CHECKING:
    from metaop.unified_graph.shape_env import ShapeEnv

# A product of atoms, by their numbers, and a sum of such products with coefficients, in order.
Monomial = tuple[int, ...]
Terms = tuple[tuple[Monomial, int], ...]

# Sizes that vary are expected to be at least this large.
_USUAL = 64
# From so many times a bound on, other sizes are hardly ever on the other side of it.
_FAR = 4


class NotGeneralError(Exception):
    """A result holds only for particular sizes; the message says why."""


class SymInt:
    """An integer that depends on the symbols of a `ShapeEnv`; one object for equal polynomials."""

    __slots__ = ("env", "terms", "hint", "__weakref__")

    def __init__(self, env: ShapeEnv, terms: Terms, hint: int) -> None:
        self.env, self.terms, self.hint = env, terms, hint

    __hash__ = object.__hash__

    def _is_mine(self, other: Any) -> TypeGuard[SymInt | int]:
        return type(other) is int or (type(other) is SymInt and other.env is self.env)

    def __add__(self, other: Any) -> Any:
        if self._is_mine(other):
            return self.env.add(self, other)
        if isinstance(other, float):
            return SymFloat.of(self) + other
        return self.env.add(self, int(other)) if _is_flag(other) else NotImplemented

    __radd__ = __add__

    def __neg__(self) -> Any:
        return self.env.multiply(self, -1)

    def __pos__(self) -> SymInt:
        return self

    def __abs__(self) -> Any:
        return -self if self.env.is_negative(self) else self

    def __sub__(self, other: Any) -> Any:
        return self + (-other)

    def __rsub__(self, other: Any) -> Any:
        return -self + other

    def __mul__(self, other: Any) -> Any:
        if self._is_mine(other):
            return self.env.multiply(self, other)
        if isinstance(other, float):
            return SymFloat.of(self) * other
        return self.env.multiply(self, int(other)) if _is_flag(other) else NotImplemented

    __rmul__ = __mul__

    def __pow__(self, other: Any) -> Any:
        if type(other) is int and other >= 0:
            return math.prod([self] * other)
        return NotImplemented

    def __floordiv__(self, other: Any) -> Any:
        return self.env.divide(self, other)[0] if self._is_mine(other) else NotImplemented

    def __rfloordiv__(self, other: Any) -> Any:
        return self.env.divide(other, self)[0] if self._is_mine(other) else NotImplemented

    def __mod__(self, other: Any) -> Any:
        return self.env.divide(self, other)[1] if self._is_mine(other) else NotImplemented

    def __rmod__(self, other: Any) -> Any:
        return self.env.divide(other, self)[1] if self._is_mine(other) else NotImplemented

    def __divmod__(self, other: Any) -> Any:
        return self.env.divide(self, other) if self._is_mine(other) else NotImplemented

    def __rdivmod__(self, other: Any) -> Any:
        return self.env.divide(other, self) if self._is_mine(other) else NotImplemented

    def __truediv__(self, other: Any) -> Any:
        return SymFloat.of(self) / other

    def __rtruediv__(self, other: Any) -> Any:
        return other / SymFloat.of(self)

    def __eq__(self, other: object) -> Any:
        if self is other:
            return True
        if self._is_mine(other):
            # What holds for different sizes also holds for equal ones, except 0 and 1. So a batch
            # that happens to be as large as a layer is wide decides nothing.
            if type(other) is int and not -1 <= other <= 1:
                return self.env.is_surely_zero(self - other) or self.env.tell_apart(self - other)
            is_plain = type(other) is int
            if not is_plain and (self.env.is_scheduled or self.hint != hint_of(other)):
                return self.env.is_surely_zero(self - other) or self.env.tell_apart(self - other)
            return self.env.is_zero(self - other)
        if isinstance(other, float):
            return other.is_integer() and self.env.is_zero(self - int(other))
        return NotImplemented

    def __lt__(self, other: Any) -> Any:
        if self._is_mine(other):
            return self.env.is_negative(self - other)
        return SymFloat.of(self) < other

    def __gt__(self, other: Any) -> Any:
        if self._is_mine(other):
            return self.env.is_negative(other - self)
        return SymFloat.of(self) > other

    def __le__(self, other: Any) -> Any:
        return not self > other

    def __ge__(self, other: Any) -> Any:
        return not self < other

    def __bool__(self) -> bool:
        return not self.env.is_zero(self)

    def __index__(self) -> int:
        return self.env.pin(self)

    __int__ = __index__

    def __float__(self) -> float:
        return float(self.env.pin(self))

    def __ceil__(self) -> SymInt:
        return self

    __floor__ = __trunc__ = __round__ = __ceil__

    @property
    def is_atom(self) -> bool:
        """Whether it is a symbol, or a quotient, remainder or maximum alone."""
        ((monomial, coefficient), *rest) = self.terms
        return not rest and coefficient == 1 and len(monomial) == 1

    def bit_length(self) -> int:
        """The bit length of the hint, with guards that the value has the same."""
        bits = self.hint.bit_length()
        below, above = self < (1 << bits), self >= (1 << bits >> 1)
        assert below and above
        return bits

    def __repr__(self) -> str:
        return text_of(self)


def _is_flag(value: object) -> bool:
    return type(value) is bool


class SymFloat:
    """A real number that depends on symbols: an expression and its hint."""

    __slots__ = ("env", "tree", "hint", "_hash")

    def __init__(self, env: ShapeEnv, tree: tuple[Any, ...], hint: float) -> None:
        self.env, self.tree, self.hint = env, tree, hint
        # Symbols of two programs have the same names.
        self._hash = hash((id(env), tree))

    @staticmethod
    def of(value: SymInt) -> SymFloat:
        """The real number of a symbolic integer."""
        return SymFloat(value.env, ("real", value), float(value.hint))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SymFloat) or other.env is not self.env:
            return False
        return self.tree == other.tree

    @property
    def operator(self) -> str:
        """The outermost operator, "real" for an integer."""
        return str(self.tree[0])

    @property
    def operands(self) -> tuple[Any, ...]:
        """What the outermost operator is applied to."""
        return self.tree[1:]

    def _with(self, operator: str, other: Any, swapped: bool = False) -> Any:
        if isinstance(other, SymInt):
            other = SymFloat.of(other)
        if not isinstance(other, (SymFloat, float, int)):
            return NotImplemented
        left, right = (other, self) if swapped else (self, other)
        first, second = hint_of(left), hint_of(right)
        hint = {"+": first + second, "-": first - second, "*": first * second}.get(operator)
        if hint is None:
            hint = first / second
        return SymFloat(self.env, (operator, left, right), hint)

    def __add__(self, other: Any) -> Any:
        return self._with("+", other)

    def __radd__(self, other: Any) -> Any:
        return self._with("+", other, True)

    def __sub__(self, other: Any) -> Any:
        return self._with("-", other)

    def __rsub__(self, other: Any) -> Any:
        return self._with("-", other, True)

    def __mul__(self, other: Any) -> Any:
        return self._with("*", other)

    def __rmul__(self, other: Any) -> Any:
        return self._with("*", other, True)

    def __truediv__(self, other: Any) -> Any:
        return self._with("/", other)

    def __rtruediv__(self, other: Any) -> Any:
        return self._with("/", other, True)

    def __pow__(self, other: Any) -> Any:
        if not isinstance(other, float):
            return NotImplemented
        return SymFloat(self.env, ("**", self, other), self.hint**other)

    def __neg__(self) -> Any:
        return self._with("*", -1)

    def __lt__(self, other: Any) -> bool:
        if other == math.inf:
            return True
        return self.env.is_negative_real(self - other)

    def __gt__(self, other: Any) -> bool:
        if other == math.inf:
            return False
        return self.env.is_negative_real(other - self)

    def __le__(self, other: Any) -> bool:
        return not self > other

    def __ge__(self, other: Any) -> bool:
        return not self < other

    def __bool__(self) -> bool:
        return True

    def __float__(self) -> float:
        raise NotGeneralError(f"{self} is needed as a plain number")

    def __ceil__(self) -> Any:
        return self._rounded(math.ceil(self.hint), "ceil")

    def __floor__(self) -> Any:
        return self._rounded(math.floor(self.hint), "floor")

    def __int__(self) -> int:
        raise NotGeneralError(f"{self} is needed as a plain integer")

    def _rounded(self, hint: int, name: str) -> Any:
        return self.env.rounded(name, self, hint)

    def __repr__(self) -> str:
        return text_of(self)


def hint_of(value: Any) -> Any:
    """The value for the sizes being compiled."""
    return value.hint if isinstance(value, (SymInt, SymFloat)) else value


def usual_of(value: Any) -> Any:
    """The value by which to make a decision that only affects speed: sizes that vary may grow.

    The first sizes of a sorted stream are its shortest. A choice for longer ones costs short ones
    little; a choice for short ones would cost longer ones several times as much.
    """
    return max(value.hint, _USUAL) if isinstance(value, SymInt) else value


def is_symbolic(value: object) -> bool:
    """Whether a number depends on symbols."""
    return isinstance(value, (SymInt, SymFloat))


def as_integer(value: Any) -> Any:
    """A plain or a symbolic integer."""
    return value if type(value) is SymInt else int(value)


def surely_less(left: Any, right: Any) -> bool:
    """Whether `left < right` for all sizes; records no guard."""
    difference = left - right
    if type(difference) is int:
        return difference < 0
    return difference.env.is_proved(difference, "<")  # type: ignore[union-attr]


def narrowed(value: Any) -> Any:
    """The value as a plain integer, if its program may be one for the sizes that have it."""
    return value if type(value) is int or not value.env.may_narrow else int(value)


def is_at_least(value: Any, least: int) -> bool:
    """Whether a value is provably so large, or becomes a condition of its program to be.

    It does where it is far larger now, so that hardly any other sizes need another program.
    """
    if surely_less(least - 1, value):
        return True
    may_narrow = type(value) is not int and value.env.may_narrow
    return may_narrow and hint_of(value) >= _FAR * least and bool(value >= least)


def is_at_most(value: Any, most: int) -> bool:
    """The same for an upper bound."""
    if surely_less(value, most + 1):
        return True
    may_narrow = type(value) is not int and value.env.may_narrow
    return may_narrow and hint_of(value) * _FAR <= most and bool(value <= most)


def surely_equal(left: Any, right: Any) -> bool:
    """Whether two numbers are the same expression of sizes; records no guard."""
    return left is right or (type(left) is type(right) is int and left == right)


def divides(divisor: Any, value: Any) -> bool:
    """Whether a value is a multiple of a divisor for all sizes; records no guard."""
    rest = value % divisor
    return type(rest) is int and rest == 0


def content_of(value: Any) -> int:
    """The largest plain integer that provably divides a value."""
    return value if type(value) is int else math.gcd(*(c for _, c in value.terms))  # type: ignore


def maximum(values: Sequence[Any]) -> Any:
    """The largest of the values; for symbolic ones, an expression without a guard."""
    symbolic = [value for value in values if type(value) is not int]
    return symbolic[0].env.largest(values) if symbolic else max(values)  # type: ignore


def greatest(values: Sequence[Any]) -> Any:
    """The largest of some values that are not negative, without proofs that some are smaller."""
    distinct = list(dict.fromkeys(values)) or [0]
    symbolic = [value for value in distinct if type(value) is not int]
    if not symbolic or len(distinct) == 1:
        return max(distinct)
    return symbolic[0].env.greatest(distinct)


def common_divisor(*values: Any) -> Any:
    """The greatest common divisor of plain integers; a provable common divisor of symbolic ones."""
    if all(type(value) is int for value in values):
        return math.gcd(*values)  # type: ignore[arg-type]
    content = 0
    shared: Monomial | None = None
    env: ShapeEnv | None = None
    for value in values:
        if type(value) is int:
            if value:
                content, shared = math.gcd(content, value), ()
            continue
        env = value.env  # type: ignore[union-attr]
        for monomial, coefficient in value.terms:  # type: ignore[union-attr]
            content = math.gcd(content, coefficient)
            shared = monomial if shared is None else _in_both(shared, monomial)
    assert env is not None and shared is not None
    return env.product(shared, content)


def _in_both(one: Monomial, other: Monomial) -> Monomial:
    left, found = list(other), []
    for number in one:
        if number in left:
            left.remove(number)
            found.append(number)
    return tuple(found)


def bits_of(value: Any) -> Any:
    """The bits of a real number as an integer, symbolic for a symbolic number."""
    if isinstance(value, SymFloat):
        return value.env.bits(value)
    return _bits(value)


def _bits(value: float) -> int:
    return int.from_bytes(struct.pack("<d", value), "little", signed=True)


def as_float(value: Any) -> Any:
    """A plain or a symbolic real number."""
    return SymFloat.of(value) if type(value) is SymInt else float(value)


# --- text that is read and run ------------------------------------------------------------------

_TEXTS = {"//": "({} // {})", "%": "({} % {})", "real": "{}"}


def text_of(value: Any, names: dict[int, str] | None = None) -> str:
    """A number as Python text in the names of symbols, or in names given to atoms by number."""
    if isinstance(value, SymInt):
        parts = []
        for monomial, coefficient in value.terms:
            factors = [atom_text(value.env, number, names) for number in monomial]
            if coefficient != 1 or not factors:
                factors.insert(0, str(coefficient))
            parts.append("*".join(factors))
        text = " + ".join(parts).replace("+ -", "- ").replace(" 1*", " ")
        return text if value.is_atom else f"({text})"
    if isinstance(value, SymFloat):
        if value.operator == "symbol":
            return str(value.operands[0])
        texts = [text_of(operand, names) for operand in value.operands]
        return _TEXTS.get(value.tree[0], f"({{}} {value.tree[0]} {{}})").format(*texts)
    return repr(value)


def atom_text(env: ShapeEnv, number: int, names: dict[int, str] | None = None) -> str:
    """An atom as Python text: its name if it has one in `names`."""
    if names is not None and number in names:
        return names[number]
    operator, operands = env.atoms[number]
    if not operands:
        return operator
    texts = [text_of(operand, names) for operand in operands]
    return _TEXTS.get(operator, f"{operator}({', '.join(texts)})").format(*texts)


def symbolic_parts(value: Any) -> dict[SymInt, None]:
    """The symbolic integers in nested tuples and lists, each once."""
    found: dict[SymInt, None] = {}
    stack = [value]
    while stack:
        one = stack.pop()
        if type(one) is SymInt:
            found[one] = None
        elif isinstance(one, (tuple, list)):
            stack.extend(one)
    return found


def with_parts(value: Any, values: Mapping[SymInt, int]) -> Any:
    """Nested tuples with their symbolic integers replaced."""
    if type(value) is SymInt:
        return values[value]
    if not isinstance(value, tuple):
        return value
    parts = [with_parts(one, values) for one in value]
    return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
