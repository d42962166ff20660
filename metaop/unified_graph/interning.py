"""Tables of things that exist once by their content, bounded in what they keep alive."""

from __future__ import annotations

from typing import TypeVar
from weakref import WeakValueDictionary

T = TypeVar("T")
Kind = TypeVar("Kind", bound=tuple)

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


def never_equal_to_others(kind: type[Kind]) -> type[Kind]:
    """A class of named tuples that differ from those of other classes with equal fields.

    Others are equal: `i % 7 == 0` would be found where `0 <= i < 7` is looked for.
    """

    def equal(self: tuple, other: object) -> bool:
        return self.__class__ is other.__class__ and tuple.__eq__(self, other)

    kind.__eq__ = equal  # type: ignore[assignment, method-assign]
    kind.__ne__ = lambda self, other: not equal(self, other)  # type: ignore
    kind.__hash__ = tuple.__hash__  # type: ignore[assignment, method-assign]
    return kind
