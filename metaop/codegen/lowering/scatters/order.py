"""The schedule of `Order` on a CPU: a radix sort of rows, least significant byte first.

A task sorts a row. It counts how often each value of each byte occurs, sums the counts to
positions, and moves the elements to their positions, once per byte; equal ones stay in order. It
makes no comparisons, so the time does not depend on the distribution of keys. An element is one
word: the key above, its index below (H. Seward, "Information sorting in the application of
electronic digital computers to business operations", 1954).
"""

from __future__ import annotations

import math

from metaop.codegen.lowering.base.kernel import LoweredKernel
from metaop.codegen.lowering.scatters.words import Words
from metaop.codegen.machine import OPERATIONS
from metaop.codegen.nest import ir
from metaop.codegen.nest.builder import NestBuilder
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.faults import INDEX_OUT_OF_RANGE
from metaop.unified_graph.node import Node
from metaop.unified_graph.symbolic import hint_of

_DIGIT_BITS = 8
_DIGITS = 1 << _DIGIT_BITS
_NUMBER_BITS = 32
_KEYS, _RESULT, _WORDS, _PLACES = 0, 1, 2, -1
_TASK = ir.LoopIndex("p")


def lower_order(root: Node) -> list[LoweredKernel]:
    """The launch that computes the order of all rows."""
    keys = root.inputs[0]
    *outer, length = keys.shape
    digits = keys.dtype.itemsize
    buffers = [keys, root]
    parameters = [ir.Parameter(keys.dtype, "read"), ir.Parameter(dtypes.int64, "update")]
    if digits > 1:
        buffers.append(Node(Words(), root.inputs, root.shape, dtypes.int64))
        parameters.append(ir.Parameter(dtypes.int64, "update"))
    builder = NestBuilder()
    row = _Row(builder, keys, length)
    with builder.loop("p", math.prod(outer), "parallel", counted=True):
        builder.emit(ir.Alloc(_PLACES, _DIGITS * digits, dtypes.int64))
        row.count()
        for digit in range(digits):
            row.put(digit)
    work = hint_of(length) * digits * 4 * OPERATIONS
    nest = ir.LoopNest("order", tuple(parameters), (), builder.body, work=work)
    return [LoweredKernel(nest, tuple(buffers))]


class _Row:
    """Emits the sorting of one row of contiguous keys."""

    def __init__(self, nest: NestBuilder, keys: Node, length: int) -> None:
        self.nest = nest
        self.dtype = keys.dtype
        self.length = length
        self.digits = keys.dtype.itemsize

    def count(self) -> None:
        """The first position of each value of each digit."""
        nest = self.nest
        with nest.loop("z", _DIGITS * self.digits):
            nest.emit(_store(_PLACES, "z", _integer(0)))
        with nest.loop("c", self.length, counted=True):
            nest.emit(self._bind_word("c"))
            for digit in range(self.digits):
                nest.emit(self._bind_digit(digit))
                nest.emit(ir.Update(_PLACES, _count_of(digit), "add", _integer(1)))
        for digit in range(self.digits):
            self._add_up(digit)

    def _add_up(self, digit: int) -> None:
        axis, nest = f"a{digit}", self.nest
        place = ir.Sum(((ir.LoopIndex(axis), 1),), _DIGITS * digit)
        total = ir.Name(f"total{digit}", dtypes.int64)
        found = ir.Name("found", dtypes.int64)
        running = ir.Accumulator(total.name, "add", dtypes.int64, running=True)
        with nest.loop(axis, _DIGITS, accumulators=[running]):
            nest.emit(ir.Let("found", ir.Load(_PLACES, place, dtypes.int64)))
            nest.emit(ir.Accumulate(total.name, found))
            nest.emit(ir.Store(_PLACES, place, _apply("sub", total, found)))

    def put(self, digit: int) -> None:
        """Sorts the elements by a digit, stably.

        They alternate between two buffers such that the last digit writes the result.
        """
        last = self.digits - 1
        source = _WORDS if (last - digit) % 2 == 0 else _RESULT
        target = _RESULT if source == _WORDS else _WORDS
        word = ir.Name("word", dtypes.int64)
        axis = f"e{digit}"
        first = self._bind_word(axis)
        if digit:
            first = ir.Let("word", ir.Load(source, self._at(axis), dtypes.int64))
        value: ir.Expr = word
        if digit == last:
            value = _apply("bitwise_and", word, _integer((1 << _NUMBER_BITS) - 1))
        place = _count_of(digit)
        found = ir.Load(_PLACES, place, dtypes.int64)
        nest = self.nest
        with nest.loop(axis, self.length, counted=True):
            nest.emit(first)
            nest.emit(self._bind_digit(digit))
            nest.emit(ir.CheckedIndex("place", found, self.length, INDEX_OUT_OF_RANGE.number))
            nest.emit(ir.Update(_PLACES, place, "add", _integer(1)))
            nest.emit(ir.Store(target, self._in_row(ir.ValueIndex("place")), value))

    def _bind_word(self, axis: str) -> ir.Statement:
        """An unsorted element: its key, counted from the least one, and its index."""
        key = ir.Apply(
            "cast", (ir.Load(_KEYS, self._at(axis), self.dtype),), dtypes.int64, self.dtype
        )
        above = _apply("left_shift", _apply("sub", key, _integer(int(self.dtype.lowest))), _NUMBER)
        number = ir.IndexValue(ir.Sum(((ir.LoopIndex(axis), 1),), 0))
        return ir.Let("word", _apply("bitwise_or", above, number))

    def _bind_digit(self, digit: int) -> ir.Statement:
        word = ir.Name("word", dtypes.int64)
        shifted = _apply("right_shift", word, _integer(_NUMBER_BITS + _DIGIT_BITS * digit))
        value = _apply("bitwise_and", shifted, _integer(_DIGITS - 1))
        return ir.CheckedIndex(f"d{digit}", value, _DIGITS, INDEX_OUT_OF_RANGE.number)

    def _at(self, axis: str) -> ir.Sum:
        return self._in_row(ir.LoopIndex(axis))

    def _in_row(self, factor: ir.Factor) -> ir.Sum:
        return ir.Sum(((_TASK, self.length), (factor, 1)), 0)


def _count_of(digit: int) -> ir.Sum:
    """The offset of the count of a digit's value, which is bound to a name."""
    return ir.Sum(((ir.ValueIndex(f"d{digit}"), 1),), _DIGITS * digit)


def _integer(value: int) -> ir.Number:
    return ir.Number(value, dtypes.int64)


_NUMBER = _integer(_NUMBER_BITS)


def _apply(function: str, *operands: ir.Expr) -> ir.Expr:
    return ir.Apply(function, operands, dtypes.int64, dtypes.int64)


def _store(buffer: int, axis: str, value: ir.Expr) -> ir.Statement:
    return ir.Store(buffer, ir.Sum(((ir.LoopIndex(axis), 1),), 0), value)
