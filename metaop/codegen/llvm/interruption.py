"""Runs that the keyboard may end: the main thread waits in Python while another one computes.

Python calls the handlers of signals on the main thread only, between two of its instructions. A
program whose loop ends when its values say so may never come back to it.
"""

from __future__ import annotations

import contextlib
import threading
from array import array
from collections.abc import Callable
from queue import SimpleQueue

from metaop.forking import register_at_fork

# What a run reads instead of the code of an error: no step begins any more.
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
        """The result of the call; signals are handled meanwhile."""
        self._finished.acquire()
        return self._result

    def end(self) -> None:
        """Ends the thread after the call that it may have begun, whatever signals come meanwhile:
        that uses memory which is freed afterwards."""
        self._calls.put(None)
        while not self._ended.is_set():
            with contextlib.suppress(BaseException):
                self._ended.wait()


_idle: list[_Worker] = []
register_at_fork(after_in_child=_idle.clear)


def run_interruptibly(call: Callable[[], int], error: array[int]) -> int:
    """What `call` returns, a run that writes `error`; should the handler of a signal raise, the run
    ends before its next step, and then the exception goes on."""
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
