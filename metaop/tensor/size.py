"""`Size`: the type of shapes that users see."""

from __future__ import annotations

from typing import Any


class Size(tuple):
    """A shape: a tuple of ints with `numel()`; its slices are shapes too.

    >>> shape = metaop.Size((2, 3, 4))
    >>> shape.numel(), shape[1:]
    (24, metaop.Size([3, 4]))
    """

    def __getitem__(self, index: Any) -> Any:
        found = tuple.__getitem__(self, index)
        return Size(found) if isinstance(index, slice) else found

    def numel(self) -> int:
        total = 1
        for extent in self:
            total *= extent
        return total

    def __repr__(self) -> str:
        return f"metaop.Size({list(self)})"
