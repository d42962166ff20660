"""Expressions of a kernel: from the syntax tree to indices, tests and typed values."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from metaop.kernels.carried import Cell
from metaop.kernels.memory import Memories, Memory, Place
from metaop.kernels.values import (
    UNBOUNDED,
    Index,
    Test,
    Value,
    applied,
    as_value,
    at_least,
    constant,
    divided,
    equal,
    plus,
    selected,
    times,
    truth,
)
from metaop.unified_graph.dtype import DType
from metaop.unified_graph.symbolic import SymInt

_BINARY: dict[type[ast.AST], tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Add: ("add", operator.add),
    ast.Sub: ("sub", operator.sub),
    ast.Mult: ("mul", operator.mul),
    ast.Div: ("div", operator.truediv),
    ast.FloorDiv: ("floor_divide", operator.floordiv),
    ast.Mod: ("remainder", operator.mod),
    ast.Pow: ("pow", operator.pow),
    ast.BitAnd: ("bitwise_and", operator.and_),
    ast.BitOr: ("bitwise_or", operator.or_),
    ast.BitXor: ("bitwise_xor", operator.xor),
    ast.LShift: ("left_shift", operator.lshift),
    ast.RShift: ("right_shift", operator.rshift),
}
_COMPARISONS: dict[type[ast.AST], tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Lt: ("lt", operator.lt),
    ast.LtE: ("le", operator.le),
    ast.Gt: ("gt", operator.gt),
    ast.GtE: ("ge", operator.ge),
    ast.Eq: ("eq", operator.eq),
    ast.NotEq: ("ne", operator.ne),
}


class Expressions(Memories):
    """Translates expressions; `visit` returns an index, a test, a value, or a known object."""

    def visit(self, node: ast.expr) -> Any:
        """The meaning of an expression."""
        method = getattr(self, f"_{type(node).__name__.lower()}", None)
        if method is None:
            raise self.error(
                f"{phrase(node)} has no meaning in a kernel",
                node,
                "use numbers, names, elements, arithmetic, comparisons and function calls",
            )
        return method(node)

    def number_of(self, node: ast.expr) -> Any:
        """The meaning of an expression that must be a number."""
        item = self.visit(node)
        if not isinstance(item, (Index, Test, Value, bool, float)):
            raise self.error(f"{phrase(node)} is not a number", node, "name one of its elements")
        return item

    def known_integer(self, node: ast.expr) -> int:
        """The value of an expression that must be an integer known at translation time."""
        item = self.visit(node)
        number = item.constant if isinstance(item, Index) else None
        if number is None:
            raise self.error(
                f"{phrase(node)} must be an integer that is known before the kernel runs",
                node,
                "use sizes of the parameters and Python integers",
            )
        return number

    def apply(self, node: ast.AST, function: str, *operands: Any) -> Value:
        """Applies a table function; errors name the line."""
        try:
            return applied(function, *operands)
        except TypeError as error:
            raise self.error(str(error), node, "convert operands with cast()") from None

    # --- names and constants ----------------------------------------------------------------------

    def _name(self, node: ast.Name) -> Any:
        name = node.id
        if name in self.names:
            item = self.names[name]
            if isinstance(item, Cell):
                return self.load(item.place)._replace(weak=item.weak)
            if isinstance(item, Memory) and item.buffer.is_number:
                return self.load(_place(item))._replace(weak=True)
            return item
        if name in self.lost:
            raise self.error(f"{name} has no value here: {self.lost[name]}", node, _KEEP)
        try:
            return self.known(self.source.lookup(name))
        except KeyError:
            raise self.error(f"{name} is not defined", node, "give it a value first") from None

    def known(self, item: Any) -> Any:
        """Converts a Python object for use in the kernel; functions, modules and types stay."""
        if isinstance(item, (bool, float, DType, str)) or item is None:
            return item
        if isinstance(item, SymInt):
            return constant(item)  # type: ignore[arg-type]
        if isinstance(item, (int, np.integer)):
            return constant(int(item))
        if isinstance(item, np.floating):
            return float(item)
        return tuple(map(self.known, item)) if type(item) in (tuple, list) else item

    def _constant(self, node: ast.Constant) -> Any:
        if isinstance(node.value, (complex, bytes)):
            raise self.error("kernels have no complex numbers or bytes", node, "use floats")
        return self.known(node.value)

    def _tuple(self, node: ast.Tuple) -> tuple[Any, ...]:
        return tuple(map(self.visit, node.elts))

    _list = _tuple

    def _attribute(self, node: ast.Attribute) -> Any:
        base = self.visit(node.value)
        if isinstance(base, Memory):
            known = {
                "shape": tuple(map(constant, base.shape)),
                "dtype": base.buffer.dtype,
                "ndim": constant(len(base.shape)),
            }
            if node.attr in known:
                return known[node.attr]
            raise self.error(
                f"parameters have no {node.attr} in a kernel", node, "use .shape, .dtype or .ndim"
            )
        if isinstance(base, ModuleType) and hasattr(base, node.attr):
            return self.known(getattr(base, node.attr))
        raise self.error(f"{phrase(node)} is not known", node, "use names of modules and .shape")

    # --- elements ---------------------------------------------------------------------------------

    def _subscript(self, node: ast.Subscript) -> Any:
        base = self.visit(node.value)
        if type(base) is tuple:
            position = self.known_integer(node.slice)
            if not -len(base) <= position < len(base):
                raise self.error(f"a tuple of {len(base)} has no element {position}", node, "")
            return base[position]
        part = self.view(base, node)
        return part if part.shape else self.load(_place(part))

    def element(self, node: ast.Subscript) -> Place:
        """The element that a subscript selects."""
        part = self.view(self.visit(node.value), node)
        if part.shape:
            raise self.error(
                f"{phrase(node)} names {list(part.shape)} elements, not one",
                node,
                "give an index for every dimension, or use copy() and fill()",
            )
        return _place(part)

    def view(self, base: Any, node: ast.Subscript) -> Memory:
        """The part of a memory that a subscript selects."""
        if not isinstance(base, Memory):
            raise self.error(f"{phrase(node.value)} has no elements", node, "index a parameter")
        items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if len(items) > len(base.shape):
            raise self.error(
                f"{len(items)} indices for {len(base.shape)} dimensions", node, "drop some"
            )
        return self._sliced(base, items, node)

    def _sliced(self, base: Memory, items: Sequence[ast.expr], node: ast.AST) -> Memory:
        """Fixes dimensions and narrows those that are sliced, from left to right."""
        kept: list[tuple[int, int]] = []
        for item in items:
            extent, stride = base.shape[0], base.strides[0]
            if isinstance(item, ast.Slice):
                start, length = self._run(item, extent)
                last = plus(start, constant(max(length - 1, 0)))
                outer = base.conditions
                for end in (start, last) if length else ():
                    # If both ends are inside, so is everything between them.
                    outer += self._conditions_for(base, end, node)
                offset = plus(base.offset, times(start, stride))
                base = base._replace(
                    offset=offset,
                    shape=base.shape[1:],
                    strides=base.strides[1:],
                    conditions=outer,
                )
                kept.append((length, stride))
            else:
                base = self.part(base, [self.index(self.visit(item), item)], node)
        lengths, strides = zip(*kept) if kept else ((), ())
        return base._replace(shape=(*lengths, *base.shape), strides=(*strides, *base.strides))

    def _conditions_for(self, base: Memory, index: Index, node: ast.AST) -> tuple[Any, ...]:
        one = self.part(base._replace(conditions=()), [index], node)
        if one.offset != plus(base.offset, times(index, base.strides[0])):
            raise self.error(
                "the start of a slice is known only when the kernel runs",
                node,
                "copy its elements one by one",
            )
        return one.conditions

    def _run(self, item: ast.Slice, extent: int) -> tuple[Index, int]:
        """The start of a slice and its length, which must be known."""
        if item.step is not None:
            raise self.error("slices in kernels have no step", item, "loop over the elements")
        start = self.index(self.visit(item.lower), item) if item.lower else constant(0)
        stop = self.index(self.visit(item.upper), item) if item.upper else constant(extent)
        length = plus(stop, start, -1).constant
        if length is None or length < 0:
            raise self.error(
                "the length of a slice must be known before the kernel runs",
                item,
                "write x[i : i + 16] with a constant",
            )
        return start, length

    # --- operators --------------------------------------------------------------------------------

    def _binop(self, node: ast.BinOp) -> Any:
        left, right = self.number_of(node.left), self.number_of(node.right)
        return self.binary(type(node.op), left, right, node)

    def binary(self, kind: type[ast.AST], left: Any, right: Any, node: ast.AST) -> Any:
        """An arithmetic operator."""
        if kind not in _BINARY:
            raise self.error("matrices are multiplied element by element", node, "write a loop")
        function, fold = _BINARY[kind]
        numbers = [literal(left), literal(right)]
        if None not in numbers:
            try:
                return self.known(fold(*numbers))
            except (ArithmeticError, TypeError) as error:
                raise self.error(str(error), node, "correct the constant") from None
        if isinstance(left, Index) and isinstance(right, Index):
            found = self._of_indices(kind, left, right, node)
            if found is not None:
                return found
        return self.apply(node, function, left, right)

    def _of_indices(
        self, kind: type[ast.AST], left: Index, right: Index, node: ast.AST
    ) -> Index | None:
        """Arithmetic that stays an index, if possible a sum of loop variables; otherwise None."""
        if kind in (ast.Add, ast.Sub):
            return plus(left, right, 1 if kind is ast.Add else -1)
        if kind is ast.Mult:
            for one, other in ((left, right), (right, left)):
                if one.constant is not None:
                    return times(other, one.constant)
            ends = [a * b for a in (left.low, left.high) for b in (right.low, right.high)]
            return self.named("mul", left, right, min(ends), max(ends), node)
        if kind in (ast.FloorDiv, ast.Mod) and right.constant is not None:
            remainder = kind is ast.Mod
            return divided(left, right.constant, remainder)
        return None

    def named(
        self, function: str, left: Index, right: Index, low: int, high: int, node: ast.AST
    ) -> Index:
        """A function of indices, as an index with a known range."""
        value = self.apply(node, function, left, right)
        found = self.index(value, node)
        return found._replace(low=max(low, -UNBOUNDED), high=min(high, UNBOUNDED))

    def _unaryop(self, node: ast.UnaryOp) -> Any:
        item = self.number_of(node.operand)
        if isinstance(node.op, ast.Not):
            return self.negated(item, node)
        number = literal(item)
        if isinstance(node.op, ast.UAdd):
            return item
        if isinstance(node.op, ast.USub):
            if number is not None:
                return self.known(-number)
            return times(item, -1) if isinstance(item, Index) else self.apply(node, "neg", item)
        return self.apply(node, "bitwise_not", item)

    def negated(self, item: Any, node: ast.AST) -> Any:
        """`not item`."""
        number = literal(item)
        if number is not None:
            return not number
        return self.apply(node, "logical_not", truth(as_value(item)))

    def _compare(self, node: ast.Compare) -> Any:
        items = [self.number_of(one) for one in (node.left, *node.comparators)]
        result: Any = True
        for kind, left, right in zip(node.ops, items, items[1:]):
            result = self._both(result, self._compared(type(kind), left, right, node), node)
        return result

    def _compared(self, kind: type[ast.AST], left: Any, right: Any, node: ast.AST) -> Any:
        if kind not in _COMPARISONS:
            raise self.error("`in` and `is` have no meaning in a kernel", node, "use ==")
        function, fold = _COMPARISONS[kind]
        numbers = [literal(left), literal(right)]
        if None not in numbers:
            return bool(fold(*numbers))
        if isinstance(left, Index) and isinstance(right, Index):
            if kind in (ast.Gt, ast.GtE):
                return at_least(plus(left, right, -1), int(kind is ast.Gt))
            if kind in (ast.Lt, ast.LtE):
                return at_least(plus(right, left, -1), int(kind is ast.Lt))
            if kind is ast.Eq:
                return equal(left, right)
        return self.apply(node, function, left, right)

    def _both(self, left: Any, right: Any, node: ast.AST) -> Any:
        if left is False or right is False:
            return False
        if left is True or right is True:
            return right if left is True else left
        if isinstance(left, Test) and isinstance(right, Test):
            return Test((*left.conditions, *right.conditions))
        return self.apply(node, "logical_and", truth(as_value(left)), truth(as_value(right)))

    def _boolop(self, node: ast.BoolOp) -> Any:
        is_and = isinstance(node.op, ast.And)
        result: Any = is_and
        for operand in node.values:
            if result is (not is_and):
                return result
            if result is is_and:
                result = self._truth_of(operand)
                continue
            result = self.bound(result) if isinstance(result, Value) else result
            # The right operand is evaluated only where the left one does not decide.
            with self.under(result, holds=is_and):
                item = self._truth_of(operand)
            if is_and:
                result = self._both(result, item, node)
            elif item is not False:
                pair = (truth(as_value(result)), truth(as_value(item)))
                result = self.apply(node, "logical_or", *pair)
        return result

    def _truth_of(self, node: ast.expr) -> Any:
        item = self.number_of(node)
        number = literal(item)
        return item if number is None else bool(number)

    def test(self, node: ast.expr) -> Any:
        """The meaning of a condition: True, False, a test or a value."""
        return self._truth_of(node)

    def _ifexp(self, node: ast.IfExp) -> Any:
        test = self.test(node.test)
        if isinstance(test, bool):
            return self.number_of(node.body if test else node.orelse)
        with self.under(test):
            value = self.bound(as_value(self.number_of(node.body)))
        with self.under(test, holds=False):
            otherwise = self.bound(as_value(self.number_of(node.orelse)))
        return selected(test, value, otherwise)


def _place(part: Memory) -> Place:
    return Place(part.buffer, part.offset.sum, part.conditions)


_KEEP = "compute it again here, or keep it in memory"


def literal(item: Any) -> int | float | bool | None:
    """The Python number of an item, or None if it is not constant."""
    if isinstance(item, Index):
        return item.constant
    return item if isinstance(item, (bool, float)) else None


def phrase(node: ast.AST) -> str:
    """The source text of a node, shortened."""
    text = ast.unparse(node)
    return f"`{text if len(text) <= 40 else text[:37] + '…'}`"
