"""The queue of modules to compile, by this process and by worker processes.

LLVM compiles one module at a time in a process, whatever the number of threads. So if many are
queued, worker processes take them from one end of the queue, and a thread that needs a result takes
any of them. If a worker cannot be started or dies, this process compiles more. Processes that start
together, such as ranks, share the work: each compiles, in an order of its own, what no other one is
compiling, and finds the rest on disk.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import pickle
import random
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from multiprocessing import spawn
from pathlib import Path

from metaop import settings
from metaop.codegen.llvm.objects.compile_worker import BOOT
from metaop.codegen.llvm.objects.job import Job
from metaop.errors import InternalError
from metaop.forking import register_at_fork

# For fewer modules than these, starting a worker costs more than it saves.
_WORTH_A_WORKER = 6
# The jobs that a worker has at most. While it has a next one, it does not wait for this process,
# whose threads take turns.
_AHEAD = 3
# The niceness of workers whose results nobody waits for.
_NICENESS = 10
# The seconds for which an idle worker stays, for example between making a model and its first step.
_IDLE = 10.0
# The seconds after which this process also compiles a module that a worker has.
_PATIENCE = 30.0
# The seconds for which a process waits at its end for a worker to finish.
_LAST_WAIT = 2.0


class CompileQueue:
    """Compiles modules in the background and on demand; threads may share it.

    Where `nobody_waits`, the first job starts a worker, which gives way to all other processes.
    """

    def __init__(self, nobody_waits: bool = False) -> None:
        self._closed = False
        self._jobs_of_a_worker = 1 if nobody_waits else _WORTH_A_WORKER
        self._niceness = _NICENESS if nobody_waits else 0
        self._start_anew()
        register_at_fork(after_in_child=self._start_anew)
        atexit.register(self.close)

    def _start_anew(self) -> None:
        """Resets the queue to no workers, because a forked child does not share its parent's."""
        self._changed = threading.Condition()
        self._waiting: list[Job] = []
        self._order = random.Random(os.getpid())
        self._elsewhere: set[Job] = set()  # those that workers have
        self._workers: list[threading.Thread] = []

    def submit(self, job: Job, most_workers: int = 0) -> Job:
        """Queues a job for a worker, up to a limit of workers, or else for `result`."""
        with self._changed:
            self._waiting.append(job)
            enough = len(self._waiting) >= self._jobs_of_a_worker * (1 + len(self._workers))
            if enough and len(self._workers) < most_workers and not self._closed:
                worker = threading.Thread(target=self._employ, name="compiling", daemon=True)
                self._workers.append(worker)
                worker.start()
            self._changed.notify_all()
        return job

    def result(self, job: Job) -> bytes:
        """The object of a job; while a worker has it, this process compiles other queued ones.

        Raises `InternalError` with LLVM's message if the text is not a valid module.
        """
        left: list[Job] = []
        try:
            while job.content is None:
                left += self._do_one(job)
        finally:
            with self._changed:
                self._waiting += left
        return job.content

    def _do_one(self, wanted: Job) -> list[Job]:
        """Compiles a job that is queued, or else the wanted one; what another process has is left.

        Returns what is left.
        """
        with self._changed:
            if is_queued := bool(self._waiting):
                job = self._waiting.pop(self._order.randrange(len(self._waiting)))
            elif wanted in self._elsewhere and self._changed.wait_for(
                lambda: self._waiting or wanted not in self._elsewhere, _PATIENCE
            ):
                return []
            else:
                job = wanted
        try:
            job.do(wait=not is_queued)
        except InternalError:
            if job is wanted:
                raise
            return []
        return [job] if job.content is None and job is not wanted else []

    def close(self) -> None:
        """Ends the workers; no others are started."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            workers = list(self._workers)
        for worker in workers:
            worker.join(_LAST_WAIT)

    def _employ(self) -> None:
        """Starts a worker and passes it one job after another; runs in its own thread."""
        asked: deque[Job] = deque()
        try:
            with _worker(self._niceness) as process:
                assert process.stdout is not None
                while True:
                    while len(asked) < _AHEAD and (job := self._next(wait=not asked)):
                        asked.append(job)
                        _send(process, job)
                    if not asked:
                        return
                    content, was_stored = pickle.load(process.stdout)
                    if content:
                        asked[0].content, asked[0].was_stored = content, was_stored
                    self._given_back([asked.popleft()])
        except (OSError, EOFError, pickle.UnpicklingError):
            self._closed = True
        finally:
            self._given_back(asked)
            with self._changed:
                self._workers.remove(threading.current_thread())

    def _next(self, wait: bool) -> Job | None:
        """The next job for a worker; None if there is none, or has been none for a while."""
        with self._changed:
            if wait:
                self._changed.wait_for(lambda: self._waiting or self._closed, _IDLE)
            if not self._waiting or self._closed:
                return None
            job = self._waiting.pop(0)
            self._elsewhere.add(job)
            return job

    def _given_back(self, jobs: Iterable[Job]) -> None:
        """Tells the waiting threads that a worker does not have some jobs any more."""
        with self._changed:
            self._elsewhere.difference_update(jobs)
            self._changed.notify_all()


@contextlib.contextmanager
def _worker(niceness: int) -> Iterator[subprocess.Popen[bytes]]:
    """A worker process, which does not receive the terminal's interrupts."""
    python = os.fsdecode(spawn.get_executable() or sys.executable)
    package = str(Path(settings.__file__).parent)
    with subprocess.Popen(
        [python, "-I", "-S", "-c", BOOT, package, str(niceness), *sys.path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
        creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),  # the same on Windows
    ) as process:
        yield process
        _send(process, None)


def _send(process: subprocess.Popen[bytes], message: object) -> None:
    assert process.stdin is not None
    pickle.dump(message, process.stdin)
    process.stdin.flush()
