"""The overhead of an empty step: serial, parallel, and parallel after the workers slept.

Run it with `python benchmarks/runtime_overhead.py`; it prints microseconds, minimum and median.
"""

from __future__ import annotations

import statistics
import time

import numpy as np

from metaop.codegen.llvm.objects import engine
from metaop.codegen.llvm.runtime import Step, StepTable, runtime
from metaop.codegen.memory.buffers import allocate

EMPTY = "define void @empty(ptr %b, ptr %s, i64 %begin, i64 %end, ptr %e) { ret void }"
STEPS = 50


def report(name: str, seconds: list[float]) -> None:
    """Prints one line of the table."""
    least, middle = min(seconds) * 1e6, statistics.median(seconds) * 1e6
    print(f"{name:44s} {least:8.3f} {middle:8.3f}")


def run_times(tasks: int, steps: int, idle: float, repetitions: int) -> list[float]:
    """Seconds of one run of `steps` empty steps, after `idle` seconds without work."""
    kernel = engine.compile_kernel(EMPTY, "empty")
    table = StepTable([Step(kernel, [], [], tasks, 1)] * steps)
    error = np.zeros(4, np.int64)
    run, arguments = runtime().run, (table.address, steps, 0, error.ctypes.data, 0)
    seconds = []
    for _ in range(repetitions):
        time.sleep(idle)
        start = time.perf_counter()
        run(*arguments)
        seconds.append(time.perf_counter() - start)
    return seconds


def allocation_times(nbytes: int) -> list[float]:
    """Seconds of allocating and freeing one buffer."""
    seconds = []
    for _ in range(200):
        start = time.perf_counter()
        for _ in range(100):
            allocate(nbytes)
        seconds.append((time.perf_counter() - start) / 100)
    return seconds


def main() -> None:
    """Prints the table."""
    threads = runtime().get_num_threads()
    print(f"{threads} threads; microseconds".ljust(44), "     min   median")
    report("call of no step", run_times(1, 0, 0.0, 2000))
    for name, tasks in (("serial", 1), ("parallel", threads)):
        seconds = run_times(tasks, STEPS, 0.0, 1000)
        report(f"{name} step, among {STEPS}", [each / STEPS for each in seconds])
    report("parallel step after 2 ms of idleness", run_times(threads, 1, 0.002, 300))
    report("allocate and free 1 MiB", allocation_times(1 << 20))


if __name__ == "__main__":
    main()
