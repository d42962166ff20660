"""LLVM instructions that compute numbers derived from sizes, in the order of use."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

from metaop.unified_graph.symbolic import SymFloat, SymInt

_REAL = {"+": "fadd", "-": "fsub", "*": "fmul", "/": "fdiv"}
_SIGNED = {"<": "slt", ">=": "sge", "==": "eq", "!=": "ne"}
_ORDERED = {"<": "olt", ">=": "oge", "==": "oeq", "!=": "one"}
_OPPOSITE = {"<": ">=", "==": "!="}


class IntegerWriter:
    """Writes instructions to `lines`; `symbols` are the operands that hold symbols, by name."""

    def __init__(self, lines: list[str], symbols: Mapping[str, str]) -> None:
        self.lines, self._symbols = lines, symbols
        self._known: dict[Any, str] = {}

    def fresh(self, instruction: str) -> str:
        """The result of an instruction."""
        name = f"%n{len(self.lines)}"
        self.lines.append(f"  {name} = {instruction}")
        return name

    def integer(self, value: Any) -> str:
        """The operand, an i64, that holds an integer."""
        if not isinstance(value, SymInt):
            return str(int(value))
        found = self._known.get(value)
        if found is None:
            total = "0"
            for monomial, factor in value.terms:
                product = str(factor)
                for number in monomial:
                    product = self._two("mul", product, self._atom(value, number))
                total = self._two("add", total, product)
            found = self._known[value] = total
        return found

    def holds(self, guard: Any) -> str:
        """The operand, an i1, that is true if a guard holds."""
        relation = guard.relation if guard.holds else _OPPOSITE[guard.relation]
        if isinstance(guard.value, SymFloat):
            value = self._real(guard.value)
            return self.fresh(f"fcmp {_ORDERED[relation]} double {value}, {_literal(0.0)}")
        return self.fresh(f"icmp {_SIGNED[relation]} i64 {self.integer(guard.value)}, 0")

    def _two(self, operation: str, left: str, right: str) -> str:
        if (operation, left) in (("mul", "1"), ("add", "0")):
            return right
        return self.fresh(f"{operation} i64 {left}, {right}")

    def _atom(self, value: SymInt, number: int) -> str:
        operator, operands = value.env.atoms[number]
        key = number, id(value.env)
        if key not in self._known:
            self._known[key] = self._computed(operator, operands)
        return self._known[key]

    def _computed(self, operator: str, operands: tuple[Any, ...]) -> str:
        if not operands:
            return self._symbols[operator]
        if operator in ("ceil", "floor"):
            real = self._real(operands[0])
            rounded = self.fresh(f"call double @llvm.{operator}.f64(double {real})")
            return self.fresh(f"fptosi double {rounded} to i64")
        if operator == "bits":
            return self.fresh(f"bitcast double {self._real(operands[0])} to i64")
        values = [self.integer(one) for one in operands]
        if operator == "max":
            found = values[0]
            for value in values[1:]:
                larger = self.fresh(f"icmp sgt i64 {found}, {value}")
                found = self.fresh(f"select i1 {larger}, i64 {found}, i64 {value}")
            return found
        # Divisors are positive; Python rounds down, the processor towards zero.
        left, right = values
        rest = self.fresh(f"srem i64 {left}, {right}")
        below = self.fresh(f"icmp slt i64 {rest}, 0")
        if operator == "%":
            moved = self.fresh(f"add i64 {rest}, {right}")
            return self.fresh(f"select i1 {below}, i64 {moved}, i64 {rest}")
        quotient = self.fresh(f"sdiv i64 {left}, {right}")
        less = self.fresh(f"sub i64 {quotient}, 1")
        return self.fresh(f"select i1 {below}, i64 {less}, i64 {quotient}")

    def _real(self, value: Any) -> str:
        if not isinstance(value, SymFloat):
            return _literal(float(value))
        if value.operator == "real":
            return self.fresh(f"sitofp i64 {self.integer(value.operands[0])} to double")
        left, right = map(self._real, value.operands)
        if value.operator == "**":
            return self.fresh(f"call double @llvm.pow.f64(double {left}, double {right})")
        return self.fresh(f"{_REAL[value.operator]} double {left}, {right}")


def _literal(value: float) -> str:
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"
