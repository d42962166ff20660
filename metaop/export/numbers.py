"""Integers and real numbers computed from the sizes of named axes, as plain data.

A number is written as itself. One that depends on sizes is a reference: the name of an axis, or
`#k` for entry k of a table. An entry is `[operator, operand, …]`, whose operands are numbers and
references to axes or to earlier entries.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from metaop.serialization.damage import Damage
from metaop.unified_graph.shape_env import ShapeEnv
from metaop.unified_graph.symbolic import SymFloat, SymInt, as_float, is_symbolic, maximum

# The upper bound of all counts in a program, so that offsets fit into 64 bits.
LARGEST = 1 << 48
_LONGEST_SUM = 1 << 12


class UnboundError(Exception):
    """Raised if a number depends on a symbol that no axis represents."""


class NumberWriter:
    """Gives references to numbers. `names` has the reference of each symbol, by its text."""

    def __init__(self, env: ShapeEnv | None, names: Mapping[str, Any]) -> None:
        self.entries: list[list[Any]] = []
        self._env, self.names = env, names
        self._known: dict[str, str] = {}
        self._atoms: dict[int, Any] = {}

    def reference(self, value: Any) -> Any:
        """The representation of a number in the file."""
        if isinstance(value, SymInt):
            return self._sum(value)
        if isinstance(value, SymFloat):
            return self._real(value)
        if not isinstance(value, (bool, int, float)):
            raise TypeError(f"{value!r} is not a number")
        return value

    def entry(self, name: str, *operands: Any) -> str:
        """The reference of an entry; equal entries are written once."""
        key = repr((name, operands))
        if key not in self._known:
            self._known[key] = f"#{len(self.entries)}"
            self.entries.append([name, *operands])
        return self._known[key]

    def _sum(self, value: SymInt) -> Any:
        if value.is_atom:
            return self._atom(value.terms[0][0][0])
        terms = [[factor, *map(self._atom, monomial)] for monomial, factor in value.terms]
        return self.entry("sum", *terms)

    def _atom(self, number: int) -> Any:
        found = self._atoms.get(number)
        if found is None:
            assert self._env is not None
            name, operands = self._env.atoms[number]
            if operands:
                found = self.entry(name, *map(self.reference, operands))
            else:
                found = self._symbol(name)
            self._atoms[number] = found
        return found

    def _symbol(self, name: str) -> Any:
        if name not in self.names:
            raise UnboundError(name)
        return self.names[name]

    def _real(self, value: SymFloat) -> Any:
        if value.operator == "symbol":
            return self._symbol(value.operands[0])
        return self.entry(value.operator, *map(self.reference, value.operands))


def _quotient(left: Any, right: Any) -> Any:
    _check_divisor(right)
    return left // right


def _remainder(left: Any, right: Any) -> Any:
    _check_divisor(right)
    return left % right


def _check_divisor(divisor: Any) -> None:
    if divisor <= 0:
        raise ValueError(f"a divisor is {divisor}")


def _largest(*values: Any) -> Any:
    return maximum(values)


_INTEGER = {"//": _quotient, "%": _remainder, "max": _largest}
_ROUNDING = {"ceil": math.ceil, "floor": math.floor}
_REAL: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "**": operator.pow,
}


class Numbers:
    """The values of references for the sizes of axes by name. Raises Damage for invalid ones.

    The values are symbolic if sizes are.
    """

    def __init__(self, entries: Sequence[Any], sizes: Mapping[str, Any]) -> None:
        self._sizes, self._values = sizes, []  # type: ignore[var-annotated]
        for position, entry in enumerate(entries):
            try:
                self._values.append(_bounded(self._computed(entry)))
            except (ValueError, ArithmeticError, TypeError) as error:
                raise Damage(f"its number #{position} cannot be computed ({error})") from None

    def integer(self, reference: Any, low: int = 0, high: int = LARGEST) -> Any:
        """An integer within `low … high`."""
        value = self.value(reference)
        if type(value) is not int and not isinstance(value, SymInt):
            raise Damage(f"{_shown(reference)} stands where an integer has to be")
        if type(value) is int and not low <= value <= high:
            raise Damage(f"the integer {value} is none of {low} to {high}")
        return value

    def signed(self, reference: Any) -> Any:
        """An integer of either sign."""
        return self.integer(reference, -LARGEST)

    def integers(self, references: Any, low: int = 0) -> tuple[Any, ...]:
        """A list of integers."""
        if not isinstance(references, list):
            raise Damage(f"{_shown(references)} stands where a list of integers has to be")
        return tuple([self.integer(one, low) for one in references])

    def real(self, reference: Any) -> Any:
        """A real number."""
        value = self.value(reference)
        if type(value) is bool:
            raise Damage("a truth value stands where a number has to be")
        return value if isinstance(value, SymFloat) else as_float(value)

    def value(self, reference: Any) -> Any:
        """A number of either kind."""
        if type(reference) in (int, float):
            return _bounded(reference)
        if isinstance(reference, str):
            if reference in self._sizes:
                return self._sizes[reference]
            number = reference.removeprefix("#")
            if reference[:1] == "#" and number.isascii() and number.isdigit():
                if len(number) < 9 and int(number) < len(self._values):
                    return self._values[int(number)]
        raise Damage(f"{_shown(reference)} is not a number that is known here")

    def _computed(self, entry: Any) -> Any:
        if not isinstance(entry, list) or not entry or not isinstance(entry[0], str):
            raise Damage(f"{_shown(entry)} is not an entry of its numbers")
        name, *operands = entry
        if len(operands) > _LONGEST_SUM:
            raise Damage("one of its numbers has too many operands")
        if name == "sum":
            return sum([self._product(term) for term in operands])
        if name in _INTEGER and (len(operands) == 2 or (name == "max" and operands)):
            return _INTEGER[name](*[self.signed(one) for one in operands])
        if name == "real" and len(operands) == 1:
            return as_float(self.signed(operands[0]))
        if name in _ROUNDING and len(operands) == 1:
            return _ROUNDING[name](self.real(operands[0]))
        if name in _REAL and len(operands) == 2:
            return _REAL[name](*map(self.real, operands))
        raise Damage(f"its numbers have the unknown operator {name!r} of {len(operands)} operands")

    def _product(self, term: Any) -> Any:
        if not isinstance(term, list) or not 0 < len(term) <= 16:
            raise Damage(f"{_shown(term)} is not a product")
        return math.prod([self.signed(one) for one in term])


def _bounded(value: Any) -> Any:
    if is_symbolic(value):
        return value
    if type(value) not in (int, float) or value != value:
        raise Damage(f"{_shown(value)} is not a real number")
    if type(value) is int and abs(value) > LARGEST:
        raise Damage("one of its numbers is too large")
    return value


def _shown(value: Any) -> str:
    """Formats a value for a message, however large it is."""
    text = repr(value)
    return text if len(text) < 60 else text[:57] + "..."
