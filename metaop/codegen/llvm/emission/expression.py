"""Expressions: scalar functions on values, as vectors only where lanes differ."""

from __future__ import annotations

from metaop.codegen.llvm.emission.code import Code
from metaop.codegen.llvm.emission.index import IndexWriter
from metaop.codegen.llvm.emission.memory import MemoryWriter
from metaop.codegen.llvm.instructions.conversion import compute_type
from metaop.codegen.llvm.instructions.value import Value
from metaop.codegen.nest.ir import (
    Apply,
    Choose,
    Expr,
    IndexValue,
    Load,
    Name,
    Number,
    RealArgument,
)
from metaop.elementwise.functions import FUNCTIONS
from metaop.unified_graph.dtype import DType


class ExpressionWriter:
    """Writes expressions; each copy of a vector loop has its own values."""

    def __init__(
        self, code: Code, index: IndexWriter, memory: MemoryWriter, rounded: set[int]
    ) -> None:
        self.code = code
        self.index = index
        self.memory = memory
        # The identities of expressions that round by themselves.
        self.rounded = rounded
        # Values of the current statement, by the identity of expressions, which share parts.
        self._memo: dict[tuple[int, int], Value] = {}

    def start_statement(self) -> None:
        """Forgets the expressions of earlier statements: names and buffers may have changed."""
        self._memo.clear()

    def value(self, expr: Expr, copy: int) -> Value:
        """The value in the compute type: a scalar if it is uniform, else a vector."""
        key = (id(expr), copy)
        found = self._memo.get(key)
        if found is None:
            found = self._memo[key] = self._value(expr, copy)
        return found

    def value_to_store(self, expr: Expr, dtype: DType, copy: int) -> Value:
        """The value that a store rounds to `dtype`; a cast to that type need not round before."""
        if dtype.compute is dtype or not isinstance(expr, Apply):
            return self.value(expr, copy)
        if expr.function != "cast" or expr.dtype is not dtype:
            return self.value(expr, copy)
        operand = self.value(expr.operands[0], copy)
        with self.code.placed(self.code.level_among(operand.text)):
            return self.code.convert(operand, dtype)

    def _value(self, expr: Expr, copy: int) -> Value:
        if isinstance(expr, Apply):
            if FUNCTIONS[expr.function].is_serial and self.index.lanes.copies > 1:
                return self._together(expr)[copy]
            operands = [self.value(operand, copy) for operand in expr.operands]
            if expr.function == "cast":
                return self.cast(operands[0], expr.dtype)
            result = self.apply(expr.function, *operands)
            return self.code.rounded(result) if id(expr) in self.rounded else result
        if isinstance(expr, Load):
            return self.memory.load(expr, copy)
        if isinstance(expr, Name):
            return self.index.bound_value(expr.name, copy)
        if isinstance(expr, Number):
            return self.memory.constant(expr.value, expr.dtype)
        if isinstance(expr, RealArgument):
            return self._real_argument(expr)
        if isinstance(expr, IndexValue):
            return self._index_value(expr, copy)
        return self._choose(expr, copy)

    def _together(self, expr: Apply) -> list[Value]:
        """The values in all copies, by one application to their joined vectors."""
        copies = range(self.index.lanes.copies)
        operands = [[self.value(operand, copy) for copy in copies] for operand in expr.operands]
        if all(value.lanes == 1 for values in operands for value in values):
            found = [self.apply(expr.function, *values) for values in zip(*operands)]
        else:
            joined = self.apply(expr.function, *(self._joined(values) for values in operands))
            with self.code.placed(self.code.level_among(joined.text)):
                found = self.code.parts(joined, len(copies))
        self._memo.update({(id(expr), copy): found[copy] for copy in copies})
        return found

    def _joined(self, values: list[Value]) -> Value:
        """The lanes of all values in turn; a scalar that all of them are stays one."""
        if all(value.lanes == 1 and value.text == values[0].text for value in values):
            return values[0]
        lanes = self.index.lanes.count
        whole = [value if value.lanes == lanes else self.splat(value, lanes) for value in values]
        with self.code.placed(self.code.level_among(*(value.text for value in whole))):
            return self.code.joined(whole)

    def _real_argument(self, expr: RealArgument) -> Value:
        code = self.code
        with code.placed(0):
            bits = f"bitcast i64 {self.index.integer(expr.argument)} to double"
            return code.to_type(code.value(code.emit(bits), "double"), compute_type(expr.dtype))

    def apply(self, function: str, *operands: Value) -> Value:
        """A row of the function table, written at the level of its operands."""
        code = self.code
        operands = self.aligned(*operands)
        level = code.level_among(*[operand.text for operand in operands])
        with code.placed(level), code.branching():
            return FUNCTIONS[function].llvm(code, *operands)

    def aligned(self, *operands: Value) -> tuple[Value, ...]:
        """The operands with scalars splatted, outside the loops where they do not change."""
        lanes = max(operand.lanes for operand in operands)
        return tuple(
            operand if operand.lanes == lanes else self.splat(operand, lanes)
            for operand in operands
        )

    def splat(self, x: Value, lanes: int) -> Value:
        """The scalar, splatted."""
        with self.code.placed(self.code.level_among(x.text)):
            return self.code.splat(x, lanes)

    def cast(self, x: Value, dtype: DType) -> Value:
        """The value converted to a type and back to the type's compute type, hence rounded."""
        code = self.code
        with code.placed(code.level_among(x.text)):
            if x.is_float and dtype.kind == "int":
                return self._truncated(x, dtype)
            result = code.convert(x, dtype)
            if dtype.compute is dtype:
                return result
            return self.memory.widened(self.memory.narrowed(result, dtype), dtype)

    def _truncated(self, x: Value, dtype: DType) -> Value:
        """A float as an integer; values out of range give arbitrary integers, but no poison."""
        wide = "i64" if dtype.itemsize == 8 else "i32"
        first = self.code._convert("fptosi", x, wide)
        frozen = self.code.like(first, self.code.emit(f"freeze {first.typed}"))
        return self.code.to_type(frozen, compute_type(dtype), dtype.is_signed)

    def _index_value(self, expr: IndexValue, copy: int) -> Value:
        index = self.index.resolve(expr.index, copy)
        if index.varies:
            return self.code.value(self.index.vector(index), "i64", self.index.lanes.count)
        return self.code.value(str(self.index.total(index)), "i64")

    def _choose(self, expr: Choose, copy: int) -> Value:
        code = self.code
        scalar, lanes = self.index.conditions(expr.conditions, copy)
        if scalar == "false":
            return self.value(expr.otherwise, copy)
        value = self.value(expr.value, copy)
        if lanes is None and (scalar is None or scalar == "true"):
            return value
        otherwise = self.value(expr.otherwise, copy)
        if lanes is None:
            condition = code.value(str(scalar), "i1")
        else:
            mask = self.memory.lane_mask(None if scalar == "true" else scalar, lanes)
            assert mask is not None
            condition = mask
            value, otherwise = (self.splat(x, mask.lanes) for x in (value, otherwise))
        value, otherwise = self.aligned(value, otherwise)
        with code.placed(code.level_among(condition.text, value.text, otherwise.text)):
            return code.select(condition, value, otherwise)
