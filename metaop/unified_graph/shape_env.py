"""The symbols of one program: arithmetic of symbolic integers, proofs and guards."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from typing import Any, NamedTuple

from metaop.unified_graph.symbolic import (
    Monomial,
    SymFloat,
    SymInt,
    Terms,
    bits_of,
    hint_of,
    text_of,
)

# No value of a program is larger than this.
_HUGE = 1 << 62
# The negation of a guard's relation, for its text.
_NEGATIONS = {"<": ">=", "==": "!="}


class _Atom(NamedTuple):
    """A symbol (`operator` is its name), or a function of integers that is not a polynomial."""

    operator: str
    operands: tuple[SymInt | int, ...]


class Guard(NamedTuple):
    """The condition `value < 0`, `value == 0`, or that a real `value` is less than zero."""

    value: SymInt | SymFloat
    relation: str
    holds: bool

    def text(self, names: dict[int, str] | None = None) -> str:
        """The condition as Python text."""
        relation = self.relation if self.holds else _NEGATIONS[self.relation]
        return f"{text_of(self.value, names)} {relation} 0"

    def __repr__(self) -> str:
        return self.text()


class ShapeEnv:
    """The symbols of one program, and the guards recorded while it was compiled.

    `pins` says for every symbol that was used as a plain integer where that happened. A program
    that `may_narrow` can have guards that only make it faster: other sizes get another program.
    Once its graph `is_scheduled`, sizes are equal only if they provably are: what a schedule does
    for unequal sizes is right for equal ones too.
    """

    def __init__(self, may_narrow: bool = True) -> None:
        self.may_narrow = may_narrow
        self.is_scheduled = False
        self.guards: list[Guard] = []
        self.pins: list[tuple[SymInt, str]] = []
        # Differences that were taken to be nonzero without a guard.
        self.apart: dict[SymInt, None] = {}
        self.symbols: list[SymInt | SymFloat] = []
        self.atoms: list[_Atom] = []
        # Atoms that are variables of a running program, or depend on them.
        self.running: set[int] = set()
        self._bounds: dict[str, tuple[int, int]] = {}
        self._hints: list[int] = []
        self._lows: list[int] = []
        self._highs: list[int] = []
        self._numbers: dict[_Atom, int] = {}
        self._table: dict[Terms, SymInt] = {}
        self._memo: dict[tuple[str, SymInt, SymInt | int], Any] = {}
        self._answers: dict[tuple[SymInt, str], bool] = {}
        # What follows from the bounds as they are: forgotten when they narrow.
        self._proofs: dict[tuple[SymInt, str], bool] = {}
        self._real_answers: dict[SymFloat, bool] = {}

    def symbol(self, hint: int, low: int = 2, high: int = _HUGE) -> SymInt:
        """A new symbol that lies in `low … high`."""
        self._bounds[f"s{len(self.symbols)}"] = low, high
        found = self._atom(f"s{len(self.symbols)}", (), hint)
        assert isinstance(found, SymInt)
        self.symbols.append(found)
        return found

    def real_symbol(self, hint: float) -> SymFloat:
        """A new symbol that is a real number."""
        found = SymFloat(self, ("symbol", f"s{len(self.symbols)}"), hint)
        self.symbols.append(found)
        return found

    def variable(self, name: str, low: int, high: int | None) -> SymInt | int:
        """A number that varies from `low` to `high` during a run, so no guard may use it."""
        key = f"{name} {low} {high}"
        self._bounds[key] = low, _HUGE if high is None else high
        found = self._atom(key, (), low)
        if isinstance(found, SymInt):
            self.running.update(found.terms[0][0])
        return found

    def assume_at_least(self, value: SymInt, least: int) -> None:
        """Assumes a lower bound of the extent of a tensor, without a guard."""
        if not self.is_proved(value - least, ">="):
            self._learn(value - least, "<", False)

    def largest(self, values: Sequence[SymInt | int]) -> SymInt | int:
        """The largest of the values, without a guard; provably smaller ones are left out."""
        kept: list[SymInt | int] = []
        for value in values:
            if any(self.is_proved(other - value, ">=") for other in kept):
                continue
            kept = [other for other in kept if not self.is_proved(value - other, ">=")]
            kept.append(value)
        return kept[0] if len(kept) == 1 else self.greatest(kept)

    def greatest(self, values: Sequence[SymInt | int]) -> SymInt | int:
        """The largest of the values, without a guard and without asking which may be left out."""
        return self._atom("max", tuple(values), max(map(hint_of, values)))

    def _atom(self, operator: str, operands: tuple[SymInt | int, ...], hint: int) -> SymInt | int:
        atom = _Atom(operator, operands)
        low, high = self._range(atom)
        if low == high:
            return low
        number = self._numbers.get(atom)
        if number is None:
            number = self._numbers[atom] = len(self.atoms)
            self.atoms.append(atom)
            if any(self.is_running(operand) for operand in operands):
                self.running.add(number)
            self._hints.append(hint)
            self._lows.append(low)
            self._highs.append(high)
        return self._made({(number,): 1})

    def is_running(self, operand: object) -> bool:
        """Whether a value depends on a variable of a running program."""
        terms = operand.terms if isinstance(operand, SymInt) else ()
        return any(not self.running.isdisjoint(monomial) for monomial, _ in terms)

    def _range(self, atom: _Atom) -> tuple[int, int]:
        """The range of an atom that follows from the ranges of its operands."""
        operator, operands = atom
        if not operands:
            return self._bounds[operator]
        if operator == "max":
            return max(map(self._low_of, operands)), max(map(self._high_of, operands))
        if operator not in ("//", "%"):
            return -_HUGE, _HUGE
        left, right = operands
        least, most = self._low_of(right), self._high_of(right)
        low, high = self._low_of(left), self._high_of(left)
        if least <= 0:
            return -_HUGE, _HUGE
        if operator == "%":
            return 0, most - 1
        return min(low // least, low // most), max(high // least, high // most)

    def _made(self, sums: dict[Monomial, int]) -> SymInt | int:
        terms = tuple(sorted([term for term in sums.items() if term[1]]))
        if not terms:
            return 0
        if len(terms) == 1 and terms[0][0] == ():
            return terms[0][1]
        found = self._table.get(terms)
        if found is None:
            hint = 0
            for monomial, coefficient in terms:
                for number in monomial:
                    coefficient *= self._hints[number]
                hint += coefficient
            found = self._table[terms] = SymInt(self, terms, hint)
        return found

    def rounded(self, name: str, value: SymFloat, hint: int) -> SymInt | int:
        """A real number rounded to an integer."""
        return self._atom(name, (value,), hint)  # type: ignore[arg-type]

    def bits(self, value: SymFloat) -> SymInt | int:
        """The bits of a real number."""
        return self._atom("bits", (value,), bits_of(value.hint))  # type: ignore[arg-type]

    def product(self, monomial: Monomial, coefficient: int) -> SymInt | int:
        """A single monomial."""
        return self._made({monomial: coefficient})

    # --- arithmetic -------------------------------------------------------------------------

    def add(self, left: SymInt, right: SymInt | int) -> SymInt | int:
        if type(right) is int:
            if not right:
                return left
            sums = dict(left.terms)
            sums[()] = sums.get((), 0) + right
            return self._made(sums)
        key = ("+", left, right)
        found = self._memo.get(key)
        if found is None:
            sums = dict(left.terms)
            for monomial, coefficient in right.terms:  # type: ignore[union-attr]
                sums[monomial] = sums.get(monomial, 0) + coefficient
            found = self._memo[key] = self._made(sums)
        return found

    def multiply(self, left: SymInt, right: SymInt | int) -> SymInt | int:
        if type(right) is int:
            if right == 1:
                return left
            return self._made({monomial: c * right for monomial, c in left.terms})
        key = ("*", left, right)
        found = self._memo.get(key)
        if found is None:
            sums: dict[Monomial, int] = {}
            for one, c in left.terms:
                for two, d in right.terms:  # type: ignore[union-attr]
                    monomial = tuple(sorted(one + two))
                    sums[monomial] = sums.get(monomial, 0) + c * d
            found = self._memo[key] = self._made(sums)
        return found

    def divide(self, left: SymInt | int, right: SymInt | int) -> tuple[Any, Any]:
        """Quotient and remainder, rounded down."""
        if type(right) is int and right == 1:
            return left, 0
        key = ("//", left, right)
        found = self._memo.get(key)  # type: ignore[arg-type]
        if found is None:
            found = self._memo[key] = self._divided(left, right)  # type: ignore[index]
        return found

    def _divided(self, left: SymInt | int, right: SymInt | int) -> tuple[Any, Any]:
        if right == 0:
            raise ZeroDivisionError("integer division or modulo by zero")
        whole, rest = self._multiples(left, right)
        if type(rest) is int and rest == 0:
            return whole, 0
        if type(rest) is int and type(right) is int:
            return whole + rest // right, rest % right
        for shift in (0, 1):
            moved = rest + right if shift else rest
            if self.is_proved(moved, ">=") and self.is_proved(moved - right, "<"):
                return whole - shift, moved
        is_falling = type(rest) is not int and max(rest.terms, key=_degree)[1] < 0
        if is_falling and self._low_of(right) > 0:
            # One form for both ways to round up: `-(-n // d)` and `1 + (n - 1) // d`.
            quotient, remainder = self.divide(-1 - rest, right)
            return whole - 1 - quotient, right - 1 - remainder
        hint, over = divmod(hint_of(rest), hint_of(right))
        operands = (rest, right)
        return whole + self._atom("//", operands, hint), self._atom("%", operands, over)

    def _multiples(self, left: SymInt | int, right: SymInt | int) -> tuple[Any, Any]:
        """`left = whole * right + rest`, with the whole found by dividing term by term."""
        if type(left) is int:
            return (divmod(left, right)) if type(right) is int else (0, left)
        sums: dict[Monomial, int] = {}
        rests: dict[Monomial, int] = {}
        if type(right) is int or len(right.terms) == 1:  # type: ignore[union-attr]
            divisor, factor = ((), right) if type(right) is int else right.terms[0]  # type: ignore
            for monomial, c in left.terms:  # type: ignore[union-attr]
                without = _without(monomial, divisor)
                if without is None or (c % factor and monomial):
                    rests[monomial] = c
                else:
                    sums[without], rests[monomial] = divmod(c, factor)
            return self._made(sums), self._made(rests)
        whole, rest, steps = 0, left, 0
        # Long division by the leading term.
        divisor, factor = max(right.terms, key=_degree)  # type: ignore[union-attr]
        while type(rest) is not int and steps < 8:
            steps += 1
            without, c = None, 0
            for monomial, c in sorted(rest.terms, key=_degree, reverse=True):  # type: ignore[union-attr]
                without = _without(monomial, divisor)
                if without is not None and c % factor == 0:
                    break
                without = None
            if without is None:
                break
            part = self._made({without: c // factor})
            whole, rest = whole + part, rest - part * right  # type: ignore[operator]
        return whole, rest

    # --- what is known ----------------------------------------------------------------------

    def _low_of(self, value: SymInt | int) -> int:
        return value if type(value) is int else self._bound(value.terms, True)  # type: ignore

    def _high_of(self, value: SymInt | int) -> int:
        return value if type(value) is int else self._bound(value.terms, False)  # type: ignore

    def _bound(self, terms: Terms, is_low: bool) -> int:
        total = 0
        for monomial, coefficient in terms:
            low = high = 1
            for number in monomial:
                ends = [
                    a * b for a in (low, high) for b in (self._lows[number], self._highs[number])
                ]
                low, high = max(min(ends), -_HUGE), min(max(ends), _HUGE)
            total += coefficient * (low if (coefficient > 0) == is_low else high)
        return max(min(total, _HUGE), -_HUGE)

    def is_proved(self, value: SymInt | int, relation: str) -> bool:
        """Whether a value is provably `< 0`, or provably `>= 0`."""
        if type(value) is int:
            return value < 0 if relation == "<" else value >= 0
        found = self._proofs.get((value, relation))  # type: ignore[arg-type]
        if found is None:
            natural = -value - 1 if relation == "<" else value
            found = (
                self._low_of(natural) >= 0
                or self._is_natural(natural)
                or self._is_natural(self._without_quotients(natural))
            )
            self._proofs[value, relation] = found  # type: ignore[index]
        return found

    def _without_quotients(self, value: SymInt | int) -> SymInt | int:
        """The same value with `d * (n // d)` as `n - n % d`, whose remainder has tight bounds."""
        total: SymInt | int = 0
        for monomial, coefficient in () if type(value) is int else value.terms:  # type: ignore
            part: SymInt | int | None = None
            for number in monomial:
                operator, operands = self.atoms[number]
                if operator == "//" and type(operands[1]) is int and not coefficient % operands[1]:
                    rest = _without(monomial, (number,))
                    assert rest is not None
                    part = self._made({rest: coefficient // operands[1]})
                    part *= operands[0] - operands[0] % operands[1]
                    break
            total += self._made({monomial: coefficient}) if part is None else part
        return total

    def _is_natural(self, value: SymInt | int) -> bool:
        """Whether all coefficients are non-negative in terms of distances from bounds.

        An added atom counts up from its lower bound, a subtracted one down from its upper bound.
        """
        if type(value) is int:
            return value >= 0
        sums: dict[Monomial, int] = {}
        added = {number for monomial, c in value.terms if c > 0 for number in monomial}  # type: ignore
        for monomial, coefficient in value.terms:  # type: ignore[union-attr]
            if len(monomial) > 8:
                return False
            parts: dict[Monomial, int] = {(): coefficient}
            for number in monomial:
                bound, sign = self._lows[number], 1
                if number not in added:
                    bound, sign = self._highs[number], -1
                if abs(bound) >= _HUGE:
                    return False
                grown: dict[Monomial, int] = {}
                for part, c in parts.items():
                    longer = tuple(sorted((*part, number)))
                    grown[longer] = grown.get(longer, 0) + c * sign
                    grown[part] = grown.get(part, 0) + c * bound
                parts = grown
            for part, c in parts.items():
                sums[part] = sums.get(part, 0) + c
        return all(c >= 0 for c in sums.values())

    def is_negative(self, value: SymInt | int) -> bool:
        """Whether a value is less than zero: by proof, or by its hint with a guard."""
        if type(value) is int:
            return value < 0
        key = (value, "<")
        found = self._answers.get(key)  # type: ignore[arg-type]
        if found is None:
            if self.is_proved(value, "<"):
                found = True
            elif self.is_proved(value, ">="):
                found = False
            else:
                found = value.hint < 0  # type: ignore[union-attr]
                self._keep(value, "<", found)  # type: ignore[arg-type]
            self._answers[key] = found  # type: ignore[index]
        return found

    def is_zero(self, value: SymInt | int) -> bool:
        """Whether a value is zero: by proof, or by its hint with a guard."""
        if type(value) is int:
            return value == 0
        key = (value, "==")
        found = self._answers.get(key)  # type: ignore[arg-type]
        if found is None:
            if self.is_proved(value, "<") or self.is_proved(value - 1, ">="):  # type: ignore
                found = False
            else:
                found = value.hint == 0  # type: ignore[union-attr]
                self._keep(value, "==", found)  # type: ignore[arg-type]
            self._answers[key] = found  # type: ignore[index]
        return found

    def is_surely_zero(self, value: SymInt | int) -> bool:
        """Whether a value is zero for all sizes, by proof or a guard so far; records no guard."""
        guarded = self._answers.get((value, "==")) or self._answers.get((-value, "=="))  # type: ignore
        return bool(guarded) or (self.is_proved(value, ">=") and self.is_proved(-value, ">="))

    def tell_apart(self, difference: SymInt | int) -> bool:
        """Takes a difference to be nonzero: returns False, and records no guard.

        The program then also holds if the difference is zero, but one compiled for that case may be
        simpler.
        """
        if isinstance(difference, SymInt):
            self.apart[difference] = None
        return False

    def is_negative_real(self, value: SymFloat) -> bool:
        """Whether a real value is less than zero, by its hint with a guard."""
        found = self._real_answers.get(value)
        if found is None:
            found = self._real_answers[value] = value.hint < 0
            self.guards.append(Guard(value, "<", found))
        return found

    def _keep(self, value: SymInt, relation: str, holds: bool) -> None:
        self.guards.append(Guard(value, relation, holds))
        self._learn(value, relation, holds)

    def _learn(self, value: SymInt | int, relation: str, holds: bool) -> None:
        """Narrows the bounds of an atom by a guard on a linear function of it alone."""
        if type(value) is int:
            return
        rest = [term for term in value.terms if term[0]]  # type: ignore[union-attr]
        if len(rest) != 1 or len(rest[0][0]) != 1:
            return
        ((number,), factor) = rest[0]
        constant = dict(value.terms).get((), 0)  # type: ignore[union-attr]
        if relation == "==":
            place = -constant // factor
            if holds:
                self._lows[number] = self._highs[number] = place
            elif place == self._lows[number]:
                self._lows[number] += 1
            self._propagate()
            return
        # factor * atom + constant < 0, or >= 0.
        if factor < 0:
            factor, constant, holds = -factor, -constant - 1, not holds
        if holds:
            self._highs[number] = min(self._highs[number], (-constant - 1) // factor)
        else:
            self._lows[number] = max(self._lows[number], -(constant // factor))
        self._propagate()

    def _propagate(self) -> None:
        """Narrows the bounds of atoms one of whose operands now has narrower bounds."""
        self._proofs.clear()
        for number, atom in enumerate(self.atoms):
            if atom.operands:
                low, high = self._range(atom)
                self._lows[number] = max(self._lows[number], low)
                self._highs[number] = min(self._highs[number], high)

    def pin(self, value: SymInt) -> int:
        """The hint of a value that is used as a plain integer, with a guard that they are equal."""
        if not self.is_zero(value - value.hint):
            raise AssertionError("a value differs from its hint")
        frame = traceback.extract_stack(limit=4)[:-2]
        self.pins.append((value, " < ".join(f"{f.filename}:{f.lineno}" for f in reversed(frame))))
        return value.hint


def _without(monomial: Monomial, divisor: Monomial) -> Monomial | None:
    """The monomial divided by another, or None if the quotient is not a monomial."""
    if not divisor:
        return monomial
    left = list(monomial)
    for number in divisor:
        if number not in left:
            return None
        left.remove(number)
    return tuple(left)


def _degree(term: tuple[Monomial, int]) -> tuple[int, Monomial]:
    return len(term[0]), term[0]
