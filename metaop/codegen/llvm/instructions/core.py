"""The foundation of the builder: values, constants, instructions and control flow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from metaop.codegen.llvm.instructions.value import (
    Operand,
    Value,
    bits_of,
    constant_text,
    intrinsic_suffix,
    vector_type,
)


class BuilderTarget(Protocol):
    """The properties of the processor that the builder needs; `Target` has them."""

    @property
    def vector_bytes(self) -> int: ...

    @property
    def has_avx512(self) -> bool: ...

    @property
    def has_fma(self) -> bool: ...

    @property
    def has_f16c(self) -> bool: ...

    @property
    def has_rounding(self) -> bool: ...


class Phi:
    """A phi, whose value depends on the preceding block; complete it with `add`."""

    __slots__ = ("value", "_lines", "_position", "_incoming")

    def __init__(self, value: Value, lines: list[str]) -> None:
        self.value = value
        self._lines = lines
        self._position = len(lines)
        self._incoming: list[str] = []
        lines.append("")

    def add(self, value: Value, block: str) -> None:
        """Adds the value for control flow from `block`."""
        self._incoming.append(f"[ {value.text}, %{block} ]")
        head = f"  {self.value.text} = phi {self.value.full_type}"
        self._lines[self._position] = f"{head} {', '.join(self._incoming)}"


class Core:
    """The base of all other parts of `Builder`; see there."""

    def __init__(self, target: BuilderTarget) -> None:
        self.target = target
        # Whether a product and a sum may round once, and the factors of the products so far.
        self.fuses = True
        self._factors: dict[str, tuple[Value, Value]] = {}
        # Texts, and lists of them that are still being written.
        self.lines: list[Any] = []
        self.block = "entry"
        self._counter = 0
        # The bfloat16 of which a value has just been made: narrowed again, it is the same.
        self.narrow_forms: dict[str, Value] = {}
        self._declarations: dict[str, None] = {}
        self._functions: list[str] = []

    # Names, values, constants

    def fresh(self, prefix: str = "v") -> str:
        """A register name that is not in use: `%v7`."""
        self._counter += 1
        return f"%{prefix}{self._counter}"

    def value(self, text: str, type: str, lanes: int = 1, signed: bool = True) -> Value:
        return Value(self, text, type, lanes, signed)

    def like(self, x: Value, text: str) -> Value:
        """Another value of the type and lanes of `x`."""
        return Value(self, text, x.type, x.lanes, x.signed)

    def argument(self, type: str, name: str, signed: bool = True) -> Value:
        """A parameter of the function, for use in its body and in `finish_function`."""
        return Value(self, f"%{name}", type, 1, signed)

    def constant(self, number: Any, type: str, lanes: int = 1, signed: bool = True) -> Value:
        return Value(self, constant_text(number, type, lanes), type, lanes, signed)

    def constant_like(self, x: Value, number: Any) -> Value:
        return Value(self, constant_text(number, x.type, x.lanes), x.type, x.lanes, x.signed)

    def vector_constant(self, numbers: Sequence[Any], type: str) -> Value:
        """A vector of different constants."""
        if len(numbers) == 1:
            return self.constant(numbers[0], type)
        parts = ", ".join(f"{type} {constant_text(number, type)}" for number in numbers)
        return Value(self, f"<{parts}>", type, len(numbers))

    def iota(self, lanes: int, type: str = "i64") -> Value:
        """0, 1, 2, … by lane."""
        return self.vector_constant(range(lanes), type)

    def coerce(self, operand: Operand, type: str) -> Value:
        """Values stay; numbers become scalar constants of the type."""
        return operand if isinstance(operand, Value) else self.constant(operand, type)

    def together(self, *operands: Operand) -> list[Value]:
        """The operands with numbers made constants and scalars splatted to the longest vector."""
        values = [operand for operand in operands if isinstance(operand, Value)]
        first = values[0]
        lanes = max(value.lanes for value in values)
        return [
            self.splat(operand, lanes)
            if isinstance(operand, Value)
            else self.constant(operand, first.type, lanes, first.signed)
            for operand in operands
        ]

    # Instructions

    def emit(self, instruction: str) -> str:
        """Appends an instruction that has a result; returns its register."""
        name = self.fresh()
        self.lines.append(f"  {name} = {instruction}")
        return name

    def line(self, instruction: str) -> None:
        """Appends an instruction without a result."""
        self.lines.append(f"  {instruction}")

    def intrinsic(self, name: str, *operands: Value, lanes: int | None = None) -> Value:
        """A call of an intrinsic overloaded on its first operand, declared as needed."""
        first = operands[0]
        result = vector_type(first.type, lanes or first.lanes)
        symbol = f"{name}.{intrinsic_suffix(first.type, first.lanes)}"
        types = ", ".join(operand.full_type for operand in operands)
        self.declare(f"declare {result} @{symbol}({types})")
        arguments = ", ".join(operand.typed for operand in operands)
        text = self.emit(f"call {result} @{symbol}({arguments})")
        return Value(self, text, first.type, lanes or first.lanes, first.signed)

    def declare(self, declaration: str) -> None:
        """A declaration that the module needs, once."""
        self._declarations[declaration] = None

    def include(self, text: str) -> None:
        """Includes the text of other functions in the module."""
        self._functions.append(text)

    @contextmanager
    def exact(self) -> Iterator[None]:
        """Every operation inside rounds: for error-free sums and tricks with rounding."""
        before, self.fuses = self.fuses, False
        try:
            yield
        finally:
            self.fuses = before

    def splat(self, x: Value, lanes: int) -> Value:
        """The scalar in every lane; a vector of that length stays."""
        if x.lanes == lanes:
            return x
        if x.is_constant:
            return Value(self, f"splat ({x.type} {x.text})", x.type, lanes, x.signed)
        full = vector_type(x.type, lanes)
        first = self.emit(f"insertelement {full} poison, {x.type} {x.text}, i32 0")
        text = self.emit(
            f"shufflevector {full} {first}, {full} poison, <{lanes} x i32> zeroinitializer"
        )
        return Value(self, text, x.type, lanes, x.signed)

    def bitcast(self, x: Value, type: str) -> Value:
        """The same bits as elements of another type; the lanes follow from the widths."""
        lanes = x.lanes * x.bits // bits_of(type)
        if x.type == type:
            return x
        text = self.emit(f"bitcast {x.typed} to {vector_type(type, lanes)}")
        return Value(self, text, type, lanes)

    def bits(self, x: Value) -> Value:
        """The bits of a float as a signed integer of the same width."""
        return self.bitcast(x, f"i{x.bits}")

    # Control flow

    def new_label(self, prefix: str = "block") -> str:
        self._counter += 1
        return f"{prefix}{self._counter}"

    def start_block(self, label: str) -> None:
        """Starts a new block, to which the following instructions belong."""
        self.lines.append(f"{label}:")
        self.block = label

    def branch(self, label: str) -> None:
        self.line(f"br label %{label}")

    def branch_if(self, condition: Value, label: str, otherwise: str) -> None:
        self.line(f"br {condition.typed}, label %{label}, label %{otherwise}")

    def phi(self, type: str, lanes: int = 1, signed: bool = True) -> Phi:
        """A phi at the start of the current block."""
        return Phi(Value(self, self.fresh("phi"), type, lanes, signed), self.lines)

    def phi_like(self, x: Value) -> Phi:
        return self.phi(x.type, x.lanes, x.signed)

    def when(self, condition: Value, body: Callable[[], Any]) -> None:
        """Runs the body only if a scalar condition holds."""
        inside, after = self.new_label("then"), self.new_label("after")
        self.branch_if(condition, inside, after)
        self.start_block(inside)
        body()
        self.branch(after)
        self.start_block(after)

    def if_else(
        self, condition: Value, body: Callable[[], Value], otherwise: Callable[[], Value]
    ) -> Value:
        """The value of one of two bodies, of which only one runs."""
        labels = self.new_label("then"), self.new_label("else")
        after = self.new_label("after")
        self.branch_if(condition, *labels)
        results = []
        for label, run in zip(labels, (body, otherwise)):
            self.start_block(label)
            results.append((run(), self.block))
            self.branch(after)
        self.start_block(after)
        joined = self.phi_like(results[0][0])
        for value, block in results:
            joined.add(value, block)
        return joined.value

    def loop(
        self,
        start: Operand,
        stop: Operand,
        step: int,
        body: Callable[..., Sequence[Value] | None],
        carried: Sequence[Value] = (),
    ) -> list[Value]:
        """`for i in range(start, stop, step)`: `body(i, *carried)` gives the next carried values.

        i is an i64; the carried values after the last round come back. Without carried values
        the body may return None.
        """
        first, last = self.coerce(start, "i64"), self.coerce(stop, "i64")

        def condition(i: Value, *_: Value) -> Value:
            return i < last

        def once(i: Value, *values: Value) -> Sequence[Value]:
            following = body(i, *values)
            return (i + step, *(following or ()))

        return self.loop_while(condition, once, [first, *carried])[1:]

    def loop_while(
        self,
        condition: Callable[..., Value],
        body: Callable[..., Sequence[Value]],
        carried: Sequence[Value],
    ) -> list[Value]:
        """`while condition(*carried): carried = body(*carried)`; the condition is a scalar i1."""
        before = self.block
        head, inside, after = (self.new_label(x) for x in ("head", "body", "after"))
        self.branch(head)
        self.start_block(head)
        phis = [self.phi_like(value) for value in carried]
        values = [phi.value for phi in phis]
        self.branch_if(condition(*values), inside, after)
        self.start_block(inside)
        following = body(*values)
        for phi, value, next_value in zip(phis, carried, following):
            phi.add(value, before)
            phi.add(next_value, self.block)
        self.branch(head)
        self.start_block(after)
        return values
