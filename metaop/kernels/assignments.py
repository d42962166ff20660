"""Assignments of a kernel: to names, to elements, and to what a loop gathers or carries."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from metaop.codegen.nest import ir
from metaop.kernels.carried import Accumulating, Cell, RetypeError, gathering
from metaop.kernels.expressions import phrase
from metaop.kernels.language import word_for
from metaop.kernels.values import (
    Index,
    Test,
    Value,
    as_value,
    common_type,
    converted,
    operand_type,
)
from metaop.kernels.words import Words
from metaop.reduce.reducers import REDUCERS

# The types of operands in arithmetic.
NUMBERS = (Index, Test, Value, bool, float)


class Assignments(Words):
    """Translates assignments."""

    def run(self, body: Sequence[ast.stmt]) -> None:
        """Translates the statements of a body in order."""
        for statement in body:
            method = getattr(self, f"_do_{type(statement).__name__.lower()}", None)
            if method is None:
                raise self.error(
                    f"{phrase(statement)} has no meaning in a kernel",
                    statement,
                    "kernels have assignments, if, for loops, copies and barriers",
                )
            method(statement)

    # --- assignments ------------------------------------------------------------------------------

    def _do_assign(self, node: ast.Assign) -> None:
        if len(node.targets) > 1:
            raise self.error("one assignment has one target", node, "write two statements")
        target = node.targets[0]
        if isinstance(target, ast.Subscript):
            item = self.number_of(node.value)
            self.store(self.element(target), item, node)
            return
        if isinstance(target, ast.Name) and self._gather(node):
            return
        item = self.visit(node.value)
        if isinstance(target, ast.Name):
            self.give(target.id, item, node)
        elif isinstance(target, (ast.Tuple, ast.List)):
            self._unpack(target, item, node)
        else:
            raise self.error(f"{phrase(target)} cannot be assigned to", node, "use a name")

    def _unpack(self, target: ast.Tuple | ast.List, item: Any, node: ast.AST) -> None:
        names = [one.id if isinstance(one, ast.Name) else "" for one in target.elts]
        if type(item) is not tuple or len(item) != len(names) or "" in names:
            raise self.error(
                f"{phrase(node)} does not give {len(names)} names a value each",
                node,
                "write one assignment for each",
            )
        for name, one in zip(names, [self.settled(one) for one in item]):
            self.give(name, one, node)

    def _do_augassign(self, node: ast.AugAssign) -> None:
        if self._gather(node):
            return
        right = self.number_of(node.value)
        if isinstance(node.target, ast.Name):
            left = self.number_of(ast.Name(node.target.id, ast.Load(), lineno=node.lineno))
            self.give(node.target.id, self.binary(type(node.op), left, right, node), node)
        elif isinstance(node.target, ast.Subscript):
            place = self.element(node.target)
            self.store(place, self.binary(type(node.op), self.load(place), right, node), node)
        else:
            raise self.error(f"{phrase(node.target)} cannot be changed", node, "use a name")

    def give(self, name: str, item: Any, node: ast.AST) -> None:
        """Binds a name to a value from here on."""
        cell = self.names.get(name)
        if isinstance(cell, Cell):
            self._store_cell(cell, item, node)
            return
        self.names[name] = self.settled(item)
        self.lost.pop(name, None)

    def settled(self, item: Any) -> Any:
        return self.bound(item) if isinstance(item, Value) else item

    def _store_cell(self, cell: Cell, item: Any, node: ast.AST) -> None:
        if not isinstance(item, NUMBERS):
            raise self.error(f"{cell.name} is a number in this loop", node, "use another name")
        value = as_value(item)
        kinds = [(cell.dtype, cell.weak), (value.dtype, value.weak)]
        dtype = common_type(kinds)
        if dtype is not cell.dtype or (cell.weak and not value.weak):
            raise RetypeError(cell.name, dtype)
        self.store(cell.place, value, node)

    # --- reductions -------------------------------------------------------------------------------

    def _gather(self, node: ast.stmt) -> bool:
        """Translates a statement that is a step of a loop's reduction; False for any other."""
        step = gathering(node, self.word_or_none)
        target = self.names.get(step.name) if step else None
        if step is None or not isinstance(target, Accumulating):
            return False
        value = as_value(self.number_of(step.operand))
        self.accumulate(target, value, node, step.is_negative)
        return True

    def accumulate(
        self, target: Accumulating, value: Value, node: ast.AST, is_negative: bool = False
    ) -> None:
        """Combines a value, or its negative, into the accumulator of a loop."""
        reducer = REDUCERS[target.reducer]
        if target.dtype is None:
            kinds = [(value.dtype, value.weak)]
            if not isinstance(target.initial, Accumulating):
                initial = as_value(target.initial)
                kinds.insert(0, (initial.dtype, initial.weak))
            target.dtype = operand_type(reducer.combine, (kinds * 2)[:2])
        elif common_type([(target.dtype, False), (value.dtype, value.weak)]) is not target.dtype:
            raise self.error(
                f"one variable gathers values of {target.dtype.name} and {value.dtype.name}",
                node,
                "cast() them to one type",
            )
        expr = converted(value, target.dtype)
        if is_negative:
            expr = ir.Apply("neg", (expr,), target.dtype, target.dtype)
        if self.active:
            identity = ir.Number(reducer.identity(target.dtype), target.dtype)
            expr = ir.Choose(self.active, expr, identity, target.dtype)
        self.emit(ir.Accumulate(target.name, expr))

    def word_or_none(self, node: ast.Call) -> str | None:
        """The word that a call uses, if it uses one."""
        if not isinstance(node.func, (ast.Name, ast.Attribute)):
            return None
        if isinstance(node.func, ast.Name) and node.func.id in self.names:
            return None
        return word_for(self.visit(node.func))
