"""Schedules requests: batches them where possible, with a bounded delay.

One thread computes, because a program uses all cores by itself. While it is busy, requests queue
up; when it is idle, a request waits at most `delay` seconds for others to batch with.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import accumulate
from typing import Any, NamedTuple

from metaop.serving.metrics import Metrics
from metaop.serving.model import Arrays, Model


class _Job(NamedTuple):
    """A waiting request. `future` gets its outputs."""

    model: Model
    arrays: Arrays
    rows: int
    arrived: float
    future: asyncio.Future[Arrays]


class Scheduler:
    """Computes requests on a separate thread; its methods belong to one event loop."""

    def __init__(self, most_rows: int, delay: float, metrics: Metrics) -> None:
        self._most_rows, self._delay, self._metrics = most_rows, delay, metrics
        self._groups: dict[Hashable, deque[_Job]] = {}
        self.thread = ThreadPoolExecutor(1, "metaop-serving")
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._is_closing = False

    def start(self) -> None:
        """Starts computing submitted requests."""
        self._task = asyncio.get_running_loop().create_task(self._compute())

    async def close(self) -> None:
        """Computes the waiting requests, then stops."""
        self._is_closing = True
        self._changed.set()
        if self._task is not None:
            await self._task
        self.thread.shutdown()

    async def submit(self, model: Model, arrays: Arrays) -> Arrays:
        """Computes the outputs of a model. Raises what its program raises."""
        fit = model.fit(arrays)
        job = _Job(
            model, arrays, fit.rows, time.perf_counter(), asyncio.get_running_loop().create_future()
        )
        self._groups.setdefault(fit.key, deque()).append(job)
        self._changed.set()
        return await job.future

    async def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Calls a function on the computing thread, between two computations."""
        return await asyncio.get_running_loop().run_in_executor(self.thread, function, *arguments)

    # --- the loop -------------------------------------------------------------------------------

    async def _compute(self) -> None:
        while self._groups or not self._is_closing:
            self._changed.clear()
            jobs, wait = self._next()
            if jobs:
                await self._run(jobs)
                continue
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._changed.wait(), wait)

    def _next(self) -> tuple[list[_Job], float | None]:
        """The jobs to compute now, or the time until some are due; None if none wait."""
        now, soonest, chosen = time.perf_counter(), None, None
        for key, group in self._groups.items():
            first = group[0]
            due = first.arrived + self._delay
            most = first.model.most_rows(self._most_rows)
            is_full = first.model.counted is None or sum(job.rows for job in group) >= most
            if is_full or due <= now or self._is_closing:
                if chosen is None or first.arrived < self._groups[chosen][0].arrived:
                    chosen = key
            soonest = due if soonest is None else min(soonest, due)
        if chosen is not None:
            return self._taken(chosen), None
        return [], None if soonest is None else soonest - now

    def _taken(self, key: Hashable) -> list[_Job]:
        """The jobs at the front of a group that are batched.

        A row count with its own compiled program is preferred to one up to twice as large.
        """
        group = self._groups[key]
        model, most = group[0].model, group[0].model.most_rows(self._most_rows)
        totals = list(accumulate(job.rows for job in group))
        count = max(bisect_right(totals, most), 1)
        for shorter in range(count, 0, -1):
            if totals[shorter - 1] in model.usual and 2 * totals[shorter - 1] >= totals[count - 1]:
                count = shorter
                break
        jobs = [group.popleft() for _ in range(count)]
        if not group:
            del self._groups[key]
        return jobs

    async def _run(self, jobs: list[_Job]) -> None:
        model, start = jobs[0].model, time.perf_counter()
        try:
            results = await self.call(model.run, [job.arrays for job in jobs])
        except Exception as error:
            results = [error] * len(jobs)
        self._metrics.computed(
            model,
            sum(job.rows for job in jobs),
            time.perf_counter() - start,
            [start - job.arrived for job in jobs],
        )
        for job, result in zip(jobs, results):
            if job.future.done():
                continue
            if isinstance(result, BaseException):
                job.future.set_exception(result)
            else:
                job.future.set_result(result)
