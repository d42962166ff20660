"""Collectives between GPUs: NCCL in the place of MPI's, which still agrees on what is done.

Calls are put on the stream of the kernels, so they wait for what they send and are waited for by
what reads it; the host goes on at once. What only moves travels as bytes. Blocks of different
sizes, for which NCCL has no collectives, are a group of broadcasts, reductions or messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from metaop.dist.boxing import Parts
from metaop.dist.collectives import MPIWorld
from metaop.dist.cost import sent_bytes
from metaop.dist.memory import GpuMemory
from metaop.dist.sbp import Broadcast, Partial, Sbp, Split, block
from metaop.errors import UnsupportedError

_TYPES = {
    **{"int8": "INT8", "uint8": "UINT8", "int32": "INT32", "int64": "INT64", "bool": "UINT8"},
    **{"float16": "FLOAT16", "float32": "FLOAT32", "float64": "FLOAT64"},
}
_OPERATIONS = {"add": "SUM", "mul": "PROD", "max": "MAX", "min": "MIN", "and": "MIN", "or": "MAX"}


class Started:
    """A collective that is on the stream, which reads `memory`."""

    def __init__(self, finish: Callable[[], Any], *memory: Any) -> None:
        self._finish = finish
        self._memory = memory

    def is_done(self) -> bool:
        """Kernels that read the result come later on the same stream."""
        return True

    def result(self) -> Any:
        """What this rank holds afterwards."""
        return self._finish()


class NcclWorld(MPIWorld):
    """The ranks of one communicator, each with a GPU; `parts` are arrays on it."""

    def __init__(self, communicator: Any, memory: GpuMemory) -> None:
        super().__init__(communicator)
        self.memory = memory
        self.nccl = memory.nccl
        first = self.rank == 0
        identity = communicator.bcast(self.nccl.get_unique_id() if first else None, 0)
        with memory.device:
            self.link = self.nccl.NcclCommunicator(self.size, identity, self.rank)

    def start(self, parts: Parts, source: Sbp, target: Sbp, shape: Sequence[int]) -> Any:
        """Puts the collective on the stream that takes this rank's part to `target`."""
        part: Any = parts[self.rank]
        itemsize = part.dtype.itemsize
        self.sent += sent_bytes(source, target, shape, itemsize, self.size, self.rank)
        with self.memory.device:
            return self._put(part, source, target, shape)

    def _put(self, part: Any, source: Sbp, target: Sbp, shape: Sequence[int]) -> Started:
        if isinstance(source, Partial):
            if isinstance(target, Split):
                return self._reduce_scatter(part, source, target)
            return self._all_reduce(part, source)
        assert isinstance(source, Split)
        if isinstance(target, Broadcast):
            return self._all_gather(part, source, shape)
        assert isinstance(target, Split)
        return self._all_to_all(part, source, target, shape)

    def _all_reduce(self, part: Any, source: Partial) -> Started:
        part = _in_order(part)
        total = np.empty_like(part)
        reduction = self._reduction(part, source)
        self.link.allReduce(_address(part), _address(total), part.size, *reduction)
        return Started(lambda: total, part)

    def _reduce_scatter(self, part: Any, source: Partial, target: Split) -> Started:
        moved = _in_order(np.moveaxis(part, target.axis, 0))
        blocks = [block(moved.shape[0], self.size, rank) for rank in range(self.size)]
        row = _size(moved.shape[1:])
        low, high = blocks[self.rank]
        mine = np.empty_like(moved, shape=(high - low, *moved.shape[1:]))
        kind, operation, stream = self._reduction(part, source)
        if moved.shape[0] % self.size == 0:
            addresses = _address(moved), _address(mine)
            self.link.reduceScatter(*addresses, mine.size, kind, operation, stream)
        else:
            with self._group():
                for root, (start, stop) in enumerate(blocks):
                    addresses = _address(moved) + start * row * moved.itemsize, _address(mine)
                    count = (stop - start) * row
                    self.link.reduce(*addresses, count, kind, operation, root, stream)
        return Started(lambda: _in_order(np.moveaxis(mine, 0, target.axis)), moved)

    def _all_gather(self, part: Any, source: Split, shape: Sequence[int]) -> Started:
        moved = _in_order(np.moveaxis(part, source.axis, 0))
        extent = shape[source.axis]
        whole = np.empty_like(moved, shape=(extent, *moved.shape[1:]))
        width = _size(moved.shape[1:]) * moved.itemsize
        byte, stream = self.nccl.NCCL_UINT8, self.memory.stream()
        if extent % self.size == 0:
            self.link.allGather(_address(moved), _address(whole), moved.nbytes, byte, stream)
        else:
            with self._group():
                for root in range(self.size):
                    low, high = block(extent, self.size, root)
                    addresses = _address(moved), _address(whole) + low * width
                    self.link.broadcast(*addresses, (high - low) * width, byte, root, stream)
        return Started(lambda: _in_order(np.moveaxis(whole, 0, source.axis)), moved)

    def _all_to_all(self, part: Any, source: Split, target: Split, shape: Sequence[int]) -> Started:
        byte, stream = self.nccl.NCCL_UINT8, self.memory.stream()
        low, high = block(shape[target.axis], self.size, self.rank)
        given, taken = [], []
        for rank in range(self.size):
            start, stop = block(shape[target.axis], self.size, rank)
            given.append(_in_order(_cut(part, target.axis, start, stop)))
            start, stop = block(shape[source.axis], self.size, rank)
            piece = list(part.shape)
            piece[target.axis], piece[source.axis] = high - low, stop - start
            taken.append(np.empty_like(part, shape=tuple(piece)))
        with self._group():
            for rank in range(self.size):
                self.link.send(_address(given[rank]), given[rank].nbytes, byte, rank, stream)
                self.link.recv(_address(taken[rank]), taken[rank].nbytes, byte, rank, stream)
        return Started(lambda: np.concatenate(taken, axis=source.axis), *given)

    def _reduction(self, part: Any, source: Partial) -> tuple[int, int, int]:
        """NCCL's numbers for the type and the operation, and the stream."""
        name = part.dtype.name
        if name not in _TYPES:
            raise UnsupportedError(
                f"NCCL does not combine {name} values (shape {list(part.shape)})",
                fix="convert the tensor to int32 or float32 first",
            )
        kind = getattr(self.nccl, f"NCCL_{_TYPES[name]}")
        operation = getattr(self.nccl, f"NCCL_{_OPERATIONS[source.op]}")
        return kind, operation, self.memory.stream()

    @contextmanager
    def _group(self) -> Iterator[None]:
        """Calls inside are one operation, in whatever order the ranks make them."""
        self.nccl.groupStart()
        try:
            yield
        finally:
            self.nccl.groupEnd()


def _address(array: Any) -> int:
    """Where an array begins: cupy's arrays have a pointer, those of NumPy an address."""
    pointer = getattr(array.data, "ptr", None)
    address: int = array.ctypes.data if pointer is None else pointer
    return address


def _in_order(array: Any) -> Any:
    return array if array.flags.c_contiguous else array.copy(order="C")


def _cut(array: Any, axis: int, start: int, stop: int) -> Any:
    return array[(slice(None),) * axis + (slice(start, stop),)]


def _size(shape: Sequence[int]) -> int:
    return int(np.prod(shape, dtype=np.int64))
