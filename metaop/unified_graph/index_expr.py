"""Integer expressions over the axes of an iteration box: the language of every index map.

An `IndexExpr` is an affine sum `c0 + c1*atom1 + c2*atom2 + …`. Atoms are axes, runtime symbols,
quotients and remainders by a constant, and elements of index operands (`Lookup`). Everything is
interned, so equal expressions are the same object, and everything knows its range, so that
`(a*8 + b) // 8` is `a` when `0 <= b < 8`.

Example: `axis(0, 4) * 8 + axis(1, 8)` covers 0 … 31, and dividing it by 8 gives `axis(0, 4)`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from metaop.unified_graph.index_atoms import (
    UNBOUNDED,
    Atom,
    Axis,
    Lookup,
    Quotient,
    Remainder,
    Symbol,
)
from metaop.unified_graph.interning import InternTable
from metaop.unified_graph.symbolic import (
    as_integer,
    common_divisor,
    divides,
    hint_of,
    surely_equal,
    surely_less,
)


class IndexExpr:
    """An interned affine sum of atoms, with the range of values it can take."""

    __slots__ = ("terms", "constant", "low", "high", "is_plain", "_atoms", "__weakref__")
    _table: InternTable[IndexExpr] = InternTable()
    terms: tuple[tuple[Atom, int], ...]
    constant: int
    low: int
    high: int
    # Whether no number in it depends on the sizes of a program for any size.
    is_plain: bool
    _atoms: tuple[Atom, ...] | None

    def __new__(cls, terms: tuple[tuple[Atom, int], ...], constant: int) -> IndexExpr:
        key = (terms, constant)
        found = cls._table.get(key) or cls._table.revive(key)
        if found is not None:
            return found
        expr = object.__new__(cls)
        expr.terms, expr.constant = terms, constant
        low = high = constant
        is_plain = type(constant) is int
        for atom, coefficient in terms:
            is_plain = is_plain and atom.is_plain and type(coefficient) is int
            if coefficient > 0:
                low += coefficient * atom.low
                high += coefficient * atom.high
            else:
                low += coefficient * atom.high
                high += coefficient * atom.low
        expr.low, expr.high, expr._atoms = low, high, None
        expr.is_plain = is_plain
        return cls._table.add(key, expr)

    def __reduce__(self) -> tuple:
        raise TypeError("index expressions are interned; pickle the program, not its maps")

    @property
    def is_constant(self) -> bool:
        return not self.terms

    def coefficient(self, atom: Atom) -> int:
        """The multiplier of `atom` itself (not of quotients that contain it)."""
        for candidate, value in self.terms:
            if candidate is atom:
                return value
        return 0

    def __add__(self, other: IndexExpr | int) -> IndexExpr:
        if not isinstance(other, IndexExpr):
            return self if surely_equal(other, 0) else IndexExpr(self.terms, self.constant + other)
        if not other.terms:
            return self + other.constant
        if not self.terms:
            return other + self.constant
        return _remembered(_sum, self, other)

    __radd__ = __add__

    def __neg__(self) -> IndexExpr:
        return self * -1

    def __sub__(self, other: IndexExpr | int) -> IndexExpr:
        return self + (-other)

    def __rsub__(self, other: int) -> IndexExpr:
        return -self + other

    def __mul__(self, factor: int) -> IndexExpr:
        if surely_equal(factor, 1):
            return self
        if surely_equal(factor, 0):
            return constant(0)
        return _remembered(_product, self, factor)

    __rmul__ = __mul__

    def __floordiv__(self, divisor: int) -> IndexExpr:
        if surely_equal(divisor, 1):
            return self
        return _remembered(_divided, self, divisor)

    def __mod__(self, divisor: int) -> IndexExpr:
        if surely_equal(divisor, 1):
            return constant(0)
        return _remembered(_rest, self, divisor)

    def is_within(self, extent: int) -> bool:
        """Whether all values are provably at least 0 and less than `extent`."""
        low, high = self.low, self.high
        if type(low) is type(high) is type(extent) is int:
            return 0 <= low and high < extent
        return surely_less(-1, low) and surely_less(high, extent)

    def substitute(self, replace: Callable[[Atom], IndexExpr | None]) -> IndexExpr:
        """The expression with every atom replaced for which `replace` returns an expression.

        That includes atoms inside quotients, remainders and lookups.
        """
        return substitute(self, replace, {})

    def atoms(self) -> tuple[Atom, ...]:
        """Every atom once, including those inside other atoms, outermost first."""
        if self._atoms is None:
            found: dict[Atom, None] = {}
            pending: list[IndexExpr] = [self]
            while pending:
                for atom, _ in pending.pop().terms:
                    found[atom] = None
                    if isinstance(atom, (Quotient, Remainder)):
                        pending.append(atom.dividend)
                    elif isinstance(atom, Lookup):
                        pending.extend(atom.indices)
            self._atoms = tuple(found)
        return self._atoms

    def __repr__(self) -> str:
        parts = []
        for atom, coefficient in self.terms:
            text = repr(atom) if surely_equal(coefficient, 1) else f"{coefficient}*{atom!r}"
            parts.append(text)
        if not surely_equal(self.constant, 0) or not parts:
            parts.append(str(self.constant))
        return " + ".join(parts).replace("+ -", "- ")


# What `_remembered` knows: kernels that are alike compute the same indices again and again.
_results: dict[tuple, IndexExpr] = {}
_MOST_RESULTS = 1 << 15


def _remembered(
    operation: Callable[[IndexExpr, Any], IndexExpr], left: IndexExpr, right: Any
) -> IndexExpr:
    """The result of an operation, which is computed once for numbers that are plain.

    What can be proved of symbols depends on what is known about them so far.
    """
    if not left.is_plain or not (
        type(right) is int or (type(right) is IndexExpr and right.is_plain)
    ):
        return operation(left, right)
    key = (operation, left, right)
    found = _results.get(key)
    if found is None:
        if len(_results) >= _MOST_RESULTS:
            _results.clear()
        found = _results[key] = operation(left, right)
    return found


def _sum(left: IndexExpr, right: IndexExpr) -> IndexExpr:
    return _collect(left.terms + right.terms, left.constant + right.constant)


def _product(expr: IndexExpr, factor: int) -> IndexExpr:
    terms = tuple((atom, value * factor) for atom, value in expr.terms)
    return IndexExpr(terms, expr.constant * factor)


def _divided(expr: IndexExpr, divisor: int) -> IndexExpr:
    whole, rest = _split(expr, divisor)
    return whole if rest.is_within(divisor) else whole + _quotient(rest, divisor)


def _rest(expr: IndexExpr, divisor: int) -> IndexExpr:
    _, rest = _split(expr, divisor)
    return rest if rest.is_within(divisor) else _remainder(rest, divisor)


def _split(expr: IndexExpr, divisor: int) -> tuple[IndexExpr, IndexExpr]:
    """`expr = whole * divisor + rest` with every multiple of the divisor in `whole`."""
    whole = tuple((a, c // divisor) for a, c in expr.terms if divides(divisor, c))
    rest = tuple((a, c) for a, c in expr.terms if not divides(divisor, c))
    steps = expr.constant // divisor
    remaining = IndexExpr(rest, expr.constant - steps * divisor)
    # A negative term may make the rest leave [0, divisor) at one end only: shift it back.
    shift = remaining.low // divisor
    if not surely_equal(shift, 0) and surely_less(remaining.high - shift * divisor, divisor):
        steps += shift
        remaining = remaining - shift * divisor
    return IndexExpr(whole, steps), remaining


def _collect(terms: Sequence[tuple[Atom, int]], offset: int) -> IndexExpr:
    sums: dict[Atom, int] = {}
    for atom, coefficient in terms:
        sums[atom] = sums.get(atom, 0) + coefficient
    rejoined = _rejoin(sums)
    if rejoined is not None:
        extra_terms, extra = rejoined
        return _collect(extra_terms, offset + extra)
    kept = [(atom, value) for atom, value in sums.items() if not surely_equal(value, 0)]
    kept.sort(key=_order_of)
    return IndexExpr(tuple(kept), offset)


def _order_of(term: tuple[Atom, int]) -> tuple[str, str, int]:
    """The sort key of terms: their text, because it is the same in every process."""
    atom = term[0]
    if atom.order is None:
        atom.order = (type(atom).__name__, repr(atom), hint_of(atom.high))
    return atom.order


def _rejoin(sums: dict[Atom, int]) -> tuple[list[tuple[Atom, int]], int] | None:
    """Recognise `c*n*(x // n) + c*(x % n) = c*x`, None when nothing joins.

    The quotient may also stand in a remainder: `n*((x // n + y) % m) + x % n = (x + n*y) % (n*m)`.
    """
    for atom, value in sums.items():
        if not isinstance(atom, Remainder) or surely_equal(value, 0):
            continue
        for other, coefficient in sums.items():
            if not surely_equal(coefficient, value * atom.divisor):
                continue
            joined = _joined(atom, other)
            if joined is not None:
                left = [(a, c) for a, c in sums.items() if a is not atom and a is not other]
                joined = joined * value
                return left + list(joined.terms), joined.constant
    return None


def _joined(rest: Remainder, other: Atom) -> IndexExpr | None:
    """`n * other + rest`, of which n is the divisor of the rest; None when nothing joins."""
    quotient, divisor = rest.dividend // rest.divisor, rest.divisor
    if quotient.terms == ((other, 1),) and not quotient.constant:
        return rest.dividend
    number = _number(other, rest)
    if number is not None or not isinstance(other, Remainder):
        return number
    if set(quotient.terms) <= set(other.dividend.terms):
        beside = (other.dividend - quotient) * divisor
        return (rest.dividend + beside) % (divisor * other.divisor)
    for inner, coefficient in other.dividend.terms:
        number = _number(inner, rest) if surely_equal(coefficient, 1) else None
        if number is not None:
            beside = (other.dividend - of(inner)) * divisor
            return (number + beside) % (divisor * other.divisor)
    return None


def _number(quotient: Atom, rest: Remainder) -> IndexExpr | None:
    """The number that has a quotient and a remainder, if the remainder is that of its dividend.

    It may have lost terms that are a multiple of the divisor.
    """
    if not isinstance(quotient, Quotient) or not surely_equal(quotient.divisor, rest.divisor):
        return None
    found = quotient.dividend % rest.divisor
    return quotient.dividend if found is of(rest) else None


def _quotient(rest: IndexExpr, divisor: int) -> IndexExpr:
    common = divisor
    for _, coefficient in rest.terms:
        common = common_divisor(common, coefficient)
    if common > 1:
        terms = tuple((atom, value // common) for atom, value in rest.terms)
        reduced = IndexExpr(terms, rest.constant // common)
        return reduced // (divisor // common)
    for atom, coefficient in rest.terms:
        if isinstance(atom, Quotient) and surely_equal(coefficient, 1):
            # (y + x // n) // m = (n*y + x) // (n*m)
            others = (rest - of(atom)) * atom.divisor
            return (others + atom.dividend) // (atom.divisor * divisor)
    is_atom = len(rest.terms) == 1 and surely_equal(rest.terms[0][1], 1)
    if is_atom and surely_equal(rest.constant, 0):
        atom = rest.terms[0][0]
        if isinstance(atom, Remainder) and divides(divisor, atom.divisor):
            return (atom.dividend // divisor) % (atom.divisor // divisor)
    if surely_equal(rest.low // divisor, rest.high // divisor):
        return constant(rest.low // divisor)
    return IndexExpr(((Quotient(rest, divisor), 1),), 0)


def _remainder(rest: IndexExpr, divisor: int) -> IndexExpr:
    terms: list[tuple[Atom, int]] = []
    offset = rest.constant
    for atom, coefficient in rest.terms:
        if isinstance(atom, Remainder) and divides(divisor, atom.divisor * coefficient):
            # c*(x % m) and c*x agree modulo a divisor of c*m.
            terms += [(inner, coefficient * c) for inner, c in atom.dividend.terms]
            offset += coefficient * atom.dividend.constant
        else:
            terms.append((atom, coefficient))
    if len(terms) != len(rest.terms) or offset != rest.constant or tuple(terms) != rest.terms:
        return _collect(terms, offset) % divisor
    coefficients = (coefficient for _, coefficient in rest.terms)
    common = common_divisor(divisor, *coefficients, rest.constant)
    if common > 1:
        terms = [(atom, coefficient // common) for atom, coefficient in rest.terms]
        return (IndexExpr(tuple(terms), rest.constant // common) % (divisor // common)) * common
    quotient = rest.low // divisor
    if surely_equal(quotient, rest.high // divisor):
        return rest - quotient * divisor
    return IndexExpr(((Remainder(rest, divisor), 1),), 0)


def constant(value: int) -> IndexExpr:
    """The expression that is always `value`."""
    return IndexExpr((), value if type(value) is int else as_integer(value))


def axis(name: int | str, extent: int) -> IndexExpr:
    """The index of axis `name` of an iteration box; the constant 0 when the extent is 1."""
    return constant(0) if extent == 1 else of(Axis(name, extent))


def symbol(name: str, low: int = -UNBOUNDED, high: int = UNBOUNDED) -> IndexExpr:
    """A runtime integer within `low … high`."""
    return of(Symbol(name, low, high))


def lookup(operand: int, indices: Iterable[IndexExpr], bound: int) -> IndexExpr:
    """The element of index operand `operand` at `indices`, promised to be in `0 … bound-1`."""
    return of(Lookup(operand, tuple(indices), bound))


def of(atom: Atom) -> IndexExpr:
    """The expression that is one atom."""
    return IndexExpr(((atom, 1),), 0)


def substitute(
    expr: IndexExpr,
    replace: Callable[[Atom], IndexExpr | None],
    memo: dict[Atom, IndexExpr],
) -> IndexExpr:
    """`IndexExpr.substitute` with a memo that several expressions can share."""
    if not expr.terms:
        return expr
    result = constant(expr.constant)
    for atom, coefficient in expr.terms:
        new = memo.get(atom)
        if new is None:
            new = _substitute_atom(atom, replace, memo)
            memo[atom] = new
        result = result + new * coefficient
    return result


def _substitute_atom(
    atom: Atom,
    replace: Callable[[Atom], IndexExpr | None],
    memo: dict[Atom, IndexExpr],
) -> IndexExpr:
    replaced = replace(atom)
    if replaced is not None:
        return replaced
    if isinstance(atom, Quotient):
        return substitute(atom.dividend, replace, memo) // atom.divisor
    if isinstance(atom, Remainder):
        return substitute(atom.dividend, replace, memo) % atom.divisor
    if isinstance(atom, Lookup):
        indices = (substitute(index, replace, memo) for index in atom.indices)
        return lookup(atom.operand, indices, atom.bound)
    return of(atom)


def evaluate(expr: IndexExpr, value_of: Callable[[Atom], Any]) -> Any:
    """The value of `expr` when `value_of` gives the values of axes, symbols and lookups.

    Values may be integers or NumPy arrays that broadcast against each other.
    """
    total: Any = expr.constant
    for atom, coefficient in expr.terms:
        if isinstance(atom, Quotient):
            value = evaluate(atom.dividend, value_of) // atom.divisor
        elif isinstance(atom, Remainder):
            value = evaluate(atom.dividend, value_of) % atom.divisor
        else:
            value = value_of(atom)
        total = total + value * coefficient
    return total


def linear_offset(indices: Sequence[IndexExpr], shape: Sequence[int]) -> IndexExpr:
    """The row-major offset of element `indices` in an array of `shape`."""
    offset = constant(0)
    stride = 1
    for index, extent in zip(reversed(indices), reversed(shape)):
        offset = offset + index * stride
        stride *= extent
    return offset


def unravel(offset: IndexExpr, shape: Sequence[int]) -> tuple[IndexExpr, ...]:
    """The row-major indices of element number `offset` of an array of `shape`."""
    indices: list[IndexExpr] = []
    for extent in reversed(shape):
        indices.append(offset % extent if extent else constant(0))
        offset = offset // extent if extent else constant(0)
    return tuple(reversed(indices))


def are_digits(terms: Iterable[tuple[Atom, int]]) -> bool:
    """Whether the value of each atom follows from the sum: the smaller ones never add up to the
    step of a larger one."""
    span = 0
    for atom, coefficient in sorted(terms, key=lambda term: abs(hint_of(term[1]))):
        if not surely_less(span, abs(coefficient)):
            return False
        span += abs(coefficient) * (atom.high - atom.low)
    return True
