"""PyTorch's profiler interface in front of `metaop.inspect`'s profiles."""

from __future__ import annotations

import enum
import gzip
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from metaop.inspect.profiler import Profile

__all__ = [
    "ProfilerAction",
    "ProfilerActivity",
    "profile",
    "record_function",
    "schedule",
    "tensorboard_trace_handler",
]


class ProfilerActivity(enum.Enum):
    """What to profile; metaop profiles every kernel in any case."""

    CPU = 0
    CUDA = 1
    XPU = 2


class ProfilerAction(enum.Enum):
    """What the profiler does in a step."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


def schedule(
    *,
    wait: int,
    warmup: int,
    active: int,
    repeat: int = 0,
    skip_first: int = 0,
    skip_first_wait: int = 0,
) -> Callable[[int], ProfilerAction]:
    """A cycle of `wait` idle steps, `warmup` steps and `active` steps, which are recorded."""

    def action(step: int) -> ProfilerAction:
        step -= skip_first
        idle = wait
        if step < 0:
            return ProfilerAction.NONE
        if skip_first_wait and step < warmup + active:
            idle = 0
        cycle = idle + warmup + active
        if repeat and step // cycle >= repeat:
            return ProfilerAction.NONE
        place = step % cycle
        if place < idle:
            return ProfilerAction.NONE
        if place < idle + warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD_AND_SAVE if place == cycle - 1 else ProfilerAction.RECORD

    return action


@dataclass(frozen=True)
class KernelTime:
    """The calls of a kernel; times are in microseconds."""

    key: str
    count: int
    cpu_time_total: float

    @property
    def self_cpu_time_total(self) -> float:
        """The same: kernels call no others."""
        return self.cpu_time_total

    @property
    def cpu_time(self) -> float:
        """The mean time of a call."""
        return self.cpu_time_total / self.count


class _Table(list[KernelTime]):
    """What `key_averages()` returns: the kernels by total time; `table()` gives their text."""

    def __init__(self, profile: Profile) -> None:
        super().__init__(
            KernelTime(name, count, nanoseconds / 1e3)
            for name, count, nanoseconds in profile.by_kernel()
        )
        self._profile = profile

    def table(self, sort_by: str | None = None, row_limit: int = 100, **options: Any) -> str:
        """The kernels by total time."""
        return "\n".join(self._profile.table().splitlines()[: row_limit + 1]) + "\n"

    __str__ = __repr__ = table


class profile:
    """Profiles a block; `step()` after each step moves the schedule on.

    Example:

        with metaop.profiler.profile() as result:
            train_one_epoch()
        print(result.key_averages().table())
    """

    def __init__(
        self,
        *,
        activities: Iterable[ProfilerActivity] | None = None,
        schedule: Callable[[int], ProfilerAction] | None = None,
        on_trace_ready: Callable[[profile], Any] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        with_modules: bool = False,
        **options: Any,
    ) -> None:
        self._schedule = schedule or (lambda step: ProfilerAction.RECORD)
        self._ready = on_trace_ready
        self.step_num = 0
        self._active: Profile | None = None
        self._last = Profile()

    def __enter__(self) -> profile:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def start(self) -> None:
        """Starts profiling, as entering the block does."""
        self._enter(self._schedule(self.step_num))

    def stop(self) -> None:
        """Stops profiling, as leaving the block does."""
        if self._active is not None:
            self._leave()

    def step(self) -> None:
        """Ends a step of the schedule."""
        done = self._schedule(self.step_num)
        self.step_num += 1
        following = self._schedule(self.step_num)
        recording = (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)
        if self._active is not None and (
            done is ProfilerAction.RECORD_AND_SAVE or following not in recording
        ):
            self._leave()
        if self._active is None:
            self._enter(following)

    def _enter(self, action: ProfilerAction) -> None:
        if action in (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE):
            self._active = Profile()
            self._active.__enter__()

    def _leave(self) -> None:
        assert self._active is not None
        self._active.__exit__(None, None, None)
        self._last, self._active = self._active, None
        if self._ready is not None:
            self._ready(self)

    def key_averages(
        self,
        group_by_input_shape: bool = False,
        group_by_stack_n: int = 0,
        group_by_overload_name: bool = False,
    ) -> _Table:
        """The time of the kernels by name; input shapes, stacks and overloads are not recorded."""
        return _Table(self._active or self._last)

    def export_chrome_trace(self, path: str | os.PathLike[str]) -> None:
        """Writes the trace for chrome://tracing or ui.perfetto.dev."""
        (self._active or self._last).save(path)


def tensorboard_trace_handler(
    dir_name: str, worker_name: str | None = None, use_gzip: bool = False
) -> Callable[[profile], None]:
    """An `on_trace_ready` callback that writes each trace to a folder; `use_gzip` compresses it."""

    def write(result: profile) -> None:
        Path(dir_name).mkdir(parents=True, exist_ok=True)
        name = f"{worker_name or os.getpid()}.{time.time_ns()}.pt.trace.json"
        path = Path(dir_name) / name
        result.export_chrome_trace(path)
        if use_gzip:
            path.with_name(f"{name}.gz").write_bytes(gzip.compress(path.read_bytes()))
            path.unlink()

    return write


class record_function:
    """Names a block of the program; the profile attributes kernels to lines in any case."""

    def __init__(self, name: str, args: str | None = None) -> None:
        self.name = name

    def __enter__(self) -> record_function:
        return self

    def __exit__(self, *error: object) -> None:
        return None

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return function
