"""The memory and the memory maps of a process that keeps meeting new programs.

METAOP_DISK_CACHE=0 python -m benchmarks.many_programs --count 100000
"""

from __future__ import annotations

import argparse
import mmap
import time
from pathlib import Path

import numpy as np

import metaop
from metaop.codegen.llvm.objects.engine import statistics

_FUNCTIONS = ("abs", "floor", "ceil", "trunc", "square", "neg", "relu", "frac", "sign", "round")
_REPORTS = 20


def main() -> None:
    """Runs programs of one kernel each, no two alike, and reports on the way."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10_000)
    count = parser.parse_args().count
    length = max(1, len(str(count - 1)))
    x = metaop.rand(64)
    start = time.perf_counter()
    for number in range(count):
        result = x
        for digit in f"{number:0{length}}":
            result = getattr(metaop, _FUNCTIONS[int(digit)])(result)
        values = result.numpy()
        if (number + 1) % max(1, count // _REPORTS) == 0:
            assert np.isfinite(values).all()
            resident = int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE
            maps = len(Path("/proc/self/maps").read_text().splitlines())
            print(
                f"{number + 1:7} programs, {statistics.compiled:7} kernels compiled, "
                f"{resident >> 20:5} MiB, {maps:5} maps, {time.perf_counter() - start:6.0f} s",
                flush=True,
            )


if __name__ == "__main__":
    main()
