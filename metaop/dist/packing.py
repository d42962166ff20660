"""Several arrays as one: side by side at aligned offsets, without copying them together."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import numpy as np

_ALIGNMENT = 64


class Packing:
    """The positions of arrays of given shapes in a flat array of `size` elements.

    Each starts at an aligned address, so that it can be used in place.
    """

    def __init__(self, shapes: Sequence[tuple[int, ...]], dtype: np.dtype) -> None:
        self.shapes, self.dtype = list(shapes), dtype
        line = _ALIGNMENT // dtype.itemsize
        self.sizes = [int(np.prod(shape, dtype=np.int64)) for shape in shapes]
        rooms = [-(-size // line) * line for size in self.sizes]
        self.starts = [0, *np.cumsum(rooms, dtype=np.int64).tolist()]
        self.size: int = self.starts[-1]

    def parts(self, flat: np.ndarray) -> list[np.ndarray]:
        """The arrays in `flat`."""
        return [
            flat[start : start + size].reshape(shape)
            for start, size, shape in zip(self.starts, self.sizes, self.shapes)
        ]


class Packed:
    """Arrays laid out by a packing, with zeros between them."""

    def __init__(self, packing: Packing, arrays: Sequence[np.ndarray]) -> None:
        self.packing = packing
        self.arrays = [array.reshape(-1) for array in arrays]
        self.size, self.dtype = packing.size, packing.dtype

    @classmethod
    def alone(cls, array: np.ndarray) -> Packed:
        """Packs one array."""
        packing = Packing([(array.size,)], array.dtype)
        packing.size = array.size
        return cls(packing, [array])

    def copy(self, low: int, high: int, target: np.ndarray) -> None:
        """Copies the elements from `low` to `high` to the start of `target`."""
        starts = self.packing.starts
        number = bisect_right(starts, low) - 1
        at = low
        while at < high:
            array, start = self.arrays[number], starts[number]
            end = min(high, starts[number + 1])
            stop = max(at, min(end, start + array.size))
            target[at - low : stop - low] = array[at - start : stop - start]
            target[stop - low : end - low] = 0
            at, number = end, number + 1

    def piece(self, low: int, high: int, spare: np.ndarray) -> np.ndarray:
        """The elements from `low` to `high`, in place for one array, in `spare` for several."""
        number = bisect_right(self.packing.starts, low) - 1
        array, start = self.arrays[number], self.packing.starts[number]
        if high <= start + array.size:
            return array[low - start : high - start]
        self.copy(low, high, spare)
        return spare

    def flat(self) -> np.ndarray:
        """Everything in one array; several arrays are copied."""
        if len(self.arrays) == 1 and self.arrays[0].size == self.size:
            return self.arrays[0]
        whole = np.empty_like(self.arrays[0], shape=(self.size,))
        self.copy(0, self.size, whole)
        return whole
