"""Memory budgets of programs, and the search for launches that keep within them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from metaop.codegen.schedule import Schedule, donations
from metaop.codegen.stages import plan_memory
from metaop.codegen.transforms.freeing import free_early
from metaop.codegen.transforms.reruns import NoRoomError, Order, Program
from metaop.errors import MemoryBudgetError
from metaop.settings import bytes_of, get, text_of_bytes
from metaop.unified_graph.node import Input

# The search tries these exponents of the time that a value would wait.
_PATIENCE = (1.0, 0.5, 0.0)
# A plan needs slightly more than the live bytes, so this many limits in all are tried.
_LIMITS = 4
# The number of steps of the search for the smallest budget that fits.
_STEPS = 6


class Budget(threading.local):
    """The budget of a thread in bytes, 0 for none; None defers to METAOP_MEMORY_BUDGET.

    Programs may spill values to `folder`, if there is one; None defers to METAOP_SPILL.
    """

    nbytes: int | None = None
    folder: str | None = None

    @property
    def key(self) -> tuple[int, str | None] | None:
        """What programs depend on; None where nothing was set in Python."""
        return None if self.nbytes is None else (self.nbytes, self.folder)


budget = Budget()


def current_budget() -> int:
    """The current budget of a program in bytes; 0 if there is none."""
    if budget.nbytes is not None:
        return budget.nbytes
    # Every run calls this, and reading a setting takes some microseconds.
    return get("METAOP_MEMORY_BUDGET") if "METAOP_MEMORY_BUDGET" in os.environ else 0


def current_folder() -> str:
    """The folder to which programs under a budget may spill values; empty if there is none."""
    if budget.folder is not None:
        return budget.folder
    found: str = get("METAOP_SPILL")
    return str(Path(found).expanduser()) if found else ""


@contextmanager
def budgeted(size: int | str | None, folder: str | None = None) -> Iterator[None]:
    """Sets the budget of programs that are compiled inside the block; None for no budget.

    They may spill values to the folder, if there is one.
    """
    before = budget.nbytes, budget.folder
    budget.nbytes = 0 if size is None else bytes_of(size)
    if folder is not None:
        budget.folder = folder
    try:
        yield
    finally:
        budget.nbytes, budget.folder = before


def planned_bytes(schedule: Schedule) -> int:
    """The bytes of a program with a memory plan: its arena, and results with their own memory."""
    return schedule.arena_bytes + _bytes_of_results(schedule)


def _bytes_of_results(schedule: Schedule) -> int:
    made = {node for node in schedule.outputs if not isinstance(node.op, Input)}
    return sum(node.nbytes for node in made.difference(donations(schedule)))


def within_budget(schedule: Schedule, keep_all: Callable[[], Schedule]) -> Schedule:
    """The schedule if it is within its budget, else the one within it that takes the least time.

    `keep_all` makes the schedule in which the graph computes nothing twice. Raises
    `MemoryBudgetError` if the search finds no launches within the budget.
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
    others = [one for search in searches if (one := search.least(limit, planned)) is not None]
    smallest = min(others, key=lambda one: one.nbytes, default=_Found(planned, 0.0, schedule))
    if smallest.nbytes <= limit:
        return smallest.schedule
    least = min(planned, smallest.nbytes)
    how = "computed again or spilled" if current_folder() else "computed again"
    raise MemoryBudgetError(
        f"a program takes {text_of_bytes(planned)}, and {text_of_bytes(least)} if values are "
        f"{how}, but its budget is {text_of_bytes(limit)}",
        fix=f"set a budget of at least {text_of_bytes(least)}, or take smaller batches",
    )


class _Found(NamedTuple):
    """A schedule with its bytes and its work."""

    nbytes: int
    cost: float
    schedule: Schedule


class _Search:
    """Searches for launches of a schedule to run again."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._program = Program(schedule)
        self._results = _bytes_of_results(schedule)
        self._spills = bool(current_folder())

    def within(self, nbytes: int) -> Sequence[_Found]:
        """Schedules within a number of bytes."""
        found = (self._within(nbytes, patience) for patience in _PATIENCE)
        return [one for one in found if one is not None]

    def least(self, low: int, high: int) -> _Found | None:
        """The smallest schedule that is found within numbers of bytes between two bounds.

        It may be below the lower one: a smaller limit can lead to an order that takes less.
        """
        best = None
        for _ in range(_STEPS):
            middle = (low + high) // 2
            fitting = self.within(middle)
            if fitting:
                best = min(fitting, key=lambda one: one.nbytes)
                high = best.nbytes
            else:
                low = middle
        return best

    def _within(self, nbytes: int, patience: float) -> _Found | None:
        limit = nbytes - self._results
        for _ in range(_LIMITS):
            try:
                order = Order(self._program, limit, patience, self._spills)
            except NoRoomError:
                return None
            schedule = self._schedule._replace(launches=order.launches())
            found = planned_bytes(plan_memory(schedule))
            if found <= nbytes:
                return _Found(found, self._program.cost + order.cost, schedule)
            limit -= found - nbytes
        return None
