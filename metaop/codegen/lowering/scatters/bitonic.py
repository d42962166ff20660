"""The schedule of `Order` on a GPU: a sorting network whose comparisons run side by side.

A thread block sorts a row, or a chunk of a long one, in shared memory; launches of their own merge
chunks. An element is one word, its key above its index, so equal keys keep their order. A row is
padded to a power of two by elements behind all others (K. Batcher, "Sorting networks and their
applications", 1968; the form in which every comparison puts the smaller element first).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from contextlib import contextmanager

from metaop.codegen.lowering.base.kernel import LoweredKernel
from metaop.codegen.lowering.scatters.words import Words
from metaop.codegen.nest import ir
from metaop.codegen.nest.builder import NestBuilder
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.node import Node

# The words that a block has in shared memory, 32 KB, and its threads.
_CHUNK, _LEAST = 4096, 64
_MOST_LANES = 512
_KEYS, _SHARED, _NUMBER_BITS = 0, -1, 32
_TASK, _LANE, _TURN = ir.LoopIndex("p"), ir.LoopIndex("t"), ir.LoopIndex("e")
_WORDS = tuple(ir.Parameter(dtypes.int64, role) for role in ("read", "write"))
# Terms of a sum of indices.
Terms = tuple[tuple[ir.Factor, int], ...]


def lower_order_by_comparisons(root: Node) -> list[LoweredKernel]:
    """The launches that compute the order of all rows."""
    keys = root.inputs[0]
    *outer, length = keys.shape
    rows, padded = math.prod(outer), max(1 << (length - 1).bit_length(), _LEAST)
    chunk = min(padded, _CHUNK)
    sort = _Chunks(keys, padded // chunk, chunk)
    if chunk == padded:
        return [sort.launch(rows, keys, root)]
    steps = itertools.count()

    def fresh() -> Node:
        return Node(Words(next(steps)), root.inputs, (rows, padded), dtypes.int64)

    words = fresh()
    launches = [sort.launch(rows, keys, words)]
    while chunk < padded:
        chunk *= 2
        first, *others = _merge(chunk)
        for step in (first, *(step for step in others if step[1] >= _CHUNK)):
            before, words = words, fresh()
            launches.append(_far(before, words, *step))
        before, words = words, fresh() if chunk < padded else root
        launches.append(sort.launch(rows, before, words))
    return launches


def _far(source: Node, target: Node, run: int, distance: int) -> LoweredKernel:
    """The launch that compares words of different chunks."""
    nest = NestBuilder()
    with nest.loop("i", source.size // 2, "parallel", vector=True, counted=True):
        number, half = ir.LoopIndex("i"), distance or run // 2
        block, inside = _quotient(number, half), _remainder(number, half)
        _compare(nest, (0, 1), _places(block, inside, half, distance))
    return LoweredKernel(ir.LoopNest("order", _WORDS, (), nest.body), (source, target))


class _Chunks:
    """Sorts chunks of rows, each in shared memory, or merges what has been compared before."""

    def __init__(self, keys: Node, chunks: int, size: int) -> None:
        self.keys, self.chunks, self.size = keys, chunks, size
        self.length = keys.shape[-1]
        self.lanes = min(size // 2, _MOST_LANES)
        self.nest = NestBuilder()

    def launch(self, rows: int, source: Node, target: Node) -> LoweredKernel:
        """The launch that reads keys, or words, and writes words, or the places of elements."""
        self.nest = nest = NestBuilder()
        is_first = source is self.keys
        with nest.loop("p", rows * self.chunks, "parallel", counted=True):
            nest.emit(ir.Alloc(_SHARED, self.size, dtypes.int64, "shared"))
            with self._turns(self.size):
                word = self._word() if is_first else _load(_KEYS, self._in_words())
                nest.emit(ir.Store(_SHARED, self._element(), word))
            for run, distance in _network(self.size) if is_first else _merge(2 * self.size)[1:]:
                with self._turns(self.size // 2):
                    _compare(nest, (_SHARED, _SHARED), self._pair(run, distance))
            with self._turns(self.size):
                self._store(isinstance(target.op, Words))
        parameters = ir.Parameter(source.dtype, "read"), _WORDS[1]
        return LoweredKernel(ir.LoopNest("order", parameters, (), nest.body), (source, target))

    @contextmanager
    def _turns(self, count: int) -> Iterator[None]:
        """The loops over some elements or pairs, of which each lane takes several."""
        with (
            self.nest.loop("t", self.lanes, vector=True),
            self.nest.loop("e", count // self.lanes, "unroll", counted=True),
        ):
            yield

    def _terms(self) -> Terms:
        return (_TURN, self.lanes), (_LANE, 1)

    def _element(self) -> ir.Sum:
        return ir.Sum(self._terms(), 0)

    def _pair(self, run: int, distance: int) -> tuple[ir.Sum, ir.Sum]:
        """The places that a lane compares: sums of its turn and of itself, as far as possible."""
        half, lanes = distance or run // 2, self.lanes
        if lanes % half == 0:
            block: Terms = ((_TURN, lanes // half), *_quotient(_LANE, half))
            return _places(block, _remainder(_LANE, half), half, distance)
        turns = half // lanes
        inside = tuple((factor, lanes) for factor, _ in _remainder(_TURN, turns))
        return _places(_quotient(_TURN, turns), (*inside, (_LANE, 1)), half, distance)

    def _in_words(self) -> ir.Sum:
        return ir.Sum(((_TASK, self.size), *self._terms()), 0)

    def _in_row(self) -> Terms:
        chunk = ((factor, self.size) for factor, _ in _remainder(_TASK, self.chunks))
        return (*chunk, *self._terms())

    def _offset(self) -> ir.Sum:
        """The offset of an element in the buffer of keys or places."""
        row = ((factor, self.length) for factor, _ in _quotient(_TASK, self.chunks))
        return ir.Sum((*row, *self._in_row()), 0)

    def _exists(self) -> tuple[ir.Condition, ...]:
        if self.length == self.size * self.chunks:
            return ()
        return (ir.InBounds(ir.Sum(self._in_row(), 0), self.length),)

    def _word(self) -> ir.Expr:
        """An element: its key above its index, which is larger than any other past the end."""
        dtype = self.keys.dtype
        fill = int(dtype.highest)
        key = ir.Load(_KEYS, self._offset(), dtype, self._exists(), fill)
        wide = ir.Apply("cast", (key,), dtypes.int64, dtype)
        above = _apply("left_shift", wide, ir.Number(_NUMBER_BITS, dtypes.int64))
        return _apply("bitwise_or", above, ir.IndexValue(ir.Sum(self._in_row(), 0)))

    def _store(self, as_words: bool) -> None:
        word = _load(_SHARED, self._element())
        if as_words:
            self.nest.emit(ir.Store(1, self._in_words(), word))
            return
        # Of shorter rows than 2 ** 31, as all are that a GPU has memory for.
        low = ir.Apply("cast", (word,), dtypes.int32, dtypes.int64)
        place = ir.Apply("cast", (low,), dtypes.int64, dtypes.int32)
        self.nest.emit(ir.Store(1, self._offset(), place, self._exists()))


def _merge(run: int) -> list[tuple[int, int]]:
    """The steps that merge the sorted halves of runs: the length of a run, and a distance.

    The first one compares elements at the same distance from both ends of a run, here 0.
    """
    return [(run, 0), *((run, run >> k) for k in range(2, run.bit_length()))]


def _network(size: int) -> list[tuple[int, int]]:
    """The steps that sort: they merge longer and longer runs."""
    return [step for k in range(1, size.bit_length()) for step in _merge(1 << k)]


def _places(block: Terms, inside: Terms, half: int, distance: int) -> tuple[ir.Sum, ir.Sum]:
    """The two elements of a comparison: `inside` counts those of a block of twice `half`."""
    start = tuple((factor, 2 * half * coefficient) for factor, coefficient in block)
    first = ir.Sum((*start, *inside), 0)
    if distance:
        return first, first._replace(constant=distance)
    mirrored = tuple((factor, -coefficient) for factor, coefficient in inside)
    return first, ir.Sum((*start, *mirrored), 2 * half - 1)


def _quotient(index: ir.LoopIndex, divisor: int) -> Terms:
    dividend = ir.Sum(((index, 1),), 0)
    return ((index if divisor == 1 else ir.QuotientIndex(dividend, divisor), 1),)


def _remainder(index: ir.LoopIndex, divisor: int) -> Terms:
    dividend = ir.Sum(((index, 1),), 0)
    return () if divisor == 1 else ((ir.RemainderIndex(dividend, divisor), 1),)


def _compare(nest: NestBuilder, buffers: tuple[int, int], places: tuple[ir.Sum, ir.Sum]) -> None:
    """Puts the smaller of two words first, from one buffer to another."""
    source, target = buffers
    words = [ir.Name(name, dtypes.int64) for name in ("low", "high")]
    for word, place in zip(words, places):
        nest.emit(ir.Let(word.name, _load(source, place)))
    for function, place in zip(("minimum", "maximum"), places):
        nest.emit(ir.Store(target, place, _apply(function, *words)))


def _load(buffer: int, place: ir.Sum) -> ir.Load:
    return ir.Load(buffer, place, dtypes.int64)


def _apply(function: str, *operands: ir.Expr) -> ir.Expr:
    return ir.Apply(function, operands, dtypes.int64, dtypes.int64)
