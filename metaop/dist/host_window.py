"""Memory that all ranks of a host see, and through which collectives go at the speed of copying.

It is an MPI shared window of a few slots for each rank. A collective is cut into *rounds*. In each
a rank puts what the others need into its slot of the round, may combine what they have put, and
takes what it needs out of their slots; then the slot is free for a later round. So little memory
serves arrays of any size, what is passed on is still in the cache, and no rank waits for another
as long as there are free slots. Every rank counts the rounds that it has put, combined and taken
where the others can read it: nobody is called, and nothing is sent.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Protocol

import numpy as np

from metaop.dist.requests import Request

# A slot fits into the cache of a core; all slots of a rank into that of a host.
SLOT_BYTES = 1 << 20
_SLOTS = 8
_PAGE = 4096


class Phase(IntEnum):
    """What has been done with a round."""

    PUT = 0
    COMBINED = 1
    SENT = 2
    TAKEN = 3


class Rounds(Protocol):
    """A collective in `count` rounds; every rank of the host has to join it.

    With `combines` nothing is taken before every rank has combined its part.
    """

    count: int
    combines: bool

    def put(self, number: int, slot: np.ndarray) -> None:
        """Writes what other ranks need into this rank's slot."""

    def combine(self, number: int, slots: list[np.ndarray]) -> Any:
        """Combines what the ranks have put; None, or a request for what other hosts send."""

    def take(self, number: int, slots: list[np.ndarray]) -> None:
        """Reads what this rank needs from the slots of all ranks."""


class WindowRequest(Request):
    """A collective under way: like a request of MPI it makes progress when it is tested."""

    def __init__(self, window: HostWindow, rounds: Rounds) -> None:
        self.window = window
        self.left = rounds.count

    def Test(self) -> bool:
        """Whether the result is there."""
        self.window.progress()
        return not self.left

    @property
    def news(self) -> int:
        """Changes whenever something has been done."""
        return self.window.steps


class HostWindow:
    """The slots of the ranks of one host, whose communicator is `host`; all of them make it."""

    def __init__(self, host: Any) -> None:
        from mpi4py import MPI

        self.rank, self.size = host.rank, host.size
        # Steps of this rank so far, of all rounds.
        self.steps = 0
        own = _SLOTS * SLOT_BYTES
        self._window = MPI.Win.Allocate_shared(own + _PAGE, 1, comm=host)
        self._window.Lock_all()
        memory: list[Any] = [self._window.Shared_query(rank)[0] for rank in range(host.size)]
        self._slots = [
            np.frombuffer(one, np.uint8, own).reshape(_SLOTS, SLOT_BYTES) for one in memory
        ]
        self._counters = [memoryview(one)[own:].cast("B").cast("q") for one in memory]
        for phase in Phase:
            self._counters[self.rank][phase] = 0
        self._window.Sync()
        host.Barrier()
        # Of each phase: how many rounds this rank has done, and at least so many all ranks.
        self._done = [0] * len(Phase)
        self._by_all = [0] * len(Phase)
        self._begun = 0
        self._rounds: dict[int, tuple[Rounds, int, WindowRequest]] = {}
        self._requests: dict[int, Any] = {}

    def begin(self, rounds: Rounds) -> WindowRequest:
        """Joins a collective, after all that were begun before on every rank."""
        request = WindowRequest(self, rounds)
        for number in range(rounds.count):
            self._rounds[self._begun] = rounds, number, request
            self._begun += 1
        self.progress()
        return request

    def progress(self) -> None:
        """Does all that can be done now, what is furthest first: the cache still has it."""
        while self._take() or self._send() or self._combine() or self._put():
            self.steps += 1

    def _put(self) -> bool:
        at = self._done[Phase.PUT]
        if at == self._begun or not self._have_all(Phase.TAKEN, at - _SLOTS + 1):
            return False
        rounds, number, _ = self._rounds[at]
        rounds.put(number, self._slots[self.rank][at % _SLOTS])
        return self._finish(Phase.PUT)

    def _combine(self) -> bool:
        at = self._done[Phase.COMBINED]
        if at == self._done[Phase.PUT]:
            return False
        rounds, number, _ = self._rounds[at]
        if rounds.combines:
            if not self._have_all(Phase.PUT, at + 1):
                return False
            self._requests[at] = rounds.combine(number, self._slots_at(at))
        return self._finish(Phase.COMBINED)

    def _send(self) -> bool:
        """Ends a round that has been combined, when other hosts have combined it too."""
        at = self._done[Phase.SENT]
        if at == self._done[Phase.COMBINED]:
            return False
        request = self._requests.get(at)
        if request is not None and not request.Test():
            return False
        self._requests.pop(at, None)
        return self._finish(Phase.SENT)

    def _take(self) -> bool:
        at = self._done[Phase.TAKEN]
        if at == self._done[Phase.SENT]:
            return False
        rounds, number, request = self._rounds[at]
        if not self._have_all(Phase.SENT if rounds.combines else Phase.PUT, at + 1):
            return False
        rounds.take(number, self._slots_at(at))
        del self._rounds[at]
        request.left -= 1
        return self._finish(Phase.TAKEN)

    def _slots_at(self, at: int) -> list[np.ndarray]:
        return [slots[at % _SLOTS] for slots in self._slots]

    def _finish(self, phase: Phase) -> bool:
        # What has been written must be seen before the counter, on every kind of processor.
        self._window.Sync()
        self._done[phase] += 1
        self._counters[self.rank][phase] = self._done[phase]
        return True

    def _have_all(self, phase: Phase, count: int) -> bool:
        """Whether all ranks have done `count` rounds."""
        if self._by_all[phase] < count:
            self._by_all[phase] = min(counters[phase] for counters in self._counters)
            self._window.Sync()
        return self._by_all[phase] >= count
