"""`Work`: what collectives and messages return that do not block."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import timedelta
from typing import Any

from metaop.dist.watchdog import Watchdog
from metaop.futures import Future
from metaop.tensor.core import Tensor


class Work:
    """A completed collective, or a message in progress, whatever the shapes of its tensors.

    >>> work = metaop.distributed.all_reduce(metaop.ones(2), async_op=True)
    >>> work.wait(), work.result()
    (True, [tensor([1., 1.])])
    """

    def __init__(self, tensors: Sequence[Tensor] = ()) -> None:
        self._tensors = list(tensors)

    def wait(self, timeout: Any = None) -> bool:
        """Returns True once the tensors hold the result; for a collective, at once.

        If a message takes longer than `timeout`, raises DistributedError.
        """
        return True

    def is_completed(self) -> bool:
        """Whether the tensors hold the result."""
        return True

    def is_success(self) -> bool:
        """Whether the tensors hold the result; errors are raised by `wait`."""
        return self.is_completed()

    def result(self) -> list[Tensor]:
        """The tensors, once they hold the result."""
        self.wait()
        return self._tensors

    def get_future(self) -> Future[list[Tensor]]:
        """A future of the tensors; waits until they hold the result."""
        future: Future[list[Tensor]] = Future()
        future.set_result(self.result())
        return future


class Message(Work):
    """A message in progress: once `is_there`, `finish` uses what has arrived.

    `ranks` are those that it depends on, by their number in the group.
    """

    def __init__(
        self,
        tensor: Tensor,
        watchdog: Watchdog,
        ranks: Collection[int],
        is_there: Callable[[], bool],
        what: str,
        finish: Callable[[], None] | None = None,
    ) -> None:
        super().__init__([tensor])
        self._watchdog, self._ranks, self._what = watchdog, ranks, what
        self._is_there, self._finish = is_there, finish
        self._is_finished = False

    def wait(self, timeout: timedelta | float | None = None) -> bool:
        """Returns True once the message has gone, or fills the tensor; reports ranks that are late.

        Raises DistributedError after `timeout` (a timedelta or seconds), by default after
        METAOP_TIMEOUT_SECONDS.
        """
        if not self._is_finished:
            with self._watchdog.within(seconds_of(timeout)):
                self._watchdog.wait_for(self._ranks, self._is_there, self._what)
            self._end()
        return True

    def is_completed(self) -> bool:
        """Whether the message has gone, or fills the tensor."""
        if not self._is_finished and self._is_there():
            self._end()
        return self._is_finished

    def _end(self) -> None:
        if self._finish is not None:
            self._finish()
        self._is_finished = True


def seconds_of(timeout: timedelta | float | None) -> float | None:
    """A timeout in seconds."""
    return timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
