"""Tables of things that exist once by their content, bounded in what they keep alive."""

from __future__ import annotations

from typing import TypeVar
from weakref import WeakValueDictionary

T = TypeVar("T")

_KEPT = 1 << 16


class InternTable(dict[tuple, T]):
    """What is in use, by content, and the latest things besides.

    The dictionary itself is what lookups try first. It keeps things alive, so it is emptied when
    it has `kept` of them: what nothing else holds is forgotten then, and a process that meets
    ever new shapes does not grow. What is in use is found again, so it stays the only one.

        found = table.get(key) or table.revive(key)
        if found is None:
            table.add(key, make())
    """

    __slots__ = ("_in_use", "_kept")

    def __init__(self, kept: int = _KEPT) -> None:
        super().__init__()
        self._in_use: WeakValueDictionary[tuple, T] = WeakValueDictionary()
        self._kept = kept

    def revive(self, key: tuple) -> T | None:
        """What is in use under a key that is not among the latest."""
        found = self._in_use.get(key)
        if found is not None:
            self._keep(key, found)
        return found

    def add(self, key: tuple, value: T) -> T:
        """Enters a new thing and gives the one to use: of another thread, if it was faster."""
        value = self._in_use.setdefault(key, value)
        self._keep(key, value)
        return value

    def _keep(self, key: tuple, value: T) -> None:
        if len(self) >= self._kept:
            self.clear()
        self[key] = value
