"""Waiting for other ranks without hanging silently: ranks that are missing are reported.

A rank that has waited long asks all others whether they wait for the same thing; those that do not
answer are the ones that everybody waits for. Nothing is sent as long as all ranks are in time. A
rank that reaches the end of its program says so, because others would wait for it forever.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from metaop import settings
from metaop.dist.environment import launched
from metaop.dist.job import attached, job
from metaop.errors import DistributedError, describe_location, user_location

_QUESTION, _ANSWER, _DEPARTURE = 32001, 32002, 32003
# In seconds: busy waiting, then pauses that grow to a maximum; and the wait for answers.
_BUSY, _PAUSE, _LONGEST_PAUSE, _ANSWERS = 2e-4, 2e-5, 2e-3, 0.5
# Seconds between two checks for a message.
_MESSAGE_PAUSE = 5e-5
# Seconds within which the last messages of a rank that has ended arrive.
_LAST_MESSAGES = 1.0


class Watchdog:
    """Watches the waits of one rank in a communicator; all ranks wait for the same things."""

    def __init__(self, communicator: Any) -> None:
        self.communicator = communicator
        place = launched()
        # With more ranks than cores, a waiting rank yields to a working one.
        self.shares_cores = place is not None and place.local_size > (os.cpu_count() or 1)
        self.count = 0
        self.sent: list[Any] = []
        # Seconds after which a wait is an error; None means METAOP_TIMEOUT_SECONDS.
        self.timeout: float | None = None
        # Waits that were given up: MPI may still write to the memory that they refer to.
        self.given_up: list[Callable[[], bool]] = []
        # For ranks that have ended: how often they waited, and when that became known.
        self.departed: dict[int, tuple[int, float]] = {}

    @contextmanager
    def within(self, seconds: float | None) -> Iterator[None]:
        """Waits inside are errors after so many seconds; None changes nothing."""
        before = self.timeout
        self.timeout = before if seconds is None else seconds
        try:
            yield
        finally:
            self.timeout = before

    def _patience(self) -> tuple[float, float]:
        """The seconds after which late ranks are reported, and after which they are an error."""
        timeout = settings.get("METAOP_TIMEOUT_SECONDS") if self.timeout is None else self.timeout
        return settings.get("METAOP_WATCHDOG_SECONDS"), timeout

    def wait(
        self, is_done: Callable[[], bool], what: str, news: Callable[[], int] = lambda: 0
    ) -> None:
        """Returns when `is_done`; raises DistributedError after the timeout.

        After METAOP_WATCHDOG_SECONDS, and repeatedly after that, the missing ranks are reported.
        The time counts from the last change of `news`, which indicates progress.
        """
        self.count += 1
        try:
            while not self._wait_for_news(is_done, what, news):
                pass
        except DistributedError:
            self.given_up.append(is_done)
            raise

    def _wait_for_news(
        self, is_done: Callable[[], bool], what: str, news: Callable[[], int]
    ) -> bool:
        """Returns True when the wait is done, False as soon as there has been progress."""
        started, pause, last = time.perf_counter(), _PAUSE, news()
        while pause < _LONGEST_PAUSE:
            if is_done():
                return True
            if news() != last:
                return False
            if time.perf_counter() - started < _BUSY:
                if self.shares_cores:
                    os.sched_yield()
                continue
            time.sleep(pause)
            pause *= 1.2
        return self._wait_long(is_done, what, lambda: news() != last, started)

    def _wait_long(
        self,
        is_done: Callable[[], bool],
        what: str,
        has_news: Callable[[], bool],
        started: float,
    ) -> bool:
        patience, timeout = self._patience()
        asked = 0.0
        waiting: set[int] = set()
        while not is_done():
            if has_news():
                return False
            time.sleep(_LONGEST_PAUSE)
            self._answer()
            self._collect(waiting)
            self._expect(None, what, started)
            waited = time.perf_counter() - started
            if asked and waited > asked + _ANSWERS:
                self._report(waiting, waited, what, waited > timeout)
                patience, asked = 2 * patience, 0.0
            elif not asked and waited > min(patience, timeout):
                asked, waiting = waited, {self.communicator.rank}
                self._ask()
        return True

    def wait_for(self, ranks: Collection[int], is_done: Callable[[], bool], what: str) -> None:
        """Returns when `is_done`, which messages of `ranks` bring about.

        Reports late ranks and raises an error as `wait` does; the other ranks need not wait too.
        """
        patience, timeout = self._patience()
        started = time.perf_counter()
        while not is_done():
            time.sleep(_MESSAGE_PAUSE)
            waited = time.perf_counter() - started
            if waited > _LAST_MESSAGES:
                self._expect(ranks, what, started)
            if waited < min(patience, timeout):
                continue
            text = f"{self._name(self.communicator.rank)} has waited {waited:.0f} s in {what}"
            self._tell(text, waited > timeout)
            patience *= 2

    def depart(self) -> None:
        """Tells the others that this rank has reached the end of its program."""
        # The ranks of the job still agree on the end of the program, which is one more wait.
        last = int(self.communicator == job.everyone)
        for rank in self._others():
            self._send(np.array([self.count + last]), rank, _DEPARTURE)

    def _expect(self, ranks: Collection[int] | None, what: str, started: float) -> None:
        """Raises DistributedError if this rank has waited since `started` for one that never comes.

        Without `ranks`, it waits for all that have not waited as often.
        """
        number = np.empty(1, np.int64)
        for rank in self._others():
            if self.communicator.Iprobe(rank, _DEPARTURE):
                self.communicator.Recv(number, rank, _DEPARTURE)
                self.departed[rank] = int(number[0]), time.perf_counter()
        for rank, (count, known) in self.departed.items():
            never = count < self.count if ranks is None else rank in ranks
            if never and time.perf_counter() - max(known, started) > _LAST_MESSAGES:
                raise DistributedError(
                    f"{self._name(self.communicator.rank)} waits in {what} for "
                    f"{self._name(rank)}, which has reached the end of its program",
                    fix="let every rank take the same steps: one that returns or calls sys.exit "
                    "early leaves the others waiting",
                )

    def _name(self, rank: int) -> str:
        """The name of a rank of the communicator, with its number within the job."""
        groups = self.communicator.group, job.everyone.group
        return f"rank {groups[0].Translate_ranks([rank], groups[1])[0]}"

    def _others(self) -> list[int]:
        communicator = self.communicator
        return [rank for rank in range(communicator.size) if rank != communicator.rank]

    def _ask(self) -> None:
        for rank in self._others():
            self._send(np.array([self.count]), rank, _QUESTION)

    def _answer(self) -> None:
        """Tells ranks that ask that this one waits too, if it waits for the same thing."""
        number = np.empty(1, np.int64)
        for rank in self._others():
            while self.communicator.Iprobe(rank, _QUESTION):
                self.communicator.Recv(number, rank, _QUESTION)
                if number[0] == self.count:
                    self._send(number.copy(), rank, _ANSWER)

    def _send(self, number: np.ndarray, rank: int, tag: int) -> None:
        self.sent = [request for request in self.sent if not request.Test()]
        self.sent.append(self.communicator.Isend(number, rank, tag))

    def _collect(self, waiting: set[int]) -> None:
        number = np.empty(1, np.int64)
        for rank in self._others():
            while self.communicator.Iprobe(rank, _ANSWER):
                self.communicator.Recv(number, rank, _ANSWER)
                if number[0] == self.count:
                    waiting.add(rank)

    def _report(self, waiting: set[int], waited: float, what: str, gives_up: bool) -> None:
        late = [rank for rank in self._others() if rank not in waiting]
        names = ", ".join(self._name(rank) for rank in late) or "a message between waiting ranks"
        where = describe_location(user_location())
        text = (
            f"{self._name(self.communicator.rank)} has waited {waited:.0f} s for {names} in {what}"
        )
        text += f" at {where}" if where else ""
        # One rank reports for all.
        if gives_up or self.communicator.rank == min(waiting):
            self._tell(text, gives_up)

    def _tell(self, text: str, gives_up: bool) -> None:
        if gives_up:
            raise DistributedError(
                text,
                fix="look at what the late rank does, or increase METAOP_TIMEOUT_SECONDS or the "
                "timeout that the call names",
            )
        print(f"metaop: {text}", file=sys.stderr, flush=True)


def watchdog_of(communicator: Any) -> Watchdog:
    """The watchdog of a communicator."""
    return attached(communicator, Watchdog)
