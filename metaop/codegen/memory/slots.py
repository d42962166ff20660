"""The numbering of a program's buffers: one slot for every input, output and temporary."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import cache

import numpy as np

from metaop.codegen.schedule import Schedule
from metaop.unified_graph.dtype import DType
from metaop.unified_graph.node import Input, Node

_SCALAR_FORMATS = {
    "bool": "<?", "uint8": "<B", "int8": "<b", "int16": "<h", "int32": "<i", "int64": "<q",
    "float16": "<e", "float32": "<f", "float64": "<d",
}  # fmt: skip
SCALAR_BYTES = 8


class Slots:
    """Slots hold the inputs, then the distinct outputs, then the temporaries.

    `made` are the sizes of the outputs to allocate. `results` says of each result of the program
    whether it is an input passed through, and the number of that input or allocated output.
    """

    def __init__(self, schedule: Schedule) -> None:
        self.of: dict[Node, int] = {node: k for k, node in enumerate(schedule.inputs)}
        self.input_types = [node.dtype for node in schedule.inputs]
        self.made: list[int] = []
        self.results: list[tuple[bool, int]] = []
        first = len(schedule.inputs)
        for node in schedule.outputs:
            if isinstance(node.op, Input):
                self.results.append((True, self.of[node]))
                continue
            if node not in self.of:
                self.of[node] = first + len(self.made)
                self.made.append(node.nbytes)
            self.results.append((False, self.of[node] - first))
        start = first + len(self.made)
        for k, node in enumerate(schedule.temporaries):
            self.of[node] = start + k
        self.temporaries = slice(start, start + len(schedule.temporaries))
        self.count = start + len(schedule.temporaries)
        self._offsets = schedule.offsets

    @property
    def offsets(self) -> np.ndarray:
        """The offsets of the temporaries in the arena, in bytes."""
        return np.array(self._offsets, np.int64)


class ScalarPacker:
    """Python numbers of some types as bytes, `SCALAR_BYTES` for each of them."""

    def __init__(self, dtypes: Sequence[DType]) -> None:
        self._dtypes = dtypes
        formats = [_SCALAR_FORMATS[dtype.name] for dtype in dtypes if dtype.itemsize != 2]
        sizes = [SCALAR_BYTES - struct.calcsize(one) for one in formats]
        padded = "".join(f"{one[1]}{size}x" for one, size in zip(formats, sizes))
        self._all_at_once = struct.Struct("<" + padded) if len(formats) == len(dtypes) else None

    def pack(self, numbers: Sequence[int | float | bool]) -> bytes:
        """The concatenation of `pack_scalar` of the numbers."""
        if self._all_at_once is not None:
            try:
                return self._all_at_once.pack(*numbers)
            except (struct.error, OverflowError):
                pass  # a number that its type cannot hold as it is
        return b"".join(map(pack_scalar, numbers, self._dtypes))


@cache
def packer_of(dtypes: tuple[DType, ...]) -> ScalarPacker:
    """The packer of some types, which programs of one structure share for all sizes."""
    return ScalarPacker(dtypes)


def pack_scalar(number: int | float | bool, dtype: DType) -> bytes:
    """A Python number as eight bytes that begin with its value of type `dtype`."""
    if dtype.kind == "int":
        bits = 8 * dtype.itemsize
        value = int(number) & ((1 << bits) - 1)
        return value.to_bytes(SCALAR_BYTES, "little")
    pattern = _SCALAR_FORMATS.get(dtype.name)
    if pattern is None or dtype.itemsize == 2:
        return np.asarray(number).astype(dtype.numpy).tobytes().ljust(SCALAR_BYTES, b"\0")
    try:
        return struct.pack(pattern, number).ljust(SCALAR_BYTES, b"\0")
    except OverflowError:
        return np.asarray(number).astype(dtype.numpy).tobytes().ljust(SCALAR_BYTES, b"\0")
