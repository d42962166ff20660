"""Which results of a nest may take the memory of an operand that nobody needs afterwards."""

from __future__ import annotations

from dataclasses import dataclass, field

from metaop.codegen import loop_nest as ir

Path = tuple[int, ...]


@dataclass
class _Accesses:
    """Where each buffer is read and written: the offset, the loop body, and the time in it.

    Neighbouring stores happen at one time, because their values are all computed first.
    """

    reads: dict[int, list[tuple[ir.Sum, Path, int]]] = field(default_factory=dict)
    writes: dict[int, list[tuple[ir.Sum, Path, int]]] = field(default_factory=dict)


def exact_pairs(nest: ir.LoopNest) -> set[tuple[int, int]]:
    """Pairs (written buffer, read buffer) of which the written one may overwrite the read one.

    Every read happens at the element that the same iteration writes afterwards, so no iteration
    sees what another one has written. The buffers have elements of one size.
    """
    accesses = _Accesses()
    _collect(nest.body, (), accesses)
    sizes = [parameter.dtype.itemsize for parameter in nest.parameters]
    pairs: set[tuple[int, int]] = set()
    for written, places in accesses.writes.items():
        if written < 0 or len(places) != 1 or written in accesses.reads:
            continue
        offset, path, time = places[0]
        for read, sources in accesses.reads.items():
            is_parameter = read >= 0 and nest.parameters[read].role == "read"
            is_exact = all((o, p) == (offset, path) and t <= time for o, p, t in sources)
            if is_parameter and sizes[read] == sizes[written] and is_exact:
                pairs.add((written, read))
    return pairs


def may_fail(nest: ir.LoopNest) -> bool:
    """Whether the nest checks indices, so that a run may stop at it."""
    pending = list(nest.body)
    while pending:
        statement = pending.pop()
        if isinstance(statement, ir.CheckedIndex):
            return True
        if isinstance(statement, ir.For):
            pending.extend(statement.body)
    return False


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
                # It reads what it writes, under indices that may meet.
                accesses.reads.setdefault(statement.buffer, [])
            _read(statement.value, path, time, accesses)
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
            _read(statement.value, path, time, accesses)


def _read(expr: ir.Expr, path: Path, time: int, accesses: _Accesses) -> None:
    stack = [expr]
    seen: set[int] = set()
    while stack:
        current = stack.pop()
        if id(current) in seen:
            continue
        seen.add(id(current))
        if isinstance(current, ir.Load):
            accesses.reads.setdefault(current.buffer, []).append((current.offset, path, time))
        elif isinstance(current, ir.Apply):
            stack.extend(current.operands)
        elif isinstance(current, ir.Choose):
            stack += [current.value, current.otherwise]
