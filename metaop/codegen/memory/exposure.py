"""Memory that objects outside of the framework show too: arrays of users, and those lent to them.

What such objects show changes whenever their users write it, and they expect to see what tensors
write. So whether one of them still exists decides how a value is read and written (see
`metaop.tensor.exposed`).
"""

from __future__ import annotations

from collections.abc import Callable
from sys import getrefcount
from typing import Any
from weakref import finalize, ref

import numpy as np


class Exposure:
    """Which arrays show a buffer's memory, apart from one that owns it.

    `times` says how often it was lent to arrays while there were none. `copy` is for users of the
    class: a copy of the values that was made for reading.
    """

    __slots__ = ("copy", "times", "_lent")

    def __init__(self) -> None:
        self.times = 0
        # All arrays that were lent are views of this one.
        self._lent: Callable[[], np.ndarray | None] = _nothing
        self.copy: Any = None

    @property
    def is_shown(self) -> bool:
        """Whether an array that was lent still exists."""
        return self._lent() is not None

    def shown(self, buffer: Any) -> np.ndarray:
        """The bytes of the buffer as an array that is known here."""
        lent = self._lent()
        if lent is None:
            lent = np.asarray(buffer)
            self._lent = ref(lent)
            self.times += 1
        return lent

    def keep(self, buffer: Any) -> None:
        """Keeps another buffer alive as long as the arrays that were lent."""
        lent = self._lent()
        if lent is not None:
            finalize(lent, _nothing, buffer).atexit = False


def _nothing(*held: object) -> None:
    return None


class _Holder:
    """Measures the reference count of an object that only another object and a name hold."""

    def __init__(self) -> None:
        self.memory = object()


def _count(holder: Any) -> int:
    owner = holder.memory
    return getrefcount(owner)


_HELD_ONCE = _count(_Holder())


def is_held(buffer: Any) -> bool:
    """Whether anything but the buffer holds the owner of its memory, or what is behind the owner.

    What other objects than arrays do with their memory nobody knows: it counts as held. So does
    memory of a buffer, whose tensor may be written.
    """
    owner = buffer.memory
    while isinstance(owner, (np.ndarray, memoryview)):
        if getrefcount(owner) > _HELD_ONCE:
            return True
        owner = owner.obj if isinstance(owner, memoryview) else owner.base
    return owner is not None
