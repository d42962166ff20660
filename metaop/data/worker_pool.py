"""The main process's interface to a DataLoader's workers."""

from __future__ import annotations

import itertools
import multiprocessing
import warnings
from collections import deque
from collections.abc import Iterator
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple

from metaop.data.transfer import receive
from metaop.data.worker import Exhausted, Failure, Plan, StartEpoch, Task, worker_main


class _Worker(NamedTuple):
    process: Any
    connection: Connection


class WorkerPool:
    """Worker processes that fetch batches; batches are returned in the order of their tasks."""

    def __init__(self, plan: Plan, context: Any, timeout: float) -> None:
        self._timeout = timeout or None
        self._epoch = 0
        self._plan = plan
        if not hasattr(context, "Process"):
            context = multiprocessing.get_context(context)
        self._workers = [self._start(context, number) for number in range(plan.workers)]

    def _start(self, context: Any, number: int) -> _Worker:
        ours, theirs = context.Pipe(duplex=True)
        process = context.Process(
            target=worker_main, args=(self._plan, number, theirs), daemon=True
        )
        with warnings.catch_warnings():
            # Newer Pythons warn about forking while threads run. It is safe here: the kernel pool's
            # threads hold no lock that a worker takes, and workers start with a single thread.
            warnings.simplefilter("ignore", DeprecationWarning)
            process.start()
        theirs.close()
        return _Worker(process, ours)

    def epoch(self, batches: Iterator[Any], prefetch: int) -> Iterator[Any]:
        """The collated batches of one epoch; each worker has `prefetch` tasks in flight at once.

        Raises the exceptions of workers, and RuntimeError when a worker dies or takes longer
        than the timeout.
        """
        self._epoch += 1
        for number in range(len(self._workers)):
            self._post(number, StartEpoch(self._epoch))
        idle_turns = itertools.cycle(range(len(self._workers)))
        exhausted: set[int] = set()
        waiting: deque[int] = deque()

        def hand_out() -> None:
            if len(exhausted) == len(self._workers):
                return
            number = next(turn for turn in idle_turns if turn not in exhausted)
            for indices in itertools.islice(batches, 1):
                self._post(number, Task(self._epoch, indices))
                waiting.append(number)

        for _ in range(prefetch * len(self._workers)):
            hand_out()
        while waiting:
            number = waiting.popleft()
            answer = self._receive(number)
            if isinstance(answer, Exhausted):
                exhausted.add(number)
                hand_out()
                continue
            hand_out()
            if isinstance(answer, Failure):
                answer.reraise()
            yield answer

    def _post(self, number: int, message: Any) -> None:
        try:
            self._workers[number].connection.send(message)
        except OSError:
            self._report_death(number)

    def _receive(self, number: int) -> Any:
        worker = self._workers[number]
        while True:
            ready = wait([worker.connection, worker.process.sentinel], self._timeout)
            if not ready:
                raise RuntimeError(
                    f"DataLoader timed out after {self._timeout} seconds waiting for worker "
                    f"{number} (pid {worker.process.pid})"
                )
            if worker.connection not in ready and not worker.connection.poll():
                self._report_death(number)
            try:
                epoch, answer = receive(worker.connection)
            except (EOFError, OSError):
                self._report_death(number)
            if epoch == self._epoch:
                return answer

    def _report_death(self, number: int) -> None:
        process = self._workers[number].process
        process.join(5)
        pid, code = process.pid, process.exitcode
        how = f"killed by signal {-code}" if code is not None and code < 0 else f"exit code {code}"
        self.shutdown()
        raise RuntimeError(
            f"DataLoader worker {number} (pid {pid}) exited unexpectedly ({how})"
        ) from None

    @property
    def is_alive(self) -> bool:
        return bool(self._workers)

    def shutdown(self) -> None:
        """Stops the workers: first by request, then by termination."""
        workers, self._workers = self._workers, []
        for worker in workers:
            worker.connection.close()
        for worker in workers:
            # A worker that is still fetching a batch has no receiver for it.
            worker.process.join(0.05)
            if worker.process.is_alive():
                worker.process.terminate()
            worker.process.join()
            worker.process.close()

    def __del__(self) -> None:
        self.shutdown()
