"""The values of expressions during translation: indices, tests and typed values.

Plain Python numbers, types and tuples are values that are known at translation time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from metaop.codegen.nest import ir
from metaop.elementwise.functions import FUNCTIONS
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.dtype import DType

# Bounds of an integer about which nothing is known.
UNBOUNDED = 1 << 62


class Index(NamedTuple):
    """An integer as a sum of loop variables, with its smallest and largest possible value."""

    sum: ir.Sum
    low: int
    high: int

    @property
    def constant(self) -> int | None:
        """The number, if it is known."""
        return None if self.sum.terms else self.start

    @property
    def terms(self) -> list[tuple[ir.Factor, int]]:
        """Factors with their coefficients, which are literals in kernels."""
        return list(self.sum.terms)  # type: ignore[arg-type]

    @property
    def start(self) -> int:
        """The constant that is added to the terms."""
        return self.sum.constant  # type: ignore[return-value]


class Test(NamedTuple):
    """A boolean that is true if all conditions hold."""

    conditions: tuple[ir.Condition, ...]


class Value(NamedTuple):
    """A typed value; weak ones, like Python's numbers, take the type of the other operand."""

    expr: ir.Expr
    dtype: DType
    weak: bool = False


def constant(number: int) -> Index:
    """A known integer."""
    return Index(ir.Sum((), number), number, number)


def variable(factor: ir.Factor, low: int = -UNBOUNDED, high: int = UNBOUNDED) -> Index:
    """A loop variable or a bound name within its range."""
    return Index(ir.Sum(((factor, 1),), 0), low, high)


def plus(left: Index, right: Index, sign: int = 1) -> Index:
    """The sum of two indices, or with `sign` -1 their difference."""
    terms = dict(left.terms)
    for factor, coefficient in right.terms:
        terms[factor] = terms.get(factor, 0) + sign * coefficient
    number = left.start + sign * right.start
    found = ir.Sum(tuple((f, c) for f, c in terms.items() if c), number)
    if not found.terms:
        return constant(number)
    ends = sorted((sign * right.low, sign * right.high))
    return Index(found, _bounded(left.low + ends[0]), _bounded(left.high + ends[1]))


def times(index: Index, factor: int) -> Index:
    """A multiple of an index."""
    if factor == 0:
        return constant(0)
    terms = tuple((f, scale * factor) for f, scale in index.terms)
    ends = sorted((_bounded(index.low * factor), _bounded(index.high * factor)))
    return Index(ir.Sum(terms, index.start * factor), *ends)


def divided(index: Index, divisor: int, remainder: bool) -> Index | None:
    """`index // divisor` or `index % divisor`; None when the index may be negative."""
    number = index.constant
    if number is not None:
        return constant(number % divisor if remainder else number // divisor)
    if divisor <= 0 or index.low < 0:
        return None
    if index.high < divisor:
        return index if remainder else constant(0)
    if remainder:
        return variable(ir.RemainderIndex(index.sum, divisor), 0, divisor - 1)
    return variable(
        ir.QuotientIndex(index.sum, divisor), index.low // divisor, index.high // divisor
    )


def _bounded(number: int) -> int:
    return max(-UNBOUNDED, min(UNBOUNDED, number))


def at_least(index: Index, least: int) -> Test | bool:
    """`index >= least`."""
    if index.low >= least or index.high < least:
        return index.low >= least
    moved = plus(index, constant(least), -1)
    return Test((ir.InBounds(moved.sum, _bounded(moved.high + 1)),))


def equal(left: Index, right: Index) -> Test | bool:
    """`left == right`."""
    difference = plus(left, right, -1)
    if difference.constant is not None or difference.low > 0 or difference.high < 0:
        return difference.constant == 0
    return Test((ir.InBounds(difference.sum, 1),))


# --- typed values ---------------------------------------------------------------------------------


def as_value(item: Any) -> Value:
    """Anything that stands for a number as a typed value."""
    if isinstance(item, Value):
        return item
    if isinstance(item, bool):
        return Value(ir.Number(item, dtypes.bool_), dtypes.bool_, True)
    if isinstance(item, float):
        return Value(ir.Number(item, dtypes.float32), dtypes.float32, True)
    if isinstance(item, Test):
        yes, no = (ir.Number(truth, dtypes.bool_) for truth in (True, False))
        return Value(ir.Choose(item.conditions, yes, no, dtypes.bool_), dtypes.bool_)
    assert isinstance(item, Index)
    # A varying size, the only index without terms and without a known constant, is an argument.
    if isinstance(item.constant, int):
        return Value(ir.Number(item.constant, dtypes.int64), dtypes.int64, True)
    return Value(ir.IndexValue(item.sum), dtypes.int64, True)


def common_type(kinds: Sequence[tuple[DType, bool]]) -> DType:
    """The type of operands, given as pairs (type, is weak), by PyTorch's promotion."""
    strong = [dtype for dtype, weak in kinds if not weak]
    weak_ones = [dtypes.float32 if d.kind == "float" else d for d, weak in kinds if weak]
    result = strong[0] if strong else weak_ones[0]
    for dtype in strong[1:] if strong else weak_ones[1:]:
        result = dtypes.promote(result, dtype)
    for dtype in weak_ones:
        if dtypes.kind_rank(dtype) > dtypes.kind_rank(result):
            result = dtype
    return result


def operand_type(function: str, kinds: Sequence[tuple[DType, bool]]) -> DType:
    """The type to which the operands of a table function are converted.

    Raises TypeError if the function does not take them.
    """
    row = FUNCTIONS[function]
    if len(kinds) != row.arity:
        raise TypeError(f"{function} takes {row.arity} operands, got {len(kinds)}")
    dtype = row.operand(common_type(kinds))
    if dtype.kind not in row.accepts:
        raise TypeError(f"{function} does not take {dtype.name}")
    return dtype


def converted(value: Value, dtype: DType) -> ir.Expr:
    """The value as an expression, converted to `dtype`."""
    expr = value.expr
    if isinstance(expr, ir.Number):
        kinds = {"bool": bool, "int": int, "float": float}
        return ir.Number(kinds[dtype.kind](expr.value), dtype)
    if value.dtype is dtype:
        return expr
    return ir.Apply("cast", (expr,), dtype, value.dtype)


def applied(function: str, *operands: Any) -> Value:
    """A table function of operands of any types; raises TypeError if it does not take them."""
    values = [as_value(operand) for operand in operands]
    if function == "where":
        return selected(values[0], *values[1:])
    dtype = operand_type(function, [(value.dtype, value.weak) for value in values])
    inputs = tuple(converted(value, dtype) for value in values)
    result = FUNCTIONS[function].result(dtype)
    return Value(ir.Apply(function, inputs, result, dtype), result)


def selected(test: Any, value: Value, otherwise: Value) -> Value:
    """`value` if the test holds, otherwise `otherwise`."""
    dtype = common_type([(one.dtype, one.weak) for one in (value, otherwise)])
    yes, no = converted(value, dtype), converted(otherwise, dtype)
    if isinstance(test, Test):
        return Value(ir.Choose(test.conditions, yes, no, dtype), dtype)
    condition = converted(truth(as_value(test)), dtypes.bool_)
    return Value(ir.Apply("where", (condition, yes, no), dtype, dtype), dtype)


def truth(value: Value) -> Value:
    """A number as a boolean."""
    if value.dtype is dtypes.bool_:
        return value
    zero = converted(Value(ir.Number(0, value.dtype), value.dtype), value.dtype)
    test = ir.Apply("ne", (value.expr, zero), dtypes.bool_, value.dtype)
    return Value(test, dtypes.bool_)
