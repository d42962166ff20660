"""Python's multiprocessing, with the functions that PyTorch adds.

Tensors are sent by value, or as shared memory after `share_memory_()` (see `tensor/sharing.py`).
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from multiprocessing import *  # noqa: F403
from multiprocessing import connection
from typing import Any

from metaop.errors import ArgumentError, MetaopError

_STRATEGIES = {"file_descriptor", "file_system"}


class ProcessRaisedException(MetaopError):
    """A process that `spawn` started has failed."""


class ProcessContext:
    """The processes that `spawn(join=False)` started."""

    def __init__(self, processes: list[Any]) -> None:
        self.processes = processes

    def pids(self) -> list[int]:
        """The process ids."""
        return [process.pid for process in self.processes]

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """Waits for the processes, at most `timeout` seconds; returns whether all have ended.

        If one fails, it ends the others, at once or after `grace_period` seconds, and raises
        ProcessRaisedException.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while running := [process for process in self.processes if process.is_alive()]:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not connection.wait([process.sentinel for process in running], left):
                return False
            self._raise_failure(grace_period)
        self._raise_failure(grace_period)
        return True

    def _raise_failure(self, grace_period: float | None) -> None:
        codes = [process.exitcode for process in self.processes]
        failed = [number for number, code in enumerate(codes) if code not in (0, None)]
        if not failed:
            return
        others = [process for process in self.processes if process.is_alive()]
        if grace_period is not None:
            connection.wait([process.sentinel for process in others], grace_period)
        for process in others:
            process.terminate()
            process.join()
        raise ProcessRaisedException(
            f"process {failed[0]} ended with exit code {codes[failed[0]]}",
            fix="see its traceback above",
        )


def start_processes(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:
    """Runs `fn(rank, *args)` in `nprocs` processes; waits for them unless `join` is False.

    `metaop.distributed.init_process_group(rank=, world_size=)` makes them the ranks of one job.
    """
    context: Any = multiprocessing.get_context(start_method)
    processes = [
        context.Process(target=fn, args=(rank, *args), daemon=daemon) for rank in range(nprocs)
    ]
    for process in processes:
        process.start()
    started = ProcessContext(processes)
    if not join:
        return started
    started.join()
    return None


def spawn(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:
    """`start_processes` with fresh interpreters."""
    return start_processes(fn, args, nprocs, join, daemon, start_method)


def get_all_sharing_strategies() -> set[str]:
    """The names that `set_sharing_strategy` takes."""
    return set(_STRATEGIES)


def get_sharing_strategy() -> str:
    """How memory is shared: shared tensors travel as descriptors of anonymous files."""
    return "file_descriptor"


def set_sharing_strategy(new_strategy: str) -> None:
    """Has no effect: there is only one strategy. Raises ArgumentError for unknown names."""
    if new_strategy not in _STRATEGIES:
        raise ArgumentError(
            f"unknown sharing strategy {new_strategy!r}",
            fix=f"use one of {sorted(_STRATEGIES)}",
        )
