"""Checks of a nest: every access is within its buffer, and every element is written before a read.

A nest computes immutable values, so a buffer that it writes has one value per element, and every
read needs the value after the write. The rules:

- every index is within its buffer wherever its conditions hold;
- an element of a buffer that the nest writes, or of scratch memory, is read after it was written,
  by the same task, in either order of lanes: one after another, and side by side;
- no two tasks write one element, and none reads what another one writes;
- a result that takes the memory of an operand is written, element by element, after that element
  of the operand was read, by the same task.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from metaop.codegen.nest import ir
from metaop.codegen.nest.accesses import NO_TASK, Access, Order, Survey, survey
from metaop.codegen.nest.show import show_nest, show_statement
from metaop.errors import InternalError

_NEVER = np.iinfo(np.int64).max
_NOBODY = NO_TASK - 1


class VerificationError(InternalError):
    """A pass made a program that would compute wrong values. It is a bug in the compiler."""


class Touched(NamedTuple):
    """The elements of each parameter that a nest reads, and those that it writes.

    They are flags; None means a nest too large to check completely. A buffer that is read at
    data-dependent indices counts as read completely.
    """

    read: Mapping[int, np.ndarray | None]
    written: Mapping[int, np.ndarray | None]


class _Elements(NamedTuple):
    """For each element of a buffer when it is first written, and by which task."""

    times: Order
    tasks: np.ndarray


def verify_nest(
    nest: ir.LoopNest, sizes: Sequence[int], in_place: Iterable[tuple[int, int]] = ()
) -> Touched:
    """Checks a nest whose parameters have these numbers of elements.

    `in_place` pairs the results with the operands whose memory they take. Raises
    `VerificationError`, which shows the nest and the statement.
    """
    found = survey(nest)
    extents = {**dict(enumerate(sizes)), **found.scratch}
    for access in found.accesses:
        _check_bounds(nest, access, extents[access.buffer])
    if found.is_complete:
        for buffer in dict.fromkeys(access.buffer for access in found.accesses):
            _check_order(nest, found, buffer, extents[buffer])
        for written, read in in_place:
            _check_in_place(nest, found, written, read, extents[written])
    return _touched(nest, found, sizes)


def _check_bounds(nest: ir.LoopNest, access: Access, size: int) -> None:
    low, high = int(access.offsets.min()), int(access.offsets.max())
    if low < 0 or high >= size:
        beyond = low if low < 0 else high
        _refuse(nest, access.statement, f"element {beyond} of b{access.buffer}, which has {size}")


def _check_order(nest: ir.LoopNest, found: Survey, buffer: int, size: int) -> None:
    """Elements that the nest writes are written by one task, and read after it wrote them."""
    accesses = [one for one in found.accesses if one.buffer == buffer and one.is_exact]
    if buffer < 0:
        _check_scratch(nest, accesses, size)
        return
    writes = [one for one in accesses if one.kind == "write"]
    if writes:
        elements = _first_writes(nest, writes, size)
        for access in accesses:
            if access.kind == "read":
                known = elements.times.serial[access.offsets] != _NEVER
                foreign = known & (elements.tasks[access.offsets] != access.tasks)
                if foreign.any():
                    what = "is read by a task that does not write it"
                    _refuse_at(nest, access, foreign, what)
                _check_read(nest, access, access.offsets, elements.times)


def _check_scratch(nest: ir.LoopNest, accesses: Sequence[Access], size: int) -> None:
    """Scratch memory is written before it is read, by the first task as by the last one."""
    tasks = [one.tasks for one in accesses if one.tasks.size]
    last = max((int(numbers.max()) for numbers in tasks), default=NO_TASK)
    for task in {min(last, 0), last}:
        own = [_of_task(one, task) for one in accesses]
        writes = [one for one in own if one.kind == "write"]
        times = _first_times(writes, size)
        for access in own:
            if access.kind == "read":
                never = times.serial[access.offsets] == _NEVER
                if never.any():
                    _refuse_at(nest, access, never, "is read, but never written")
                _check_read(nest, access, access.offsets, times)


def _of_task(access: Access, task: int) -> Access:
    """The part of an access that a task makes, including statements before all tasks."""
    own = (access.tasks == task) | (access.tasks == NO_TASK)
    return access if own.all() else access.part(own)


def _check_read(nest: ir.LoopNest, access: Access, at: np.ndarray, written: Order) -> None:
    for first, now in zip(written, access.times):
        early = (first[at] != _NEVER) & (first[at] >= now)
        if early.any():
            _refuse_at(nest, access, early, "is read before it is written")


def _first_times(writes: Sequence[Access], size: int) -> Order:
    """When each element is first written."""
    times = Order(np.full(size, _NEVER), np.full(size, _NEVER))
    for access in writes:
        for first, now in zip(times, access.times):
            np.minimum.at(first, access.offsets, now)
    return times


def _first_writes(nest: ir.LoopNest, writes: Sequence[Access], size: int) -> _Elements:
    """When each element is first written, and by which task."""
    tasks = np.full(size, _NOBODY, np.int64)
    for access in writes:
        known = tasks[access.offsets]
        tasks[access.offsets] = access.tasks
        foreign = (known != _NOBODY) & (known != access.tasks)
        foreign |= tasks[access.offsets] != access.tasks
        if foreign.any():
            _refuse_at(nest, access, foreign, "is written by two tasks")
    return _Elements(_first_times(writes, size), tasks)


def _check_in_place(nest: ir.LoopNest, found: Survey, written: int, read: int, size: int) -> None:
    """A result may take the memory of an operand."""
    writes = [one for one in found.accesses if one.buffer == written and one.kind != "read"]
    elements = _first_writes(nest, writes, size)
    for access in found.accesses:
        if access.buffer == read:
            at = access.offsets
            known = elements.times.serial[at] != _NEVER
            foreign = known & (elements.tasks[at] != access.tasks)
            if foreign.any() or not access.is_exact:
                what = f"is read by another task than the one that writes b{written} over it"
                _refuse_at(nest, access, foreign, what)
            for first, now in zip(elements.times, access.times):
                late = known & (first[at] <= now)
                if late.any():
                    _refuse_at(nest, access, late, f"is read after b{written} is written over it")


def _touched(nest: ir.LoopNest, found: Survey, sizes: Sequence[int]) -> Touched:
    calls = (x for x in ir.simple_statements(nest.body) if isinstance(x, ir.ForeignCall))
    foreign = {buffer for call in calls for buffer in call.buffers}
    read: dict[int, np.ndarray | None] = {}
    written: dict[int, np.ndarray | None] = {}
    for number, (parameter, size) in enumerate(zip(nest.parameters, sizes)):
        accesses = [one for one in found.accesses if one.buffer == number]
        if parameter.role == "read":
            # Of data-dependent places only those that were tried count: others may be in a part of
            # the memory that a later launch writes.
            read[number] = None if number in foreign else _flags(size, accesses, False)
            continue
        if parameter.role == "update":
            updates = [one for one in accesses if one.kind == "update"]
            read[number] = _flags(size, updates, not all(one.is_exact for one in updates))
        is_known = found.is_complete and number not in foreign
        is_known = is_known and all(one.is_exact for one in accesses if one.kind == "write")
        writes = [one for one in accesses if one.kind != "read"]
        written[number] = _flags(size, writes, False) if is_known else None
    return Touched(read, written)


def _flags(size: int, accesses: Iterable[Access], whole: bool) -> np.ndarray:
    flags = np.full(size, whole)
    for access in accesses:
        flags[access.offsets] = True
    return flags


def _refuse_at(nest: ir.LoopNest, access: Access, wrong: np.ndarray, what: str) -> None:
    element = access.offsets[wrong][0] if wrong.any() else access.offsets[0]
    _refuse(nest, access.statement, f"element {element} of b{access.buffer} {what}")


def _refuse(nest: ir.LoopNest, statement: ir.Statement, what: str) -> None:
    text = f"{what}\nat: {show_statement(statement)}\n{show_nest(nest)}"
    raise VerificationError(f"the compiler made a wrong kernel: {text}")
