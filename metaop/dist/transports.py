"""The transports of collectives: messages, and shared memory for ranks on the same host.

Arrays are flat and parts may be uneven. Everything is asynchronous and makes progress when its
request is tested. Large reductions go through the window of a host; data that is only moved does
not, because MPI copies it once, from process to process. Sums over several hosts are first computed
within each, then between the ranks that have the same number on every host, and then read by all:
each byte goes between two hosts once, however many ranks there are.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from metaop.dist.host_window import HostWindow
from metaop.dist.job import attached, may_lose_ranks
from metaop.dist.memory import HOST_MEMORY, GpuMemory, Memory
from metaop.dist.packing import Packed
from metaop.dist.requests import Request
from metaop.dist.ring_steps import AllReduce, Ranges, ReduceScatter
from metaop.dist.sbp import block

# Smaller arrays are sent as messages, which have a lower latency.
WINDOW_BYTES = 1 << 17
# Elements and repetitions of a timing trial of both.
_TRIAL, _TRIALS = 1 << 20, 3

_MESSAGE = 32005

_OPERATIONS = {
    "add": "SUM", "mul": "PROD", "max": "MAX", "min": "MIN", "and": "LAND", "or": "LOR",
    "band": "BAND", "bor": "BOR", "bxor": "BXOR",
}  # fmt: skip


class AfterRequest(Request):
    """A request of MPI, and a function that finishes its result.

    MPI reads and writes `memory` until the request is done, and holds no reference to it.
    """

    def __init__(self, request: Any, finish: Any, *memory: np.ndarray) -> None:
        self.request, self.finish, self.memory = request, finish, memory

    def Test(self) -> bool:
        """Whether the result has arrived."""
        if self.finish is not None and self.request.Test():
            self.finish()
            self.finish = None
        return self.finish is None


def is_narrow(dtype: np.dtype) -> bool:
    """Whether `dtype` is a 16-bit float, which MPI does not support."""
    return dtype.kind not in "iub" and dtype.itemsize == 2


def _carried(array: np.ndarray) -> np.ndarray:
    """A view of the array with a dtype that MPI supports."""
    return array.view(np.uint16) if is_narrow(array.dtype) else array


def _operation(name: str) -> Any:
    from mpi4py import MPI

    return getattr(MPI, _OPERATIONS[name])


def nothing() -> None:
    """Does nothing: the result is already in place."""


class Transport:
    """Collectives by messages."""

    def __init__(self, communicator: Any) -> None:
        self.communicator = communicator

    @property
    def rank(self) -> int:
        """The number of this process among the ranks."""
        number: int = self.communicator.rank
        return number

    @property
    def size(self) -> int:
        """The number of ranks."""
        count: int = self.communicator.size
        return count

    def all_reduce(self, given: Packed, total: np.ndarray, op: str, factor: float = 1.0) -> Any:
        """Combines `given` over the ranks, times `factor`, into `total`."""
        flat = given.flat()
        if is_narrow(flat.dtype):
            flat = flat.astype(np.float32)
        result = total if total.dtype == flat.dtype else np.empty_like(flat)

        def finish() -> None:
            if factor != 1.0:
                np.multiply(result, factor, out=result)
            if result is not total:
                total[...] = result

        request = self.communicator.Iallreduce(flat, result, _operation(op))
        return AfterRequest(request, finish, flat, result, total)

    def reduce_in_place(self, array: np.ndarray, op: str) -> Any:
        """Combines `array` over the ranks in place."""
        from mpi4py import MPI

        if is_narrow(array.dtype):
            return Transport.all_reduce(self, Packed.alone(array), array, op)
        return self.communicator.Iallreduce(MPI.IN_PLACE, array, _operation(op))

    def reduce_scatter(
        self, given: np.ndarray, mine: np.ndarray, counts: Sequence[int], op: str
    ) -> Any:
        """Combines `given` over the ranks; `mine` gets this rank's part, of `counts` elements."""
        flat, result = given, mine
        if is_narrow(given.dtype):
            flat, result = given.astype(np.float32), np.empty(mine.size, np.float32)

        def finish() -> None:
            if result is not mine:
                mine[...] = result

        request = self.communicator.Ireduce_scatter(flat, result, counts, _operation(op))
        return AfterRequest(request, finish, flat, result, mine)

    def all_gather(self, mine: np.ndarray, whole: np.ndarray, counts: Sequence[int]) -> Any:
        """Gathers the parts of all ranks one after another in `whole`."""
        request = self.communicator.Iallgatherv(_carried(mine), [_carried(whole), counts])
        return AfterRequest(request, nothing, mine, whole)

    def all_to_all(
        self,
        given: np.ndarray,
        counts: Sequence[int],
        received: np.ndarray,
        arriving: Sequence[int],
    ) -> Any:
        """Sends part k of `given` to rank k."""
        request = self.communicator.Ialltoallv(
            [_carried(given), counts], [_carried(received), arriving]
        )
        return AfterRequest(request, nothing, given, received)

    def broadcast(self, array: np.ndarray, root: int) -> Any:
        """Copies `array` of `root` to `array` of every rank."""
        return AfterRequest(self.communicator.Ibcast(_carried(array), root), nothing, array)

    def send(self, array: np.ndarray, rank: int) -> Any:
        """Sends the array to a rank, which receives an array with as many elements."""
        return AfterRequest(
            self.communicator.Isend(_carried(array), rank, _MESSAGE), nothing, array
        )

    def receive(self, array: np.ndarray, rank: int) -> Any:
        """Receives the array that a rank sends, in `array`."""
        return AfterRequest(
            self.communicator.Irecv(_carried(array), rank, _MESSAGE), nothing, array
        )


class HostTransport(Transport):
    """A transport that does large reductions in memory shared by the ranks of a host.

    `host` are the ranks of this host. If there are other hosts, `across` are the ranks that have
    the same number on theirs, and the first `speakers` ranks of every host talk to them.
    """

    def __init__(self, communicator: Any, host: Any, across: Any = None, speakers: int = 0) -> None:
        super().__init__(communicator)
        self.window = HostWindow(host)
        self.across = Transport(across) if across is not None else None
        self.speakers = speakers or host.size
        # A sum of two floats is the same in either order, so the choice does not affect results.
        self.by_messages = self.is_alone and host.size == 2 and self._messages_are_faster()

    @property
    def is_alone(self) -> bool:
        """Whether all ranks are on this host."""
        return self.across is None

    def all_reduce(self, given: Packed, total: np.ndarray, op: str, factor: float = 1.0) -> Any:
        if self.by_messages or total.nbytes < WINDOW_BYTES:
            return super().all_reduce(given, total, op, factor)
        ranges = [block(total.size, self.speakers, k) for k in range(self.speakers)]
        rank = self.window.rank
        rounds = AllReduce(given, total, op, ranges, rank, factor, self.across)
        return self.window.begin(rounds)

    def reduce_scatter(
        self, given: np.ndarray, mine: np.ndarray, counts: Sequence[int], op: str
    ) -> Any:
        if not self.is_alone or given.nbytes < WINDOW_BYTES:
            return super().reduce_scatter(given, mine, counts, op)
        rounds = ReduceScatter(Packed.alone(given), mine, op, _ranges(counts), self.window.rank)
        return self.window.begin(rounds)

    def _messages_are_faster(self) -> bool:
        """Times both ways: MPI is fast if the system lets it read the memory of another process."""
        given = Packed.alone(np.ones(_TRIAL, np.float32))
        total = np.empty(_TRIAL, np.float32)
        best = np.full(2, np.inf)
        for _ in range(_TRIALS):
            for way in (0, 1):
                self.by_messages = way == 0
                self.communicator.Barrier()
                start = time.perf_counter()
                request = self.all_reduce(given, total, "add")
                while not request.Test():
                    pass
                best[way] = min(best[way], time.perf_counter() - start)
        seconds = np.empty_like(best)
        self.communicator.Allreduce(best, seconds)
        return bool(seconds[0] < seconds[1])


def _ranges(counts: Sequence[int]) -> Ranges:
    stops = np.cumsum(counts).tolist()
    return list(zip([0, *stops[:-1]], stops))


def transport_of(communicator: Any, memory: Memory = HOST_MEMORY) -> Transport:
    """The transport of a communicator for arrays in a memory.

    The first time, every rank must call this.
    """
    if not isinstance(memory, GpuMemory):
        return attached(communicator, _new_transport)
    from metaop.dist.nccl import maker_of

    return attached(communicator, maker_of(memory))


def _new_transport(communicator: Any) -> Transport:
    from mpi4py import MPI

    # Open MPI's shared windows do not survive the loss of a rank.
    if communicator.size == 1 or may_lose_ranks():
        return Transport(communicator)
    host = communicator.Split_type(MPI.COMM_TYPE_SHARED)
    sizes = communicator.allgather(host.size)
    if min(sizes) == communicator.size:
        return HostTransport(communicator, host)
    if max(sizes) == 1:
        return Transport(communicator)
    return over_hosts(communicator, host, min(sizes))


def over_hosts(communicator: Any, host: Any, speakers: int) -> HostTransport:
    """The transport between hosts that have at least `speakers` ranks each."""
    from mpi4py import MPI

    color = host.rank if host.rank < speakers else MPI.UNDEFINED
    across = communicator.Split(color)
    # `across` is passed to ranks that are no speakers too: they must know that other hosts exist.
    return HostTransport(communicator, host, across, speakers)
