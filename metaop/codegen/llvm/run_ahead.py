"""Asynchronous runs: another thread runs programs in order while Python continues.

Memory is allocated when a run is queued, so addresses are known before values are. Code that reads
memory, or runs something synchronously, first waits for all queued runs (`memory.settled`), so
nothing is read or written too early. The memory of a queued run stays mapped until the run is done.
It may be allocated again meanwhile, but only a later run can write it.
"""

from __future__ import annotations

import atexit
import threading
from collections import Counter, deque
from collections.abc import Callable, Sequence
from sys import getrefcount
from types import CodeType
from typing import Any, NamedTuple
from weakref import ref

from metaop.codegen.memory.buffers import Buffer, allocate, lose, settled, waiting
from metaop.errors import user_location
from metaop.forking import register_at_fork
from metaop.unified_graph.faults import Fault

# The most queued runs; beyond these, Python waits.
_MOST_WAITING = 32


class _Held:
    """A placeholder for a value, to count the references to a buffer that nothing else holds."""

    def __init__(self) -> None:
        self.buffer = object()


_held = _Held()
_HELD_TWICE = next(map(getrefcount, [_held.buffer]))
_block = allocate(0)
_HELD_BY_BUFFER = getrefcount(_block.memory)


class _Run(NamedTuple):
    """A queued run: what it uses, the results that are lost if it fails, and how to undo it."""

    call: Callable[[], None]
    used: list[Any]
    results: list[ref[Buffer]]
    undo: Callable[[], None]
    location: tuple[CodeType, int] | None
    thread: threading.Thread


class _Queue:
    """The queued runs, and the thread that runs them."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self._runs: deque[_Run] = deque()
        # How many runs hold each of the users' arrays on which buffers are.
        self.holders: Counter[int] = Counter()
        self._error: Exception | None = None
        self._failed: list[_Run] = []
        self._thread: threading.Thread | None = None

    def put(self, run: _Run) -> None:
        with self.changed:
            while len(self._runs) >= _MOST_WAITING:
                self.changed.wait()
            self._runs.append(run)
            self.holders.update(map(id, run.used))
            waiting.runs = self
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="metaop runs", daemon=True)
                self._thread.start()
            self.changed.notify_all()

    def settle(self) -> None:
        """Waits for all runs; raises the error of the first that failed once, in the thread that
        queued it."""
        with self.changed:
            self.wait()
            if self._error is not None and not self._is_told():
                return
            error, self._error = self._error, None
            failed, self._failed = self._failed, []
            waiting.runs = None
        for run in reversed(failed):
            run.undo()
        if error is not None:
            raise error

    def _is_told(self) -> bool:
        """Whether this thread gets the error: it queued the run, or the one that did has ended."""
        thread = self._failed[0].thread
        return thread is threading.current_thread() or not thread.is_alive()

    def wait(self) -> None:
        """Waits for all runs, under the lock of `changed`."""
        while self._runs:
            self.changed.wait()

    def report(self) -> None:
        """Raises the error of a run that has failed, if there is one."""
        if self._error is not None and self._failed and self._is_told():
            self.settle()

    def _work(self) -> None:
        while True:
            with self.changed:
                while not self._runs:
                    self.changed.wait()
                run = self._runs[0]  # it stays there until it is done
            # Values computed from the results of a failed run are lost too.
            error = self._error or _error_of(run)
            if error is not None:
                for result in run.results:
                    lose(result())
            with self.changed:
                self._error = error
                if error is not None:
                    self._failed.append(run)
                self._runs.popleft()
                self.holders.subtract(map(id, run.used))
                if not self._runs:
                    self.holders.clear()
                del run  # only now: an array that is held more often than is known is not private
                self.changed.notify_all()


def _error_of(run: _Run) -> Exception | None:
    try:
        run.call()
    except Fault as fault:
        return fault.kind.error(
            f"{fault} (in a captured call that ran asynchronously)",
            fix="call the function without metaop.jit to see the operator",
            location=run.location,
        )
    except Exception as error:
        return error
    return None


_queue = _Queue()


def note(
    call: Callable[[], None],
    used: Sequence[Any],
    results: Sequence[Buffer],
    undo: Callable[[], None],
) -> None:
    """Queues `call` for the other thread, after everything queued before.

    `used` is held until then. If the call fails, the values of `results` are lost, and the thread
    that queued it gets the error and calls `undo`, last run first.
    """
    kept = list(map(ref, results))
    _queue.put(_Run(call, list(used), kept, undo, user_location(), threading.current_thread()))


def report() -> None:
    """Raises the error of a failed run, if it has not been raised yet."""
    _queue.report()


def are_private(buffers: Sequence[Buffer]) -> bool:
    """Whether only metaop can write the memory of buffers.

    Each buffer is held by one value, besides the sequence.
    """
    alone = all(count == _HELD_TWICE for count in map(getrefcount, buffers))
    return alone and all(one.is_pooled or _owns_array(one) for one in buffers)


def _owns_array(buffer: Buffer) -> bool:
    """Whether memory is a whole NumPy array that only its buffer and queued runs hold."""
    memory = buffer.memory
    if memory.base is not None or not memory.flags.owndata:
        return False
    number = id(memory)
    del memory
    return getrefcount(buffer.memory) == _HELD_BY_BUFFER + _queue.holders[number]


def _before_fork() -> None:
    _queue.changed.acquire()
    _queue.wait()


def _after_fork() -> None:
    _queue.changed.release()


def _in_child() -> None:
    global _queue
    waiting.runs, _queue = None, _Queue()


register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_in_child)
atexit.register(settled)  # an error that nobody was told is printed
