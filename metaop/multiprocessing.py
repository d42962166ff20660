"""Python's multiprocessing, with the functions that PyTorch adds; tensors travel by value."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing import *  # noqa: F403
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
        """Their identifiers."""
        return [process.pid for process in self.processes]

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """Waits for the processes; when one fails, ends the others and raises an error."""
        for process in self.processes:
            process.join(timeout)
            if process.exitcode not in (0, None):
                for other in self.processes:
                    if other.is_alive():
                        other.terminate()
                raise ProcessRaisedException(
                    f"process {self.processes.index(process)} ended with exit code "
                    f"{process.exitcode}",
                    fix="see its traceback above",
                )
        return all(process.exitcode == 0 for process in self.processes)


def start_processes(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:
    """Runs `fn(rank, *args)` in `nprocs` processes; waits for them unless `join` is False."""
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
    """How PyTorch would share memory; metaop sends tensors by value."""
    return "file_descriptor"


def set_sharing_strategy(new_strategy: str) -> None:
    """Accepted for a strategy that PyTorch knows; tensors travel by value in any case."""
    if new_strategy not in _STRATEGIES:
        raise ArgumentError(
            f"unknown sharing strategy {new_strategy!r}",
            fix=f"use one of {sorted(_STRATEGIES)}",
        )
