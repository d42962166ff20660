"""The function that transposes a square of numbers, which kernels call.

A transposition takes a shuffle for each row and each halving of its length, and LLVM spends long on
searching better ones. So it is compiled once per process, not inlined into every kernel.
"""

from __future__ import annotations

from collections.abc import Sequence

from metaop.codegen.llvm.builder import Builder, BuilderTarget
from metaop.codegen.llvm.instructions.value import Value, bits_of

_PREFIX = "metaop_transpose_"
_BLOCK_BYTES = 16


def symbol_for(type: str, lanes: int, count: int) -> str:
    """The name of `void f(ptr rows, i64 step, ptr columns)` for a square of elements.

    Rows begin `step` bytes apart; only the first `count` exist, the others are zeros. The columns
    are written contiguously, possibly over the rows.
    """
    return f"{_PREFIX}{type}_{lanes}_{count}"


def text_of(symbol: str, target: BuilderTarget) -> str | None:
    """The module that defines the function of a name, or None for another name."""
    if not symbol.startswith(_PREFIX):
        return None
    type, *numbers = symbol.removeprefix(_PREFIX).split("_")
    (lanes, count), size = map(int, numbers), bits_of(type) // 8
    builder = Builder(target)
    start, columns = builder.argument("ptr", "rows"), builder.argument("ptr", "columns")
    step = builder.argument("i64", "step")
    rows = []
    for row in range(count):
        rows.append(builder.load(start, type, lanes))
        if row < count - 1:
            start = builder.offset(start, step, "i8")
    rows += [builder.constant(0, type, lanes)] * (lanes - count)
    for number, column in enumerate(transposed(builder, rows)):
        builder.store(column, builder.offset(columns, number * lanes, type), size * lanes)
    builder.finish_function(symbol, [builder.argument("ptr", "rows"), step, columns])
    return builder.module_text()


def transposed(builder: Builder, rows: Sequence[Value]) -> list[Value]:
    """The columns of a square with as many rows as lanes, a power of two.

    Neighbouring rows are first interleaved within blocks of 16 bytes, which processors do in one
    cheap instruction; then whole blocks are combined.
    """
    count = len(rows)
    block = max(1, min(_BLOCK_BYTES * 8 // rows[0].bits, count))
    groups = [[row] for row in rows]
    unit = 1
    while unit < block:
        groups = [
            [
                builder.shuffle(left, right, _interleaved(count, block, unit, high))
                for left, right in zip(groups[k], groups[k + 1])
                for high in (0, 1)
            ]
            for k in range(0, len(groups), 2)
        ]
        unit *= 2
    # A group now has, for each position in a block, a vector of the columns `block` apart.
    found = [{(place, 0): x for place, x in enumerate(group)} for group in groups]
    step = 1
    while len(found) > 1:
        found = [
            {
                (place, first + odd * step): builder.shuffle(
                    left[place, first], right[place, first], _every_other(count, block, odd)
                )
                for place, first in left
                for odd in (0, 1)
            }
            for left, right in zip(found[::2], found[1::2])
        ]
        step *= 2
    columns = found[0]
    return [columns[place, first] for first in range(count // block) for place in range(block)]


def _interleaved(count: int, block: int, unit: int, high: int) -> list[int]:
    """Runs of `unit` lanes, alternately of two vectors, from one half of every block."""
    start = high * (block // 2)
    return [
        source * count + first + start + run + lane
        for first in range(0, count, block)
        for run in range(0, block // 2, unit)
        for source in (0, 1)
        for lane in range(unit)
    ]


def _every_other(count: int, block: int, odd: int) -> list[int]:
    """The even or the odd blocks of two vectors."""
    starts = range(odd * block, 2 * count, 2 * block)
    return [start + lane for start in starts for lane in range(block)]
