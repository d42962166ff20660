"""The code that runs in the worker processes of a DataLoader."""

from __future__ import annotations

import os
import pickle
import queue
import random
import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing import parent_process
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple

import numpy as np

from metaop.codegen.llvm.runtime import runtime
from metaop.data.fetch import Fetch, fetcher
from metaop.data.transfer import send
from metaop.tensor.generator import manual_seed
from metaop.unified_graph.cut import recorder


@dataclass(frozen=True)
class WorkerInfo:
    """This worker's number `id`, the number of workers, its seed and its copy of the data set.

    Assigning to a field raises AttributeError.

    >>> metaop.data.get_worker_info() is None  # in the main process
    True
    >>> info = metaop.data.WorkerInfo(id=0, num_workers=2, seed=7, dataset=range(3))
    >>> info.id, info.num_workers
    (0, 2)
    """

    id: int
    num_workers: int
    seed: int
    dataset: Any


_info: WorkerInfo | None = None


def get_worker_info() -> WorkerInfo | None:
    """The WorkerInfo inside a worker process, None in the main process.

    It never raises an error.

    >>> metaop.data.get_worker_info() is None
    True
    """
    return _info


class Task(NamedTuple):
    """A request to fetch the samples `indices` (None: the next batch of a stream) of an epoch."""

    epoch: int
    indices: Any


class StartEpoch(NamedTuple):
    """A request to start an epoch, which restarts streams."""

    epoch: int


class Exhausted:
    """The answer of a worker whose stream has no more samples."""


class Failure(NamedTuple):
    """The answer of a worker after an exception: its class and traceback."""

    kind: type[BaseException]
    text: str

    def reraise(self) -> None:
        """Re-raises the exception with the worker's traceback in its message."""
        try:
            error = self.kind(_Message(self.text))
        except Exception:  # its constructor takes other arguments
            error = RuntimeError(self.text)
        raise error


class _Message(str):
    """A string whose repr is itself, because str(KeyError(text)) is repr(text)."""

    def __repr__(self) -> str:
        return str(self)


class Plan(NamedTuple):
    """The data that a worker receives once, at its start."""

    dataset: Any
    collate: Callable[[list[Any]], Any]
    batched: bool
    streams: bool
    batch_size: int | None
    drop_last: bool
    initialise: Callable[[int], Any] | None
    seed: int
    workers: int


def worker_main(plan: Plan, number: int, connection: Connection) -> None:
    """Processes incoming tasks until the connection closes."""
    global _info
    _prepare_process(plan.seed + number)
    _info = WorkerInfo(number, plan.workers, plan.seed + number, plan.dataset)
    tasks: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_read_tasks, args=(connection, tasks), daemon=True).start()
    failure: Failure | None = None
    try:
        if plan.initialise is not None:
            plan.initialise(number)
    except Exception as error:
        failure = _failure(error, number)
    fetch: Fetch | None = None
    for message in iter(tasks.get, None):
        if isinstance(message, StartEpoch):
            fetch = None
            continue
        try:
            if failure is None and fetch is None:
                fetch = _start(plan)
            answer = failure or fetch(message.indices)  # type: ignore[misc]
        except StopIteration:
            answer = Exhausted()
        except Exception as error:
            answer = _failure(error, number)
        if not _answer(connection, message.epoch, answer, number):
            return


def _start(plan: Plan) -> Fetch:
    return fetcher(
        plan.dataset, plan.collate, plan.batched, plan.streams, plan.batch_size, plan.drop_last
    )


def _answer(connection: Connection, epoch: int, answer: Any, number: int) -> bool:
    """Sends an answer; returns False if the other end is gone."""
    try:
        try:
            send(connection, (epoch, answer))
        except (BrokenPipeError, ConnectionError):
            raise
        except Exception as error:  # the batch cannot be pickled
            send(connection, (epoch, _failure(error, number)))
    except OSError:
        return False
    return True


def _failure(error: Exception, number: int) -> Failure:
    kind: type[BaseException] = type(error)
    try:
        pickle.dumps(kind)
    except Exception:  # a class that exists only in this process
        kind = RuntimeError
    text = traceback.format_exc()
    header = f"Caught {type(error).__name__} in DataLoader worker process {number}."
    return Failure(kind, f"{header}\nOriginal {text}")


def _prepare_process(seed: int) -> None:
    """Isolates the worker: one thread, no inherited work, its own random numbers."""
    # The main process handles interrupts: it closes the connection.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ["METAOP_NUM_THREADS"] = "1"
    _use_one_thread()
    recorder.restart()
    random.seed(seed)
    np.random.seed(seed % (1 << 32))
    manual_seed(seed)


def _use_one_thread() -> None:
    if runtime.cache_info().currsize:
        runtime().set_num_threads(1)


def _read_tasks(connection: Connection, tasks: queue.SimpleQueue[Any]) -> None:
    """Drains the socket, so that the main process never blocks when it sends a task."""
    parent = parent_process()
    watched = [connection] if parent is None else [connection, parent.sentinel]
    for message in _messages(connection, watched):
        tasks.put(message)
    tasks.put(None)


def _messages(connection: Connection, watched: list[Any]) -> Iterator[Any]:
    try:
        while connection in wait(watched):
            message = connection.recv()
            if message is None:
                return
            yield message
    except (EOFError, OSError):
        return
