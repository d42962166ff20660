"""A budget of memory for programs, and the search for launches that keep to it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from metaop.codegen.schedule import Schedule, donations
from metaop.codegen.stages import plan_memory
from metaop.codegen.transforms.freeing import free_early
from metaop.codegen.transforms.reruns import NoRoomError, Order, Program
from metaop.errors import MemoryBudgetError
from metaop.settings import bytes_of, get, text_of_bytes
from metaop.unified_graph.node import Input

# The powers of the time that a value would wait with which orders are tried.
_PATIENCE = (1.0, 0.5, 0.0)
# A plan takes a little more than what is alive, so lower limits are tried as well, so many in all.
_LIMITS = 4
# What fits at least is looked for in so many steps.
_STEPS = 6


class Budget(threading.local):
    """The budget of a thread in bytes, 0 for none; None: what METAOP_MEMORY_BUDGET says."""

    nbytes: int | None = None


budget = Budget()


def present_budget() -> int:
    """The bytes that a program may take at present; 0 where there is no budget."""
    if budget.nbytes is not None:
        return budget.nbytes
    # Every run asks, and reading a setting takes some microseconds.
    return get("METAOP_MEMORY_BUDGET") if "METAOP_MEMORY_BUDGET" in os.environ else 0


@contextmanager
def budgeted(size: int | str | None) -> Iterator[None]:
    """Has programs that are made inside of the block keep to a budget; None: to none."""
    before, nbytes = budget.nbytes, 0 if size is None else bytes_of(size)
    budget.nbytes = nbytes
    try:
        yield
    finally:
        budget.nbytes = before


def planned_bytes(schedule: Schedule) -> int:
    """What a program with a memory plan takes: its arena, and results with memory of their own."""
    return schedule.arena_bytes + _bytes_of_results(schedule)


def _bytes_of_results(schedule: Schedule) -> int:
    made = {node for node in schedule.outputs if not isinstance(node.op, Input)}
    return sum(node.nbytes for node in made.difference(donations(schedule)))


def within_budget(schedule: Schedule, keep_all: Callable[[], Schedule]) -> Schedule:
    """The schedule, if it keeps to its budget, or one that does and takes the least work.

    `keep_all` makes the schedule in which the graph computes nothing twice. Raises
    `MemoryBudgetError` where the search finds no launches that keep to the budget.
    """
    limit = schedule.budget
    planned = planned_bytes(plan_memory(schedule)) if limit else 0
    if planned <= limit:
        return schedule
    plain = [schedule, keep_all()]
    searches = [_Search(one) for one in (*plain, *map(free_early, plain))]
    found = [one for search in searches for one in search.within(limit)]
    if found:
        return min(found, key=lambda one: one.cost).schedule
    least = min(planned, *(search.least(limit, planned) for search in searches))
    raise MemoryBudgetError(
        f"a program takes {text_of_bytes(planned)}, and {text_of_bytes(least)} if values are "
        f"computed again, but its budget is {text_of_bytes(limit)}",
        fix=f"set a budget of at least {text_of_bytes(least)}, or take smaller batches",
    )


class _Found(NamedTuple):
    """A schedule with the bytes that it takes, and its work."""

    nbytes: int
    cost: float
    schedule: Schedule


class _Search:
    """Tries to run launches of a schedule again."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._program = Program(schedule)
        self._results = _bytes_of_results(schedule)

    def within(self, nbytes: int) -> Sequence[_Found]:
        """Schedules that take no more than so many bytes."""
        found = (self._within(nbytes, patience) for patience in _PATIENCE)
        return [one for one in found if one is not None]

    def least(self, low: int, high: int) -> int:
        """The least bytes between two bounds that a schedule takes; the upper one if none does."""
        for _ in range(_STEPS):
            middle = (low + high) // 2
            fitting = self.within(middle)
            if fitting:
                high = min(one.nbytes for one in fitting)
            else:
                low = middle
        return high

    def _within(self, nbytes: int, patience: float) -> _Found | None:
        limit = nbytes - self._results
        for _ in range(_LIMITS):
            try:
                order = Order(self._program, limit, patience)
            except NoRoomError:
                return None
            schedule = self._schedule._replace(launches=order.launches())
            found = planned_bytes(plan_memory(schedule))
            if found <= nbytes:
                return _Found(found, self._program.cost + order.cost, schedule)
            limit -= found - nbytes
        return None
