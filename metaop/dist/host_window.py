"""Memory shared by all ranks of a host, which carries collectives at the speed of copying.

It is an MPI shared window with a few slots per rank. A collective is cut into *rounds*. In each
round, a rank puts what the others need into its slot, may combine what they have put, and takes
what it needs from their slots; then the slot is free for a later round. So little memory serves
arrays of any size, data is read while it is still in the cache, and no rank waits for another as
long as there are free slots. Every rank counts in the window itself how many rounds it has put,
combined and taken, so the ranks synchronise without messages.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Protocol

import numpy as np

from metaop.dist.requests import Request

# A slot fits into the cache of a core, and the slots of a rank into the shared cache of the host.
SLOT_BYTES = 1 << 20
_SLOTS = 8
_PAGE = 4096


class Phase(IntEnum):
    """A phase of a round."""

    PUT = 0
    COMBINED = 1
    SENT = 2
    TAKEN = 3


class Rounds(Protocol):
    """A collective in `count` rounds; every rank of the host must join it.

    With `combines`, nothing is taken before every rank has combined its part.
    """

    count: int
    combines: bool

    def put(self, number: int, slot: np.ndarray) -> None:
        """Writes what other ranks need into this rank's slot."""

    def combine(self, number: int, slots: list[np.ndarray]) -> Any:
        """Combines what the ranks have put; returns None, or a request for other hosts' data."""

    def take(self, number: int, slots: list[np.ndarray]) -> None:
        """Reads what this rank needs from the slots of all ranks."""


class WindowRequest(Request):
    """A collective in progress; like an MPI request, it makes progress when it is tested."""

    def __init__(self, window: HostWindow, rounds: Rounds) -> None:
        self.window = window
        self.left = rounds.count

    def Test(self) -> bool:
        """Whether the result has arrived."""
        self.window.progress()
        return not self.left

    @property
    def news(self) -> int:
        """A value that changes whenever there is progress."""
        return self.window.steps


class HostWindow:
    """The slots of the ranks of one host, with communicator `host`; all of them must create it."""

    def __init__(self, host: Any) -> None:
        from mpi4py import MPI

        self.rank, self.size = host.rank, host.size
        # Steps of this rank so far, over all rounds.
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
        # For each phase: how many rounds this rank has done, and a lower bound for all ranks.
        self._done = [0] * len(Phase)
        self._by_all = [0] * len(Phase)
        self._begun = 0
        self._rounds: dict[int, tuple[Rounds, int, WindowRequest]] = {}
        self._requests: dict[int, Any] = {}

    def begin(self, rounds: Rounds) -> WindowRequest:
        """Joins a collective, after all those that were begun earlier on every rank."""
        request = WindowRequest(self, rounds)
        for number in range(rounds.count):
            self._rounds[self._begun] = rounds, number, request
            self._begun += 1
        self.progress()
        return request

    def progress(self) -> None:
        """Does all steps that are possible now, latest phases first: their data is in the cache."""
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
        """Completes a round that has been combined once other hosts have combined it too."""
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
        # The data must be visible before the counter, on every kind of processor.
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
