"""In-place results: which results of a nest may overwrite an operand that dies."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

from metaop.codegen.nest import ir
from metaop.unified_graph.symbolic import SymInt, as_integer, hint_of

Path = tuple[int, ...]


class _Same:
    """A nest as a key: itself, not one that equals it, which takes long to find out."""

    def __init__(self, nest: ir.LoopNest) -> None:
        self.nest = nest

    def __hash__(self) -> int:
        return id(self.nest)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.nest is other.nest


@dataclass
class _Accesses:
    """Where each buffer is read and written: the offset, the loop body, and the time in it.

    Neighbouring stores happen at one time, because their values are all computed first. `sources`
    has the buffers from which names, and values written to buffers, are computed.
    """

    reads: dict[int, list[tuple[ir.Sum, Path, int]]] = field(default_factory=dict)
    writes: dict[int, list[tuple[ir.Sum, Path, int]]] = field(default_factory=dict)
    sources: dict[str | int, set[int]] = field(default_factory=dict)


def exact_pairs(nest: ir.LoopNest) -> list[tuple[int, int]]:
    """Pairs (written buffer, read buffer) such that the written one may overwrite the read one.

    Every read is of the element that the same iteration writes afterwards, so no iteration sees
    what another one has written. The buffers have elements of one size. Results computed from the
    operand come first, and among them those with few such operands, so that a state that a step
    updates stays in place.
    """
    return _exact_pairs(_Same(nest))


@lru_cache(maxsize=1024)
def _exact_pairs(same: _Same) -> list[tuple[int, int]]:
    """The pairs of a nest, which several passes ask for, and for all launches that are alike."""
    nest, accesses = same.nest, _Accesses()
    _collect(nest.body, (), accesses)
    pairs = _pairs(nest, accesses, operator.eq)
    sources = accesses.sources
    own = Counter(written for written, read in pairs if read in sources[written])

    def preference(pair: tuple[int, int]) -> tuple[bool, int, int, int]:
        written, read = pair
        return read not in sources[written], own[written], written, read

    return sorted(pairs, key=preference)


def possible_pairs(nest: ir.LoopNest) -> list[tuple[int, int]]:
    """`exact_pairs` of this nest and of all nests that differ from it only in arguments.

    One kernel serves all of them.
    """
    accesses = _Accesses()
    _collect(nest.body, (), accesses)
    return _pairs(nest, accesses, _may_be_equal)


def _may_be_equal(one: ir.Sum, other: ir.Sum) -> bool:
    """Whether offsets are equal for some arguments."""
    return [factor for factor, _ in one.terms] == [factor for factor, _ in other.terms] and all(
        a == b or isinstance(a, ir.Argument) or isinstance(b, ir.Argument)
        for a, b in zip(_integers(one), _integers(other))
    )


def _integers(offset: ir.Sum) -> list[Any]:
    return [offset.constant, *(coefficient for _, coefficient in offset.terms)]


def _pairs(
    nest: ir.LoopNest, accesses: _Accesses, are_equal: Callable[[ir.Sum, ir.Sum], bool]
) -> list[tuple[int, int]]:
    sizes = [parameter.dtype.itemsize for parameter in nest.parameters]
    pairs: list[tuple[int, int]] = []
    for written, places in accesses.writes.items():
        if written < 0 or len(places) != 1 or written in accesses.reads:
            continue
        offset, path, time = places[0]
        for read, sources in accesses.reads.items():
            is_parameter = read >= 0 and nest.parameters[read].role == "read"
            is_exact = all(p == path and t <= time and are_equal(o, offset) for o, p, t in sources)
            if is_parameter and sizes[read] == sizes[written] and is_exact:
                pairs.append((written, read))
    return pairs


class IndexCheck(NamedTuple):
    """A test of indices against `bound`.

    They are elements of the parameter `buffer`, the first `elements` of it (0 if they are others);
    None means computed indices. If it `wraps`, negative ones count from the end.
    """

    buffer: int | None
    bound: int
    elements: int
    wraps: bool = False


def index_checks(nest: ir.LoopNest) -> Iterator[IndexCheck]:
    """The checks at which a run of the nest may stop."""
    pending: list[tuple[ir.Statement, dict[str, int]]] = [(s, {}) for s in nest.body]
    checks: list[tuple[ir.CheckedIndex, dict[str, int]]] = []
    names: dict[str, ir.Expr] = {}
    while pending:
        statement, extents = pending.pop()
        if isinstance(statement, ir.CheckedIndex):
            checks.append((statement, extents))
        elif isinstance(statement, ir.Let):
            names[statement.name] = statement.value
        elif isinstance(statement, ir.For):
            # A loop whose extent only the run tells may have no iteration.
            extent: Any = statement.extent
            if not isinstance(extent, (int, SymInt)):
                extent = 0
            inner = {**extents, statement.axis: extent}
            pending += [(part, inner) for part in statement.body]
    for check, extents in checks:
        yield _check(check, extents, names)


def _check(
    statement: ir.CheckedIndex, extents: Mapping[str, int], names: Mapping[str, ir.Expr]
) -> IndexCheck:
    value, bound = statement.value, as_integer(statement.bound)
    value = _spelled_out(value, names, {})
    wraps = isinstance(value, ir.Apply) and value.function == "where"
    if wraps:
        value = _from_end(value, bound)  # type: ignore[arg-type]
    if isinstance(value, ir.Apply) and value.function == "cast":
        value = value.operands[0]
    if not isinstance(value, ir.Load) or value.buffer < 0:
        # The nest itself computes what is in scratch memory.
        return IndexCheck(None, bound, 0)
    span = 1
    for factor, coefficient in sorted(value.offset.terms, key=lambda term: hint_of(term[1])):  # type: ignore
        if not isinstance(factor, ir.LoopIndex) or coefficient != span:
            return IndexCheck(value.buffer, bound, 0, wraps)
        span *= extents[factor.axis]
    is_whole = value.offset.constant == 0 and not (statement.conditions or value.conditions)
    is_whole = is_whole and 0 not in extents.values()
    return IndexCheck(value.buffer, bound, span if is_whole else 0, wraps)


def _spelled_out(value: ir.Expr, names: Mapping[str, ir.Expr], done: dict[int, ir.Expr]) -> ir.Expr:
    """An expression with what its names stand for; parts that are `done` are so by identity."""
    if id(value) in done:
        return done[id(value)]
    result = value
    if isinstance(value, ir.Name) and value.name in names:
        result = _spelled_out(names[value.name], names, done)
    elif isinstance(value, ir.Apply):
        parts = tuple(_spelled_out(one, names, done) for one in value.operands)
        result = value._replace(operands=parts)
    done[id(value)] = result
    return result


def _from_end(choice: ir.Apply, bound: int) -> ir.Expr:
    """The index that counts from the end where it is negative; otherwise the choice itself."""
    condition, wrapped, plain = choice.operands
    is_sign = isinstance(condition, ir.Apply) and condition.function == "lt"
    is_moved = isinstance(wrapped, ir.Apply) and wrapped.function == "add"
    if not is_sign or not is_moved:
        return choice
    zero, extent = condition.operands[1], wrapped.operands[1]  # type: ignore[union-attr]
    same = condition.operands[0] == plain == wrapped.operands[0]  # type: ignore[union-attr]
    numbers = isinstance(zero, ir.Number) and isinstance(extent, ir.Number)
    known = numbers and (zero.value, extent.value) == (0, bound)  # type: ignore[union-attr]
    return plain if same and known else choice


def _collect(body: tuple[ir.Statement, ...], path: Path, accesses: _Accesses) -> None:
    time = 0
    for position, statement in enumerate(body):
        follows_store = position and isinstance(body[position - 1], ir.Store)
        if not (follows_store and isinstance(statement, ir.Store)):
            time = position
        if isinstance(statement, ir.For):
            _collect(statement.body, (*path, position), accesses)
        elif isinstance(statement, (ir.Store, ir.Update)):
            places = accesses.writes.setdefault(statement.buffer, [])
            places.append((statement.offset, path, time))
            if isinstance(statement, ir.Update):
                # It reads what it writes, at indices that may coincide.
                accesses.reads.setdefault(statement.buffer, [])
            _read(statement.value, statement.buffer, path, time, accesses)
        elif isinstance(statement, ir.MicroKernel):
            # A panel is read as a whole, so it matches no single element.
            for buffer, offset in (
                (statement.left, statement.left_offset),
                (statement.right, statement.right_offset),
            ):
                accesses.reads.setdefault(buffer, []).append((offset, (*path, position), time))
        elif isinstance(statement, ir.ForeignCall):
            # It may read and write any element.
            for buffer in statement.buffers:
                whole = (ir.Sum((), 0), (*path, position), time)
                accesses.reads.setdefault(buffer, []).append(whole)
        elif isinstance(statement, (ir.Let, ir.CheckedIndex, ir.Accumulate)):
            _read(statement.value, statement.name, path, time, accesses)


def _read(expr: ir.Expr, result: str | int, path: Path, time: int, accesses: _Accesses) -> None:
    """Records the buffers from which a name, or an element of a buffer, is computed."""
    sources = accesses.sources.setdefault(result, set())
    for part in ir.parts_of(expr):
        if isinstance(part, ir.Load):
            accesses.reads.setdefault(part.buffer, []).append((part.offset, path, time))
            sources.add(part.buffer)
        elif isinstance(part, ir.Name):
            sources |= accesses.sources.get(part.name, set())
