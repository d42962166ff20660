"""Intern tables, which hold one object per content and keep only a bounded number alive."""

from __future__ import annotations

import operator
import threading
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import numpy as np

from metaop.forking import register_at_fork

T = TypeVar("T")
Kind = TypeVar("Kind", bound=tuple)

_KEPT = 1 << 16
_adding = threading.RLock()


class WeakTable(WeakValueDictionary[tuple, T]):
    """The objects that are in use, by content."""

    def add(self, key: tuple, value: T) -> T:
        """Adds a new object, and returns the one to use: another thread's if that was faster."""
        with _adding:
            return self.setdefault(key, value)


def _unlock() -> None:
    global _adding
    _adding = threading.RLock()


# A thread of the parent, which may have held the lock, does not exist in the child.
register_at_fork(after_in_child=_unlock)


class InternTable(dict[tuple, T]):
    """The objects that are in use, by content, and the latest others.

    Lookups try the dictionary itself first. It keeps objects alive, so it is cleared once it has
    `kept` of them. Objects that nothing else holds are then dropped, so a process that keeps
    meeting new shapes does not grow. Objects in use are found again, so they stay unique.

        found = table.get(key) or table.revive(key)
        if found is None:
            table.add(key, make())
    """

    __slots__ = ("_in_use", "_kept")

    def __init__(self, kept: int = _KEPT) -> None:
        super().__init__()
        self._in_use: WeakTable[T] = WeakTable()
        self._kept = kept

    def revive(self, key: tuple) -> T | None:
        """The object that is in use under a key, if it is no longer among the latest."""
        found = self._in_use.get(key)
        if found is not None:
            self._keep(key, found)
        return found

    def add(self, key: tuple, value: T) -> T:
        """Adds a new object, and returns the one to use: another thread's if that was faster."""
        value = self._in_use.add(key, value)
        self._keep(key, value)
        return value

    def _keep(self, key: tuple, value: T) -> None:
        if len(self) >= self._kept:
            self.clear()
        self[key] = value


def with_plain_numbers(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """The values with Python's numbers for NumPy's, also in tuples within.

    They are equal, so whichever came first would be kept for both; and what is worked out from the
    numbers of NumPy wraps around, and lacks the methods of symbolic ones.
    """
    plain = tuple([_plain(value) for value in values])
    return values if all(map(operator.is_, plain, values)) else plain


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    return with_plain_numbers(value) if type(value) is tuple else value


def never_equal_to_others(kind: type[Kind]) -> type[Kind]:
    """Makes named tuples of a class unequal to those of other classes with equal fields.

    Without it, a lookup of `0 <= i < 7` would find `i % 7 == 0`.
    """

    def equal(self: tuple, other: object) -> bool:
        return self.__class__ is other.__class__ and tuple.__eq__(self, other)

    kind.__eq__ = equal  # type: ignore[assignment, method-assign]
    kind.__ne__ = lambda self, other: not equal(self, other)  # type: ignore
    kind.__hash__ = tuple.__hash__  # type: ignore[assignment, method-assign]
    return kind
