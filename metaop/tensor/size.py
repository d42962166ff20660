"""`Size`: the type of shapes that users see."""

from __future__ import annotations

from typing import Any


class Size(tuple):
    """A shape: a tuple of ints with `numel()`; its slices, sums and multiples are shapes too.

    >>> shape = metaop.Size((2, 3, 4))
    >>> shape.numel(), shape[1:], (5,) + shape[:1]
    (24, metaop.Size([3, 4]), metaop.Size([5, 2]))
    """

    def __getitem__(self, index: Any) -> Any:
        found = tuple.__getitem__(self, index)
        return Size(found) if isinstance(index, slice) else found

    def __add__(self, other: Any) -> Any:
        return Size(tuple.__add__(self, other)) if isinstance(other, tuple) else NotImplemented

    def __radd__(self, other: Any) -> Any:
        return Size(tuple.__add__(other, self)) if isinstance(other, tuple) else NotImplemented

    def __mul__(self, count: Any) -> Size:
        return Size(tuple.__mul__(self, count))

    __rmul__ = __mul__

    def numel(self) -> int:
        total = 1
        for extent in self:
            total *= extent
        return total

    def __repr__(self) -> str:
        return f"metaop.Size({list(self)})"
