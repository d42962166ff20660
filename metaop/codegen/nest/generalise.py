"""One kernel for many sizes: the integers of a nest are separated from its form.

The skeleton of a nest is the nest without its integers. Nests of one skeleton share kernels
(`caches/kernels.py`), which take the integers in which these nests differ as arguments.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Hashable, Mapping
from typing import Any

from metaop.codegen.nest.ir import (
    LONGEST_STRIDE,
    NEAR,
    WIDE,
    Accumulate,
    Ahead,
    Alloc,
    Apply,
    Argument,
    CheckedIndex,
    Choose,
    Condition,
    Expr,
    Factor,
    For,
    ForeignCall,
    IndexValue,
    Integer,
    Let,
    Load,
    LoopIndex,
    LoopNest,
    MicroKernel,
    Name,
    Number,
    Prefetch,
    QuotientIndex,
    RealArgument,
    RemainderIndex,
    SharedPanel,
    Statement,
    Store,
    Sum,
    Update,
    ValueIndex,
    WarpProduct,
    simple_statements,
)
from metaop.codegen.nest.parameters import Parameters
from metaop.unified_graph.symbolic import (
    SymFloat,
    bits_of,
    is_at_least,
    is_at_most,
    is_symbolic,
    surely_equal,
    surely_less,
)

# Serial loops with fewer iterations, the windows of pooling and convolution, keep their extents.
_WINDOW = 8
# Integers from here on are counts of elements, not factors or flags.
_LARGE = 64
# Vector loops with at most this many iterations run over the rows or columns of register tiles.
_WIDEST_TILE = 32
# Numbers that simplify the code.
_PLAIN_NUMBERS = (0.0, 1.0, -1.0, 2.0, 0.5)


def skeleton(nest: LoopNest) -> tuple[Hashable, tuple[int, ...]]:
    """The nest without its integers, and the integers in order.

    Extents, constants and coefficients of sums, divisors, bounds and sizes are taken out, and the
    bits of real numbers, because means divide by sizes. The coefficients 0, 1 and -1, those of
    lanes up to 4, numbers that make code simpler, extents of unrolled loops, extents and bounds of
    register tiles stay: they decide the form of the code. Names and grain do not belong to the
    skeleton.
    """
    walker = walked(nest)
    return tuple(walker.tokens), tuple(walker.integers)


def generalise(
    nest: LoopNest,
    varying: Collection[int],
    reals: bool = True,
    same: Mapping[int, int] | None = None,
) -> LoopNest:
    """The nest with the integers at some positions, as `skeleton` counts them, as arguments.

    Positions in `same` have the argument of an earlier one. Without `reals`, real numbers stay
    literals and do not count.
    """
    return Walker(varying, len(nest.arguments), reals, same).nest(nest)


def without_symbols(nest: LoopNest) -> LoopNest:
    """The nest with all symbolic integers as arguments."""
    integers = walked(nest).integers
    return generalise(nest, frozenset(k for k, n in enumerate(integers) if is_symbolic(n)))


def always_general(nest: LoopNest) -> frozenset[int]:
    """The positions that are arguments even in the first kernel of a family."""
    return walked(nest).general()


def walked(nest: LoopNest, reals: bool = True) -> Walker:
    """The result of one walk through a nest."""
    walker = Walker(frozenset(), len(nest.arguments), reals)
    walker.nest(nest)
    return walker


def _is_general(number: Number) -> bool:
    """Whether a number may become an argument: 1 / size, unlike those that simplify the code."""
    if isinstance(number.value, SymFloat):
        return True
    plain = number.dtype.kind != "float" or not math.isfinite(number.value)
    return not (plain or number.value in _PLAIN_NUMBERS)


class Walker(Parameters):
    """Walks through a nest once: collects tokens and integers, and rebuilds it with arguments."""

    def __init__(
        self,
        varying: Collection[int],
        arguments: int,
        takes_reals: bool,
        same: Mapping[int, int] | None = None,
    ) -> None:
        super().__init__()
        self.varying = varying
        self.same = same or {}
        self.takes_reals = takes_reals
        self.tokens: list[Hashable] = []
        self.added: list[int] = []
        self._lanes: set[Factor] = set()  # the variables of vector loops
        self._in_scratch = False  # the index at hand is one of scratch memory
        self._tells_lanes = False  # the sum at hand is divided or compared
        self._tile_rows: frozenset[Integer] = frozenset()  # of the nest's register tiles
        self._is_cheap = False  # the index at hand is computed outside of inner loops
        self._arguments = arguments
        self._names: dict[str, int] = {}
        self._seen: dict[int, tuple[int, Expr]] = {}
        self._dividends: dict[Sum, tuple[int, Sum]] = {}
        self._divisors: dict[tuple[Sum, Integer], tuple[int, Integer]] = {}
        self._numbers = itertools.count()
        self._places: dict[int, int] = {}  # of the positions that are arguments

    def nest(self, nest: LoopNest) -> LoopNest:
        for parameter in nest.parameters:
            self.tokens += (parameter.dtype.name, parameter.role, parameter.streamed)
        self.tokens.append(len(nest.arguments))
        self._tile_rows = frozenset(
            one.rows for one in simple_statements(nest.body) if isinstance(one, MicroKernel)
        )
        body = self._body(nest.body)
        arguments = (*nest.arguments, *self.added)
        return nest._replace(body=body, arguments=arguments)

    # --- integers and names -----------------------------------------------------------------

    def _integer(
        self,
        value: Integer,
        positions: set[int] | None = None,
        is_wide: bool = False,
        is_near: bool = False,
    ) -> Integer:
        """An integer of the list; its position is added to those of its kind."""
        if isinstance(value, Argument):
            self.tokens.append(("argument", value.position))
            return value
        # Kernels differ by the signs of numbers, except offsets and bits.
        is_signed = positions is self.constants or positions is self.numbers
        is_natural = surely_less(-1, value)
        sign = "#" if is_signed or is_natural else "-#"
        self.tokens.append((sign, is_wide, is_near) if is_wide or is_near else sign)
        if positions is not None:
            positions.add(len(self.integers))
        self.integers.append(value)
        here = len(self.integers) - 1
        if here in self.same:
            place = self._places[self.same[here]]
        elif here in self.varying:
            place = self._places[here] = self._arguments + len(self.added)
            self.added.append(value)
        else:
            return value
        return Argument(place, is_natural and not is_signed, is_wide, is_near)

    def _coefficient(self, value: Integer, factor: Factor) -> Integer:
        decisive = LONGEST_STRIDE if factor in self._lanes else 1
        if type(value) is int and -decisive <= value <= decisive:
            self.tokens.append(value)
            return value
        return self._stride(value)

    def _stride(
        self, value: Integer, divides: bool = False, is_wide: bool = False, is_near: bool = False
    ) -> Integer:
        if self._is_cheap or isinstance(value, Argument):
            return self._integer(value)
        if self._in_scratch:
            return self._integer(value, self.places, is_wide, is_near)
        if divides or self._tells_lanes:
            self.divided_strides.add(len(self.integers))
        return self._integer(value, self.strides, is_wide, is_near)

    def _name(self, name: str) -> str:
        self.tokens.append(self._names.setdefault(name, len(self._names)))
        return name

    # --- indices ----------------------------------------------------------------------------

    def _sum(self, index: Sum) -> Sum:
        self.tokens.append(len(index.terms))
        terms = tuple((self._factor(f), self._coefficient(c, f)) for f, c in index.terms)
        self.windowed |= self._in_scratch and not surely_equal(index.constant, 0)
        positions = self.places if self._in_scratch else self.constants
        return Sum(terms, self._integer(index.constant, positions))

    def _dividend(self, index: Sum) -> Sum:
        """One that comes again is a reference to the first: quotients and remainders of one
        dividend have the same arguments, so that the printer sees where they change together."""
        seen = self._dividends.get(index)
        if seen is None:
            result = self._sum(index)
            seen = self._dividends[index] = len(self._dividends), result
        else:
            self.tokens.append(("dividend", seen[0]))
        return seen[1]

    def _place(self, buffer: int, offset: Sum) -> Sum:
        """An offset in a buffer."""
        self._in_scratch = buffer < 0
        result = self._sum(offset)
        self._in_scratch = False
        return result

    def _cheap(self, index: Sum) -> Sum:
        """An index that is computed outside of the loops that use it."""
        self._is_cheap = True
        self.tokens.append(len(index.terms))
        terms = tuple((self._factor(f), self._integer(c)) for f, c in index.terms)
        self._is_cheap = False
        return Sum(terms, self._integer(index.constant))

    def _factor(self, factor: Factor) -> Factor:
        self.tokens.append(type(factor).__name__)
        if isinstance(factor, (LoopIndex, ValueIndex)):
            self._name(factor[0])
            return factor
        self.divided = True
        around, self._tells_lanes = self._tells_lanes, True
        dividend = self._dividend(factor.dividend)
        self._tells_lanes = around
        return type(factor)(dividend, self._divisor(factor))

    def _divisor(self, factor: QuotientIndex | RemainderIndex) -> Integer:
        """A divisor; like its dividend, one of lanes is one argument wherever both come again."""
        dividend, width = factor.dividend, factor.divisor
        if isinstance(width, Argument) or not self._varies(dividend):
            return self._stride(width, divides=True)
        seen = self._divisors.get((dividend, width))
        if seen is None:
            is_wide = self._tells_apart(dividend) and is_at_least(width, WIDE)
            divisor = self._stride(width, True, is_wide, is_at_most(width, NEAR))
            seen = self._divisors[dividend, width] = len(self._divisors), divisor
        else:
            self.tokens.append(("divisor", seen[0]))
        return seen[1]

    def _varies(self, dividend: Sum) -> bool:
        """Whether lanes have different dividends."""
        return any(
            factor in self._lanes
            or (isinstance(factor, (QuotientIndex, RemainderIndex)) and self._varies(factor[0]))
            for factor, _ in dividend.terms
        )

    def _tells_apart(self, dividend: Sum) -> bool:
        """Whether neighbouring lanes have neighbouring dividends."""
        return any(factor in self._lanes and scale == 1 for factor, scale in dividend.terms)

    def _conditions(self, conditions: tuple[Condition, ...]) -> tuple[Condition, ...]:
        self.tokens.append(len(conditions))
        return tuple(self._condition(condition) for condition in conditions)

    def _condition(self, condition: Condition) -> Condition:
        self.tokens.append(type(condition).__name__)
        around, self._tells_lanes = self._tells_lanes, True
        index = self._tested(condition.index)
        self._tells_lanes = around
        if condition[1] in self._tile_rows and self._is_lane(condition.index):
            self.tokens.append(condition[1])
            return type(condition)(index, condition[1])
        return type(condition)(index, self._integer(condition[1], self.bounds))

    def _tested(self, index: Sum) -> Sum:
        """An index in a condition. In sums, one that adds nothing to its axes is never negative."""
        if not (self.reduces and surely_equal(index.constant, 0)):
            return self._sum(index)
        self.tokens += ("plain", len(index.terms))
        terms = tuple((self._factor(f), self._coefficient(c, f)) for f, c in index.terms)
        return Sum(terms, 0)

    def _is_lane(self, index: Sum) -> bool:
        """Whether an index is a lane, whose bound may be that of a register tile."""
        (factor, scale), *others = index.terms or ((None, 0),)
        return not others and factor in self._lanes and scale == 1 and index.constant == 0

    # --- expressions ------------------------------------------------------------------------

    def _expr(self, expr: Expr) -> Expr:
        """Expressions share parts; a part that comes again is a reference to the first."""
        seen = self._seen.get(id(expr))
        if seen is not None:
            self.tokens.append(("again", seen[0]))
            return seen[1]
        self.tokens.append(type(expr).__name__)
        result = _EXPRESSIONS[type(expr)](self, expr)
        # Counted after the operands, so that an expression and its first operand differ.
        self._seen[id(expr)] = len(self._seen), result
        return result

    def _number(self, expr: Number) -> Expr:
        if self.takes_reals and _is_general(expr):
            self.tokens.append(expr.dtype.name)
            bits = self._integer(bits_of(expr.value), self.numbers)
            return RealArgument(bits, expr.dtype) if isinstance(bits, Argument) else expr
        is_count = expr.dtype.name == "int64"
        if is_count and (is_symbolic(expr.value) or abs(expr.value) >= _LARGE):
            self.tokens.append("int64")
            count = self._integer(expr.value, self.numbers)
            return IndexValue(Sum((), count)) if isinstance(count, Argument) else expr
        # 1, True and 1.0 are equal, -0.0 equals 0.0 and NaN nothing: the text tells them apart.
        self.tokens += (repr(expr.value), expr.dtype.name)
        return expr

    def _real_argument(self, expr: RealArgument) -> Expr:
        self.tokens += (expr.argument.position, expr.dtype.name)
        return expr

    def _load(self, expr: Load) -> Expr:
        self.tokens += (expr.buffer, expr.dtype.name, repr(expr.fill), expr.around)
        self.reads[expr.buffer] += 1
        if expr.conditions or not surely_equal(expr.offset.constant, 0):
            self.shifted = True
        offset = self._place(expr.buffer, expr.offset)
        return expr._replace(offset=offset, conditions=self._conditions(expr.conditions))

    def _index_value(self, expr: IndexValue) -> Expr:
        return IndexValue(self._sum(expr.index))

    def _apply(self, expr: Apply) -> Expr:
        self.tokens += (expr.function, len(expr.operands))
        self.tokens += (expr.dtype.name, expr.operand_dtype.name)
        return expr._replace(operands=tuple(self._expr(operand) for operand in expr.operands))

    def _choose(self, expr: Choose) -> Expr:
        self.tokens.append(expr.dtype.name)
        conditions = self._conditions(expr.conditions)
        return Choose(conditions, self._expr(expr.value), self._expr(expr.otherwise), expr.dtype)

    def _name_value(self, expr: Name) -> Expr:
        self._name(expr.name)
        return expr

    # --- statements -------------------------------------------------------------------------

    def _body(self, body: tuple[Statement, ...]) -> tuple[Statement, ...]:
        self.tokens.append(len(body))
        return tuple(self._statement(statement) for statement in body)

    def _statement(self, statement: Statement) -> Statement:
        self.tokens.append(type(statement).__name__)
        return _STATEMENTS[type(statement)](self, statement)

    def _let(self, statement: Let) -> Statement:
        value = statement.value
        if isinstance(value, IndexValue):
            self.tokens.append("IndexValue")
            value = IndexValue(self._cheap(value.index))
        else:
            value = self._expr(value)
        return Let(self._name(statement.name), value)

    def _accumulate(self, statement: Accumulate) -> Statement:
        value = self._expr(statement.value)
        return Accumulate(self._name(statement.name), value)

    def _checked_index(self, statement: CheckedIndex) -> Statement:
        self.tokens.append(statement.operator)
        value, bound = self._expr(statement.value), self._integer(statement.bound)
        conditions = self._conditions(statement.conditions)
        self._name(statement.name)
        return statement._replace(value=value, bound=bound, conditions=conditions)

    def _store(self, statement: Store | Update) -> Statement:
        self.tokens.append(statement.buffer)
        if isinstance(statement, Update):
            self.tokens += (statement.reducer, statement.atomic)
        value = self._expr(statement.value)
        offset = self._place(statement.buffer, statement.offset)
        conditions = self._conditions(statement.conditions)
        return statement._replace(value=value, offset=offset, conditions=conditions)

    def _prefetch(self, statement: Prefetch) -> Statement:
        self.tokens += (statement.buffer, statement.nearest)
        offset = self._place(statement.buffer, statement.offset)
        return statement._replace(offset=offset)

    def _alloc(self, statement: Alloc) -> Statement:
        self.tokens += (statement.buffer, statement.dtype.name, statement.space)
        if statement.space != "scratch":
            # The GPU's compiler allocates such memory, so its size is a literal.
            self.tokens.append(statement.elements)
            return statement
        return statement._replace(elements=self._integer(statement.elements))

    def _micro_kernel(self, statement: MicroKernel) -> Statement:
        self.tiled = True
        changed: dict[str, Any] = {}
        value: Any
        for name, value in zip(statement._fields, statement):
            if name == "depth" and not value.terms:
                changed[name] = Sum((), self._integer(value.constant))
            elif name in ("left_offset", "right_offset"):
                changed[name] = self._cheap(value)
            elif isinstance(value, Sum):
                changed[name] = self._place(statement.target, value)
            elif name in ("target_stride", "left_stride") and value is not None:
                changed[name] = self._integer(value)
            elif name == "ahead":
                self.tokens.append(len(value))
                changed[name] = tuple(self._ahead(one) for one in value)
            else:
                self.tokens.append(value.name if name == "dtype" else value)
        return statement._replace(**changed)

    def _warp_product(self, statement: WarpProduct) -> Statement:
        shape = statement.target, statement.rows, statement.columns, statement.dtype.name
        self.tokens += shape
        panels = [self._shared_panel(one) for one in (statement.left, statement.right)]
        return statement._replace(left=panels[0], right=panels[1])

    def _shared_panel(self, panel: SharedPanel) -> SharedPanel:
        self.tokens += (panel.buffer, panel.length, panel.along)
        offset, chunk = (self._place(panel.buffer, x) for x in (panel.offset, panel.chunk))
        return panel._replace(offset=offset, chunk=chunk)

    def _ahead(self, one: Ahead) -> Ahead:
        self.tokens += (one.buffer, one.lanes, len(one.conditions))
        return one._replace(
            offset=self._cheap(one.offset),
            along=self._integer(one.along),
            across=self._integer(one.across),
            conditions=tuple(self._cheap_condition(guard) for guard in one.conditions),
        )

    def _cheap_condition(self, guard: Condition) -> Condition:
        self.tokens.append(type(guard).__name__)
        return type(guard)(self._cheap(guard.index), self._integer(guard[1]))

    def _foreign_call(self, statement: ForeignCall) -> Statement:
        self.tokens += (statement.symbol, statement.texts, statement.buffers, statement.threads)
        self.tokens.append(statement.address)
        return statement._replace(task=self._sum(statement.task))

    def _for(self, statement: For) -> Statement:
        self.tokens += (statement.kind, statement.vector, statement.literal)
        self.literal |= statement.literal
        self._name(statement.axis)
        if statement.vector:
            self._lanes.add(LoopIndex(statement.axis))
        extent = statement.extent
        if statement.kind == "unroll":
            self.tokens.append(int(extent))  # type: ignore[arg-type]
        else:
            extent = self._extent(statement)
        self.reduces = self.reduces or bool(statement.accumulators)
        for accumulator in statement.accumulators:
            self._name(accumulator.name)
            self.tokens += (accumulator.reducer, accumulator.dtype.name, accumulator.running)
        return statement._replace(extent=extent, body=self._body(statement.body))

    def _extent(self, loop: For) -> Integer | ValueIndex:
        if isinstance(loop.extent, ValueIndex):
            self._name(loop.extent.name)
            return loop.extent
        small = type(loop.extent) is int and loop.extent < _WINDOW
        if small and loop.kind == "serial" and not loop.vector:
            self.windows.add(len(self.integers))
        is_outer = any(isinstance(one, (For, MicroKernel)) for one in loop.body)
        if loop.kind == "parallel":
            return self._integer(loop.extent, self.tasks)
        if is_outer and not loop.vector:
            return self._integer(loop.extent, self.outer)
        is_tile = loop.vector and type(loop.extent) is int and loop.extent <= _WIDEST_TILE
        return self._integer(loop.extent, self.tiles if is_tile else None)


_EXPRESSIONS: dict[type, Callable[[Any, Any], Expr]] = {
    Number: Walker._number,
    RealArgument: Walker._real_argument,
    Load: Walker._load,
    IndexValue: Walker._index_value,
    Apply: Walker._apply,
    Choose: Walker._choose,
    Name: Walker._name_value,
}
_STATEMENTS: dict[type, Callable[[Any, Any], Statement]] = {
    Let: Walker._let,
    Accumulate: Walker._accumulate,
    CheckedIndex: Walker._checked_index,
    Store: Walker._store,
    Update: Walker._store,
    Prefetch: Walker._prefetch,
    Alloc: Walker._alloc,
    MicroKernel: Walker._micro_kernel,
    WarpProduct: Walker._warp_product,
    ForeignCall: Walker._foreign_call,
    For: Walker._for,
}
