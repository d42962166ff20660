"""Interruptible runs: the main thread waits in Python while another one computes.

Python calls signal handlers only on the main thread, between two of its instructions. A program
with a loop whose length depends on its values may never return to it.
"""

from __future__ import annotations

import contextlib
import threading
from array import array
from collections.abc import Callable
from queue import SimpleQueue

from metaop.forking import register_at_fork

# The error code that ends a run: no further step begins.
_INTERRUPTED = 3


class _Worker:
    """A thread that waits for calls."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[Callable[[], int] | None] = SimpleQueue()
        self._ended = threading.Event()
        self._finished = threading.Semaphore(0)
        self._result = 0
        threading.Thread(target=self._work, name="metaop program", daemon=True).start()

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            self._result = call()
            self._finished.release()
        self._ended.set()

    def start(self, call: Callable[[], int]) -> None:
        self._calls.put(call)

    def wait(self) -> int:
        """The result of the call; meanwhile, signals are handled."""
        self._finished.acquire()
        return self._result

    def end(self) -> None:
        """Ends the thread after its current call, whatever signals arrive meanwhile.

        The call uses memory that is freed afterwards.
        """
        self._calls.put(None)
        while not self._ended.is_set():
            with contextlib.suppress(BaseException):
                self._ended.wait()


_idle: list[_Worker] = []
register_at_fork(after_in_child=_idle.clear)


def run_interruptibly(call: Callable[[], int], error: array[int]) -> int:
    """The result of `call`, a run that reports to `error`.

    If a signal handler raises, the run ends before its next step, and the exception is raised.
    """
    if threading.current_thread() is not threading.main_thread():
        return call()
    worker = _idle.pop() if _idle else _Worker()
    try:
        worker.start(call)
        result = worker.wait()
    except BaseException:
        error[0] = _INTERRUPTED
        worker.end()
        raise
    _idle.append(worker)
    return result
