"""Messages of one rank that are on their way: those that it sends, and those that it expects.

MPI would give a message to whoever asks first. As in PyTorch, it belongs to the receive that was
called first, even if the program waits for another one first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from metaop.dist.collectives import mpi
from metaop.dist.job import attached
from metaop.dist.watchdog import watchdog_of
from metaop.errors import ArgumentError

# The tags of messages that metaop itself sends.
RESERVED = range(32001, 32010)


class Arrival:
    """A message that is expected from a rank (None: any rank).

    `source` becomes the rank that has sent it; `value` is there once it is complete.
    """

    def __init__(self, source: int | None, tag: int) -> None:
        self.source, self.tag = source, tag
        self.request: Any = None
        self.value: Any = None
        self.is_complete = False

    def accepts(self, source: int, tag: int) -> bool:
        """Whether it still expects a message, and such a one."""
        return self.request is None and tag == self.tag and self.source in (None, source)


class Mailbox:
    """The messages of one rank in a communicator."""

    def __init__(self, communicator: Any) -> None:
        self.communicator = communicator
        self.watchdog = watchdog_of(communicator)
        # MPI reads and writes the buffers of these requests, which programs may forget.
        self.leaving: list[Any] = []
        self.expected: list[Arrival] = []

    def send(self, value: Any, rank: int, tag: int) -> Callable[[], bool]:
        """Starts to send a copy of `value`; the result tells whether it has gone."""
        request = self.communicator.isend(value, rank, tag)
        self.leaving.append(request)

        def has_gone() -> bool:
            self.progress()
            return bool(request.test()[0])

        return has_gone

    def expect(self, source: int | None, tag: int) -> Arrival:
        """Expects a message, after those that are expected already."""
        arrival = Arrival(source, tag)
        self.expected.append(arrival)
        return arrival

    def has(self, arrival: Arrival) -> bool:
        """Whether a message that is expected is there; makes progress on all of them."""
        self.progress()
        return arrival.is_complete

    def progress(self) -> None:
        """Makes progress on all messages."""
        self.leaving = [request for request in self.leaving if not request.test()[0]]
        for arrival in tuple(self.expected):
            self._accept(arrival)

    def _accept(self, arrival: Arrival) -> None:
        module = mpi()
        status = module.Status()
        source = module.ANY_SOURCE if arrival.source is None else arrival.source
        while arrival.request is None:
            message = self.communicator.improbe(source, arrival.tag, status)
            if message is None:
                return
            sender = status.Get_source()
            first = next(one for one in self.expected if one.accepts(sender, arrival.tag))
            first.source, first.request = sender, message.irecv()
        arrival.is_complete, arrival.value = arrival.request.test()
        if arrival.is_complete:
            self.expected.remove(arrival)


def mailbox_of(communicator: Any) -> Mailbox:
    """The mailbox of this rank in a communicator."""
    return attached(communicator, Mailbox)


def check_tag(tag: int) -> None:
    """Raises ArgumentError for a tag that MPI or metaop cannot give to a program's messages."""
    if tag < 0 or tag in RESERVED:
        raise ArgumentError(
            f"a message has the tag {tag}",
            fix=f"use 0 or more, except {RESERVED.start} to {RESERVED.stop - 1}",
        )
