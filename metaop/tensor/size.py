"""`Size`: the type of shapes that users see."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

from metaop.errors import ArgumentTypeError
from metaop.unified_graph.symbolic import is_symbolic

# Makes a shape of extents that are known to be integers.
new_size = tuple.__new__


class Size(tuple):
    """A shape: a tuple of ints with `numel()`; its slices, sums and multiples are shapes too.

    Tensors of one integer count as that integer. Raises ArgumentTypeError for what is no integer.

    >>> shape = metaop.Size((2, 3, 4))
    >>> shape.numel(), shape[1:], (5,) + shape[:1]
    (24, metaop.Size([3, 4]), metaop.Size([5, 2]))
    """

    def __new__(cls, iterable: Iterable[Any] = ()) -> Size:
        extents = list(iterable)
        for position, extent in enumerate(extents):
            if type(extent) is not int and not is_symbolic(extent):
                extents[position] = _integer(extent, position)
        return new_size(cls, extents)

    def __getitem__(self, index: Any) -> Any:
        found = tuple.__getitem__(self, index)
        return new_size(Size, found) if isinstance(index, slice) else found

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


def _integer(extent: Any, position: int) -> int:
    try:
        return operator.index(extent)
    except TypeError:
        raise ArgumentTypeError(
            f"Size() takes an iterable of 'int' (item {position} is {type(extent).__name__!r})",
            fix="give whole numbers",
        ) from None
