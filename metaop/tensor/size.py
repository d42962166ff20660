"""`Size`: the type of shapes that users see."""

from __future__ import annotations


class Size(tuple):
    """A shape: a tuple of ints with `numel()`."""

    def numel(self) -> int:
        total = 1
        for extent in self:
            total *= extent
        return total

    def __repr__(self) -> str:
        return f"metaop.Size({list(self)})"
