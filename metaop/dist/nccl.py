"""The collectives of GPUs: with NCCL if every rank has a GPU of its own.

Collectives run on a separate stream. They wait for the kernels launched before them, and kernels
that read the result wait for them; the host waits for neither. MPI still checks that the ranks
agree. Values that are only moved are sent as bytes. For blocks of different sizes NCCL has no
collectives, so a group of broadcasts, reductions or messages is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from itertools import accumulate
from typing import Any

import numpy as np

from metaop.dist.job import may_lose_ranks
from metaop.dist.memory import GpuMemory
from metaop.dist.packing import Packed
from metaop.dist.requests import Request
from metaop.dist.transports import Transport, transport_of
from metaop.dist.watchdog import Watchdog

_TYPES = {
    **{"int8": "INT8", "uint8": "UINT8", "int32": "INT32", "int64": "INT64", "bool": "UINT8"},
    **{"float16": "FLOAT16", "bfloat16": "BFLOAT16", "float32": "FLOAT32", "float64": "FLOAT64"},
}
# Types that NCCL cannot combine, with wider types whose low bits give the same result.
_WIDER = {"int16": np.int32}
_OPERATIONS = {"add": "SUM", "mul": "PROD", "max": "MAX", "min": "MIN", "and": "MIN", "or": "MAX"}
# Booleans are bytes: an addition could give 2, so it is a maximum.
_OF_BOOLS = {**_OPERATIONS, "add": "MAX", "mul": "MIN"}


class _OnStream(Request):
    """A collective on a stream, which reads and writes `arrays` until the event `done`."""

    def __init__(
        self, memory: GpuMemory, done: Any, finish: Callable[[], None] | None, *arrays: Any
    ) -> None:
        self._memory, self._done = memory, done
        self._finish, self._arrays = finish, arrays

    def Test(self) -> bool:
        """Whether the result has arrived."""
        return bool(self._done.done)

    def wait(self, watchdog: Watchdog, what: str) -> None:
        """Makes later kernels wait for the result; the host continues."""
        finish, self._finish = self._finish, None
        with self._memory.active():
            self._memory.cuda.get_current_stream().wait_event(self._done)
            if finish is not None:
                finish()
        # Memory freed from here on is reused only by later kernels.
        self._arrays = ()


class NcclTransport(Transport):
    """Collectives of arrays on GPUs; every rank of the communicator must create it."""

    def __init__(self, communicator: Any, memory: GpuMemory) -> None:
        super().__init__(communicator)
        self.memory = memory
        self.nccl = memory.cuda.nccl
        first = communicator.rank == 0
        identity = communicator.bcast(self.nccl.get_unique_id() if first else None, 0)
        with memory.active():
            self.link = self.nccl.NcclCommunicator(communicator.size, identity, communicator.rank)
            self.stream = memory.cuda.Stream(non_blocking=True)

    def _start(
        self,
        put: Callable[[int], None],
        *arrays: Any,
        finish: Callable[[], None] | None = None,
    ) -> Request:
        """Calls `put` with the stream, which first waits for the kernels launched so far."""
        cuda = self.memory.cuda
        self.stream.wait_event(cuda.get_current_stream().record())
        put(self.stream.ptr)
        return _OnStream(self.memory, self.stream.record(), finish, *arrays)

    def all_reduce(self, given: Packed, total: Any, op: str, factor: float = 1.0) -> Request:
        with self.memory.active():
            source, result = self._combinable(given.flat()), self._room(total)
            is_mean = factor == 1.0 / self.size and source.dtype.kind not in "iub"
            kind, operation = self._reduction(source, "mean" if is_mean else op)

            def put(stream: int) -> None:
                if source.size:
                    addresses = _address(source), _address(result)
                    self.link.allReduce(*addresses, source.size, kind, operation, stream)

            def finish() -> None:
                if result is not total:
                    total[...] = result
                if factor != 1.0 and not is_mean:
                    np.multiply(total, factor, out=total)

            return self._start(put, source, result, total, finish=finish)

    def reduce_scatter(self, given: Any, mine: Any, counts: Sequence[int], op: str) -> Request:
        with self.memory.active():
            source, result = self._combinable(given), self._room(mine)
            kind, operation = self._reduction(source, op)

            def put(stream: int) -> None:
                if len(set(counts)) == 1:
                    addresses = _address(source), _address(result)
                    if counts[0]:
                        self.link.reduceScatter(*addresses, counts[0], kind, operation, stream)
                    return
                with self._group():
                    for root, (start, count) in enumerate(_blocks(counts)):
                        if count:
                            place = _address(source) + start * source.itemsize, _address(result)
                            self.link.reduce(*place, count, kind, operation, root, stream)

            def finish() -> None:
                if result is not mine:
                    mine[...] = result

            return self._start(put, source, result, mine, finish=finish)

    def all_gather(self, mine: Any, whole: Any, counts: Sequence[int]) -> Request:
        byte, size = self.nccl.NCCL_UINT8, whole.itemsize

        def put(stream: int) -> None:
            if len(set(counts)) == 1:
                if counts[0]:
                    addresses = _address(mine), _address(whole)
                    self.link.allGather(*addresses, counts[0] * size, byte, stream)
                return
            with self._group():
                for root, (start, count) in enumerate(_blocks(counts)):
                    if count:
                        place = _address(mine), _address(whole) + start * size
                        self.link.broadcast(*place, count * size, byte, root, stream)

        with self.memory.active():
            return self._start(put, mine, whole)

    def all_to_all(
        self, given: Any, counts: Sequence[int], received: Any, arriving: Sequence[int]
    ) -> Request:
        byte, size = self.nccl.NCCL_UINT8, given.itemsize

        def put(stream: int) -> None:
            pairs = list(enumerate(zip(_blocks(counts), _blocks(arriving))))
            with self._group():
                for rank, ((start, count), (place, coming)) in pairs:
                    if count:
                        address = _address(given) + start * size
                        self.link.send(address, count * size, byte, rank, stream)
                    if coming:
                        address = _address(received) + place * size
                        self.link.recv(address, coming * size, byte, rank, stream)

        with self.memory.active():
            return self._start(put, given, received)

    def broadcast(self, array: Any, root: int) -> Request:
        def put(stream: int) -> None:
            if array.size:
                place = _address(array), _address(array)
                self.link.broadcast(*place, array.nbytes, self.nccl.NCCL_UINT8, root, stream)

        with self.memory.active():
            return self._start(put, array)

    def send(self, array: Any, rank: int) -> Request:
        def put(stream: int) -> None:
            if array.size:
                byte = self.nccl.NCCL_UINT8
                self.link.send(_address(array), array.nbytes, byte, rank, stream)

        with self.memory.active():
            return self._start(put, array)

    def receive(self, array: Any, rank: int) -> Request:
        def put(stream: int) -> None:
            if array.size:
                byte = self.nccl.NCCL_UINT8
                self.link.recv(_address(array), array.nbytes, byte, rank, stream)

        with self.memory.active():
            return self._start(put, array)

    def _combinable(self, array: Any) -> Any:
        """The array, converted if NCCL cannot combine its type."""
        wider = _WIDER.get(array.dtype.name)
        return array if wider is None else array.astype(wider)

    def _room(self, array: Any) -> Any:
        """The array itself if NCCL can combine its type, otherwise a new one of a wider type."""
        wider = _WIDER.get(array.dtype.name)
        return array if wider is None else np.empty_like(array, dtype=wider)

    def _reduction(self, array: Any, op: str) -> tuple[int, int]:
        """NCCL's constants for the type and the operation."""
        name = array.dtype.name
        names = {**(_OF_BOOLS if name == "bool" else _OPERATIONS), "mean": "AVG"}
        kind: int = getattr(self.nccl, f"NCCL_{_TYPES[name]}")
        operation: int = getattr(self.nccl, f"NCCL_{names[op]}")
        return kind, operation

    @contextmanager
    def _group(self) -> Iterator[None]:
        """Runs the calls inside as one operation, so the ranks may make them in any order."""
        self.nccl.groupStart()
        try:
            yield
        finally:
            self.nccl.groupEnd()


class _Fetched(Request):
    """A collective in host memory that copies its result to the GPU."""

    def __init__(self, request: Any, finish: Callable[[], None]) -> None:
        self._request, self._finish = request, finish

    def Test(self) -> bool:
        """Whether the result has arrived in host memory."""
        done: bool = self._request.Test()
        return done

    @property
    def news(self) -> int:
        """A value that changes whenever there is progress."""
        count: int = self._request.news
        return count

    def wait(self, watchdog: Watchdog, what: str) -> None:
        """Waits for the result and copies it."""
        self._request.wait(watchdog, what)
        self._finish()


class StagedTransport(Transport):
    """Collectives of arrays on GPUs, staged through host memory."""

    def __init__(self, communicator: Any, memory: GpuMemory) -> None:
        super().__init__(communicator)
        self.memory = memory
        self.host = transport_of(communicator)

    def all_reduce(self, given: Packed, total: Any, op: str, factor: float = 1.0) -> Request:
        with self.memory.active():
            here = self.memory.get(given.flat())
        there = np.empty(total.shape, total.dtype)
        request = self.host.all_reduce(Packed.alone(here), there, op, factor)
        return self._fetched(request, there, total)

    def reduce_scatter(self, given: Any, mine: Any, counts: Sequence[int], op: str) -> Request:
        there = np.empty(mine.shape, mine.dtype)
        request = self.host.reduce_scatter(self.memory.get(given), there, counts, op)
        return self._fetched(request, there, mine)

    def all_gather(self, mine: Any, whole: Any, counts: Sequence[int]) -> Request:
        there = np.empty(whole.shape, whole.dtype)
        request = self.host.all_gather(self.memory.get(mine), there, counts)
        return self._fetched(request, there, whole)

    def all_to_all(
        self, given: Any, counts: Sequence[int], received: Any, arriving: Sequence[int]
    ) -> Request:
        there = np.empty(received.shape, received.dtype)
        request = self.host.all_to_all(self.memory.get(given), counts, there, arriving)
        return self._fetched(request, there, received)

    def broadcast(self, array: Any, root: int) -> Request:
        there = self.memory.get(array)
        return self._fetched(self.host.broadcast(there, root), there, array)

    def send(self, array: Any, rank: int) -> Request:
        return self.host.send(self.memory.get(array), rank)

    def receive(self, array: Any, rank: int) -> Request:
        there = np.empty(array.shape, array.dtype)
        return self._fetched(self.host.receive(there, rank), there, array)

    def _fetched(self, request: Any, there: np.ndarray, target: Any) -> Request:
        def finish() -> None:
            with self.memory.active():
                target[...] = self.memory.put(there)

        return _Fetched(request, finish)


@lru_cache
def maker_of(memory: GpuMemory) -> Callable[[Any], Transport]:
    """The constructor of transports between ranks whose arrays are on their GPUs."""
    return partial(_new_transport, memory=memory)


def _new_transport(communicator: Any, memory: GpuMemory) -> Transport:
    from mpi4py import MPI

    # NCCL needs a GPU for each rank, and its communicators do not survive the loss of one.
    gpu = MPI.Get_processor_name(), memory.bus
    answers = communicator.allgather((memory.cuda.nccl.available, gpu))
    has_all = all(available for available, _ in answers)
    if not has_all or len({gpu for _, gpu in answers}) < len(answers) or may_lose_ranks():
        return StagedTransport(communicator, memory)
    return NcclTransport(communicator, memory)


def _address(array: Any) -> int:
    address: int = array.data.ptr
    return address


def _blocks(counts: Sequence[int]) -> list[tuple[int, int]]:
    """The start and length of each block, if blocks are stored one after another."""
    return list(zip(accumulate(counts, initial=0), counts))
