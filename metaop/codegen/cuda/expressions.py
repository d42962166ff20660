"""Indices, conditions and values of a loop nest as C++ expressions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from metaop.codegen.cuda.types import compute_type, is_narrow_float, literal
from metaop.codegen.nest import ir
from metaop.elementwise.functions import FUNCTIONS
from metaop.unified_graph.dtype import DType

# Rows of the function table whose text may be part of a larger expression: it uses each operand
# once, and has the type of its result if the operands have the type int or a wider one.
_PLAIN = re.compile(r"\(-\{0\}\)|\(\{0\} (?:[-+*/]|[=!<>]=|<|>) \{1\}\)|\w+\(\{0\}(?:, \{1\})?\)")
# Products that round by themselves, by the type.
_ALONE = {"float": "__fmul_rn", "double": "__dmul_rn"}
_NARROW = ("bool", "uint8", "int8", "int16")
_CONDITION = re.compile(r"\(\{0\} (?:[=!<>]=|<|>) \{1\}\)")


def index_text(index: ir.Sum) -> str:
    """An index as C++; a sum is not put in parentheses."""
    text = ""
    for factor, coefficient in index.terms:
        negative = isinstance(coefficient, int) and coefficient < 0
        magnitude = abs(coefficient) if isinstance(coefficient, int) else coefficient
        term = _factor_text(factor)
        if magnitude != 1:
            term += f" * {magnitude}"
        text += _signed(text, term, negative)
    constant = index.constant
    if constant != 0 or not text:
        negative = isinstance(constant, int) and constant < 0
        magnitude = abs(constant) if isinstance(constant, int) else constant
        text += _signed(text, repr(magnitude), negative)
    return text


def _signed(before: str, term: str, negative: bool) -> str:
    if not before:
        return f"-{term}" if negative else term
    return f" - {term}" if negative else f" + {term}"


def _factor_text(factor: ir.Factor) -> str:
    if isinstance(factor, ir.LoopIndex):
        return factor.axis
    if isinstance(factor, ir.ValueIndex):
        return factor.name
    operator = "/" if isinstance(factor, ir.QuotientIndex) else "%"
    inside = index_text(factor.dividend)
    if " " in inside and stripped(inside) == inside:
        inside = f"({inside})"
    return f"({inside} {operator} {factor.divisor})"


def conditions_text(conditions: Iterable[ir.Condition]) -> str:
    """The conjunction of all conditions; `true` if there are none."""
    parts = []
    for condition in conditions:
        index = stripped(index_text(condition.index))
        if isinstance(condition, ir.InBounds):
            parts.append(f"inside({index}, {condition.extent})")
        else:
            parts.append(f"({index}) % {condition.divisor} == 0")
    # Without short circuits, which would be branches around every element.
    return " & ".join(parts) or "true"


class Expressions:
    """Prints values, binding parts that are used twice to constants through `line`.

    `buffer_names` gives the C++ names of buffers by number.
    """

    def __init__(
        self, line: Callable[[str], None], buffer_names: dict[int, str], rounded: set[int]
    ) -> None:
        self.line = line
        # The identities of applications that round by themselves.
        self.rounded = rounded
        self.buffer_names = buffer_names
        # Elements that a lane already has in a variable, by buffer and offset.
        self.held: dict[tuple[int, ir.Sum], str] = {}
        # Those of them for which conditions have been tested.
        self.tested: set[tuple[int, ir.Sum]] = set()
        self._count = 0

    def value(self, expr: ir.Expr) -> str:
        """The text of a value of the compute type of the expression's type."""
        if isinstance(expr, ir.Number):
            return literal(expr.value, expr.dtype)
        if isinstance(expr, ir.Name):
            return expr.name
        if isinstance(expr, ir.IndexValue):
            return f"(long long)({index_text(expr.index)})"
        if isinstance(expr, ir.Load):
            return self._load(expr)
        if isinstance(expr, ir.Choose):
            value, otherwise = self.value(expr.value), self.value(expr.otherwise)
            return f"({conditions_text(expr.conditions)} ? {value} : {otherwise})"
        assert isinstance(expr, ir.Apply)  # real numbers are literals here
        return self._apply(expr)

    def variable(self, expr: ir.Expr) -> str:
        """The value as a name or a literal."""
        text = self.value(expr)
        if isinstance(expr, (ir.Number, ir.Name)):
            return text
        return self.bind(text, expr.dtype if not isinstance(expr, ir.IndexValue) else None)

    def bind(self, text: str, dtype: DType | None) -> str:
        """A new constant with this value; None stands for int64."""
        self._count += 1
        name = f"x{self._count}"
        type_text = "long long" if dtype is None else compute_type(dtype)
        self.line(f"const {type_text} {name} = {stripped(text)};")
        return name

    def element(self, buffer: int, offset: ir.Sum) -> str:
        """The lvalue of an element."""
        if (buffer, offset) in self.held:
            return self.held[buffer, offset]
        return f"{self.buffer_names[buffer]}[{stripped(index_text(offset))}]"

    def _load(self, load: ir.Load) -> str:
        text = self.element(load.buffer, load.offset)
        if is_narrow_float(load.dtype):
            text = f"to_float({text})"
        if self._is_tested(load):
            return text
        fill = literal(load.fill, load.dtype)
        return f"({conditions_text(load.conditions)} ? {text} : {fill})"

    def _is_tested(self, load: ir.Load) -> bool:
        return not load.conditions or (load.buffer, load.offset) in self.tested

    def copied(self, expr: ir.Expr, dtype: DType) -> str | None:
        """A 16-bit float as it lies in memory; None for a value that is computed."""
        if isinstance(expr, ir.Load) and expr.dtype is dtype:
            text = self.element(expr.buffer, expr.offset)
            if self._is_tested(expr):
                return text
            fill = stored(literal(expr.fill, dtype), dtype)
            return f"{conditions_text(expr.conditions)} ? {text} : {fill}"
        if isinstance(expr, ir.Number):
            return stored(literal(expr.value, dtype), dtype)
        if not isinstance(expr, ir.Choose):
            return None
        value, otherwise = self.copied(expr.value, dtype), self.copied(expr.otherwise, dtype)
        if value is None or otherwise is None:
            return None
        return f"{conditions_text(expr.conditions)} ? ({value}) : {otherwise}"

    def assigned(self, expr: ir.Expr) -> str:
        """The value as the right side of an assignment, which converts it."""
        text = self._applied(expr)[0] if isinstance(expr, ir.Apply) else self.value(expr)
        return stripped(text)

    def _apply(self, apply: ir.Apply) -> str:
        text, has_type = self._applied(apply)
        return text if has_type else self.bind(text, apply.dtype)

    def _applied(self, apply: ir.Apply) -> tuple[str, bool]:
        """The text of an application, and whether it already has the right type."""
        if apply.function == "cast":
            return self._cast(apply), True
        template = FUNCTIONS[apply.function].cuda
        if id(apply) in self.rounded and apply.function in ("mul", "square"):
            # CUDA's compiler would make it a part of fused multiply-adds.
            if multiply := _ALONE.get(compute_type(apply.dtype)):
                text_of = self.variable if apply.function == "square" else self.value
                operands = [stripped(text_of(operand)) for operand in apply.operands]
                return f"{multiply}({operands[0]}, {operands[-1]})", True
        if apply.operand_dtype.name in _NARROW or not _PLAIN.fullmatch(template):
            return template.format(*map(self.variable, apply.operands)), False
        operands = [self.value(operand) for operand in apply.operands]
        if not template.startswith("("):
            operands = [stripped(operand) for operand in operands]
        text = template.format(*operands)
        return text, apply.dtype is apply.operand_dtype or bool(_CONDITION.fullmatch(template))

    def _cast(self, apply: ir.Apply) -> str:
        source, target = apply.operand_dtype, apply.dtype
        text = self.value(apply.operands[0])
        if target.kind == "bool":
            return f"({text} != 0)"
        if is_narrow_float(target):
            # A conversion in the program rounds, even if nothing is stored.
            text = stripped(text) if source.compute is target.compute else f"(float){text}"
            return f"to_float(to_{target.name}({text}))"
        if source.compute is target.compute:
            return text
        if target.kind == "int" and source.kind == "float" and target.name != "int64":
            text = f"(long long){text}"
        return f"({compute_type(target)}){text}"


def stored(text: str, dtype: DType) -> str:
    """A value of the compute type as it is written to memory."""
    if not is_narrow_float(dtype):
        return stripped(text)
    rounded = text.removeprefix("to_float")
    if rounded.startswith(f"(to_{dtype.name}(") and stripped(rounded) != rounded:
        return stripped(rounded)
    return f"to_{dtype.name}({stripped(text)})"


def stripped(text: str) -> str:
    """The text without one pair of parentheses around the whole."""
    if not text.startswith("("):
        return text
    depth = 0
    for position, sign in enumerate(text):
        depth += (sign == "(") - (sign == ")")
        if depth == 0:
            return text[1:-1] if position == len(text) - 1 else text
    return text
