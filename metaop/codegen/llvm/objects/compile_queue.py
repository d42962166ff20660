"""Modules that wait to be compiled, by this process and by others that help it.

LLVM compiles one module at a time in a process, whatever the number of threads. So when many wait,
worker processes take them from one end of the queue while whoever needs a result takes them from
the other. A worker that cannot be started or dies only leaves more to do here.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import pickle
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing import spawn
from pathlib import Path

from metaop import settings
from metaop.codegen.llvm.objects.compile_worker import BOOT
from metaop.codegen.llvm.objects.object_code import compile_object
from metaop.codegen.llvm.target import Target
from metaop.errors import InternalError
from metaop.forking import register_at_fork

# With fewer modules than these, a worker would start for longer than it helps.
_WORTH_A_WORKER = 6
# An idle worker stays for so many seconds, as between the making of a model and its first step.
_IDLE = 10.0
# A module that a worker has is compiled here as well after so many seconds.
_PATIENCE = 30.0
# At its end a process waits so long for a worker to finish.
_LAST_WAIT = 2.0


@dataclass(eq=False)
class Job:
    """A module, and its object as soon as there is one."""

    text: str
    target: Target
    content: bytes | None = None


class CompileQueue:
    """Compiles modules in the background and on demand; threads may share it."""

    def __init__(self) -> None:
        self._closed = False
        self._start_anew()
        register_at_fork(after_in_child=self._start_anew)
        atexit.register(self.close)

    def _start_anew(self) -> None:
        """Without workers: those of a process that has forked are not the child's."""
        self._changed = threading.Condition()
        self._waiting: deque[Job] = deque()
        self._elsewhere: set[Job] = set()  # those that workers have
        self._workers: list[threading.Thread] = []

    def submit(self, text: str, target: Target, most_workers: int = 0) -> Job:
        """A job that a worker does, of which at most so many are started, or else `result`."""
        job = Job(text, target)
        with self._changed:
            self._waiting.append(job)
            enough = len(self._waiting) >= _WORTH_A_WORKER * (1 + len(self._workers))
            if enough and len(self._workers) < most_workers and not self._closed:
                worker = threading.Thread(target=self._employ, name="compiling", daemon=True)
                self._workers.append(worker)
                worker.start()
            self._changed.notify_all()
        return job

    def result(self, job: Job) -> bytes:
        """The object of a job; while a worker has it, others that wait are done here.

        Raises `InternalError` with LLVM's message when the text is not a legal module.
        """
        while job.content is None:
            self._do_one(job)
        return job.content

    def _do_one(self, wanted: Job) -> None:
        with self._changed:
            if self._waiting:
                job = self._waiting.pop()
            elif wanted in self._elsewhere and self._changed.wait_for(
                lambda: self._waiting or wanted not in self._elsewhere, _PATIENCE
            ):
                return
            else:
                job = wanted
        try:
            job.content = compile_object(job.text, job.target)
        except InternalError:
            if job is wanted:
                raise

    def close(self) -> None:
        """Lets the workers end; no others are started."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            workers = list(self._workers)
        for worker in workers:
            worker.join(_LAST_WAIT)

    def _employ(self) -> None:
        """Starts a worker and gives it one job after another; runs in a thread of its own."""
        try:
            with _worker() as process:
                while job := self._next():
                    try:
                        job.content = _asked(process, job)
                    finally:
                        with self._changed:
                            self._elsewhere.discard(job)
                            self._changed.notify_all()
        except (OSError, EOFError, pickle.UnpicklingError):
            self._closed = True
        finally:
            with self._changed:
                self._workers.remove(threading.current_thread())

    def _next(self) -> Job | None:
        """A job for a worker; None when there has been none for a while."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed, _IDLE)
            if not self._waiting or self._closed:
                return None
            job = self._waiting.popleft()
            self._elsewhere.add(job)
            return job


@contextlib.contextmanager
def _worker() -> Iterator[subprocess.Popen[bytes]]:
    """A worker process, out of the reach of the terminal's interrupts."""
    python = os.fsdecode(spawn.get_executable() or sys.executable)
    package = str(Path(settings.__file__).parent)
    with subprocess.Popen(
        [python, "-I", "-S", "-c", BOOT, package, *sys.path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
        creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),  # the same on Windows
    ) as process:
        yield process
        _send(process, None)


def _asked(process: subprocess.Popen[bytes], job: Job) -> bytes | None:
    """The object that a worker makes; None when it cannot."""
    _send(process, (job.text, job.target))
    assert process.stdout is not None
    answer: bytes | None = pickle.load(process.stdout)
    return answer


def _send(process: subprocess.Popen[bytes], message: object) -> None:
    assert process.stdin is not None
    pickle.dump(message, process.stdin)
    process.stdin.flush()
