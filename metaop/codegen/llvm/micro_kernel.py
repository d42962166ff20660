"""The function that multiplies packed panels into a register tile, which contractions call.

Its loop is the same in all contractions of a form, and LLVM takes as long for it as for a quarter
of the kernel around it. So it is compiled once per process, not written into every kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from metaop.codegen.llvm.builder import Builder, BuilderTarget
from metaop.codegen.llvm.instructions.conversion import compute_type
from metaop.codegen.llvm.instructions.value import Operand, Value, bits_of
from metaop.codegen.llvm.products import FLIP, Product, product_of
from metaop.codegen.nest.ir import STEPS, MicroKernel, pitch_of
from metaop.unified_graph.dtype import DType, dtype_named

_PREFIX = "metaop_multiply_"
_NO_SIGNS = "x"
# Rows that lie apart are reached from a pointer for so many of them: an address adds a stride to
# it, or two, without an instruction.
_ROWS_OF_A_POINTER = 3


class Form(NamedTuple):
    """What a function is compiled for; everything else is an argument.

    `ahead` has the lanes of each prefetch. The rows of the left factor are packed, or, if it
    `has_rows`, lie a stride apart.
    """

    dtype: DType
    rows: int
    columns: int
    step: int
    signs: str
    has_rows: bool
    ahead: tuple[int, ...]

    @property
    def symbol(self) -> str:
        """The name of `void f(left, left stride, right, depth, target, stride, accumulate, …)`.

        Each prefetch has three more arguments: where it starts, and the bytes from there to the
        next turn and from a lane to the next one.
        """
        parts = self.dtype.name, self.rows, self.columns, self.step, self.signs or _NO_SIGNS
        return _PREFIX + "_".join(map(str, (*parts, int(self.has_rows), *self.ahead)))

    @property
    def product(self) -> Product:
        return product_of(self.step, self.dtype, self.signs)


def form_of(statement: MicroKernel) -> Form:
    """The form of the function for a statement."""
    return Form(
        statement.dtype,
        statement.rows,
        statement.columns,
        statement.step,
        statement.signs,
        statement.left_stride is not None,
        tuple(one.lanes for one in statement.ahead),
    )


def text_of(symbol: str, target: BuilderTarget) -> str | None:
    """The module that defines the function of a name, or None for another name."""
    if not symbol.startswith(_PREFIX):
        return None
    name, rows, columns, step, signs, has_rows, *ahead = symbol.removeprefix(_PREFIX).split("_")
    form = Form(
        dtype_named(name),
        int(rows),
        int(columns),
        int(step),
        "" if signs == _NO_SIGNS else signs,
        bool(int(has_rows)),
        tuple(map(int, ahead)),
    )
    return _Writer(form, Builder(target)).text()


class _Prefetch(NamedTuple):
    """A prefetch: its first address, and the bytes from there per turn and per lane.

    The lane of a turn is its number modulo `lanes`.
    """

    start: Value
    along: Value
    sideways: Value
    lanes: int


class _Writer:
    """Writes the loop over the depth with all sums in registers, then the tile."""

    def __init__(self, form: Form, builder: Builder) -> None:
        self.form = form
        self.builder = builder
        self.element = compute_type(form.dtype)
        self.product = form.product
        # What a step multiplies: one element, or several neighbours.
        self.factor = self.product.element or self.element
        widest = builder.target.vector_bytes // form.dtype.itemsize
        # The greatest power of two that divides the columns, up to a whole register.
        self.lanes = min(widest, form.columns & -form.columns)
        self.vectors = form.columns // self.lanes
        # The stride of unpacked rows counts elements, even if steps take pairs.
        self.unit = (self.product.number or self.factor) if form.has_rows else self.factor
        self.left_stride = self._argument("left_stride")
        self.strides = (builder.constant(0, "i64"), self.left_stride, self.left_stride * 2)
        self.ahead = [
            _Prefetch(
                builder.argument("ptr", f"ahead{k}"),
                self._argument(f"along{k}"),
                self._argument(f"sideways{k}"),
                lanes,
            )
            for k, lanes in enumerate(form.ahead)
        ]

    def text(self) -> str:
        """The module."""
        form, builder = self.form, self.builder
        left, right, target = (builder.argument("ptr", x) for x in ("left", "right", "target"))
        depth, stride, accumulate = map(self._argument, ("depth", "target_stride", "accumulate"))
        zero = builder.constant(0, self.element, self.lanes)
        # If the left factor is offset, one more row sums what the offset adds.
        sums = [zero] * ((form.rows + self.product.is_flipped) * self.vectors)
        # Pointers are incremented, so that a step computes no addresses.
        carried = [*self._starts(left), right, *sums]
        count, whole = len(carried), depth & -STEPS
        carried += [one.start for one in self.ahead]

        def turn(position: Value, *values: Value) -> list[Value]:
            places = values[count:]
            for one, place in zip(self.ahead, places):
                self._prefetch(one, place, position)
            following: Sequence[Value] = values[:count]
            for _ in range(STEPS):
                following = self._step(following)
            moved = (self._moved(place, one.along, "i8") for one, place in zip(self.ahead, places))
            return [*following, *moved]

        carried = builder.loop(0, whole, STEPS, turn, carried)[:count]
        last = builder.loop(whole, depth, 1, lambda _, *values: self._step(values), carried)
        sums = self._without_flips(last[-len(sums) :])
        builder.when(accumulate.differs(0), lambda: self._write(sums, target, stride, True))
        builder.when(accumulate.equals(0), lambda: self._write(sums, target, stride, False))
        builder.is_as_written = True
        arguments = [left, self.left_stride, right, depth, target, stride, accumulate]
        builder.finish_function(form.symbol, arguments + [x for one in self.ahead for x in one[:3]])
        return builder.module_text()

    def _argument(self, name: str) -> Value:
        return self.builder.argument("i64", name)

    def _prefetch(self, one: _Prefetch, place: Value, position: Value) -> None:
        if one.lanes > 1:
            lane = (position >> (STEPS.bit_length() - 1)) & (one.lanes - 1)
            place = self._moved(place, lane * one.sideways, "i8")
        self.builder.declare("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        self.builder.line(f"call void @llvm.prefetch.p0({place.typed}, i32 0, i32 2, i32 1)")

    def _starts(self, left: Value) -> list[Value]:
        """The pointers from which the rows of the left factor are reached."""
        if not self.form.has_rows:
            return [left]
        groups = range(0, self.form.rows, _ROWS_OF_A_POINTER)
        return [self._moved(left, self.left_stride * row, self.unit) for row in groups]

    def _step(self, values: Sequence[Value]) -> list[Value]:
        """Adds the products of a step; `values` are where its factors begin, then the sums."""
        count = len(values) - (self.form.rows + self.product.is_flipped) * self.vectors
        *lefts, right = values[:count]
        apart = 1 if self.form.has_rows else pitch_of(self.form.rows)
        following = [self._moved(left, apart) for left in lefts]
        sums = self._products(lefts, right, values[count:])
        return [*following, self._moved(right, self.form.columns), *sums]

    def _products(self, lefts: list[Value], right: Value, values: Sequence[Value]) -> list[Value]:
        builder = self.builder
        columns = [
            builder.load(self._moved(right, k * self.lanes), self.factor, self.lanes)
            for k in range(self.vectors)
        ]
        flip = builder.constant(FLIP, "i32", self.lanes) if self.product.is_flipped else None
        totals = iter(values)
        result: list[Value] = []

        def add(factor: Value) -> None:
            for column in columns:
                result.append(self.product.added(builder, factor, column, next(totals)))

        for row in range(self.form.rows):
            place = self._row(lefts, row)
            factor = builder.load(place, self.factor, align=bits_of(self.unit) // 8)
            factor = builder.splat(factor, self.lanes)
            add(factor if flip is None else factor ^ flip)
        if flip is not None:
            add(flip)
        return result

    def _row(self, lefts: list[Value], row: int) -> Value:
        """Where the element of a row is that a step multiplies."""
        if not self.form.has_rows:
            return self._moved(lefts[0], row)
        group, further = divmod(row, _ROWS_OF_A_POINTER)
        return self._moved(lefts[group], self.strides[further], self.unit)

    def _without_flips(self, sums: list[Value]) -> list[Value]:
        """The sums of the rows, less what flipped bits added to each column."""
        if not self.product.is_flipped:
            return sums
        *rows, extra = (sums[k : k + self.vectors] for k in range(0, len(sums), self.vectors))
        return [total - more for row in rows for total, more in zip(row, extra)]

    def _moved(self, start: Value, offset: Operand, unit: str = "") -> Value:
        """The address some elements further."""
        index = self.builder.coerce(offset, "i64")
        if index.text == "0":
            return start
        text = f"getelementptr {unit or self.factor}, {start.typed}, {index.typed}"
        return self.builder.value(self.builder.emit(text), "ptr")

    def _write(self, sums: list[Value], target: Value, stride: Value, adds: bool) -> None:
        """Writes the sums to the tile, or adds them to it."""
        builder = self.builder
        for row in range(self.form.rows):
            start = self._moved(target, stride * row)
            for k in range(self.vectors):
                address = self._moved(start, k * self.lanes)
                total = sums[row * self.vectors + k]
                if adds:
                    total = builder.load(address, self.element, self.lanes) + total
                builder.store(total, address)
