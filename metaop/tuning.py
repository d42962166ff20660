"""Autotuning: searches for the fastest schedules of contractions on this machine."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from metaop.codegen.llvm.tuning import Report, searching
from metaop.dist.environment import launched
from metaop.errors import ArgumentError
from metaop.execution import executor

__all__ = ["Report", "tune"]


@contextmanager
def tune() -> Iterator[Report]:
    """Autotunes the matrix products and convolutions of everything that runs inside the block.

    For each of them it times several schedules and block sizes on random data. It keeps the fastest
    in this process and, on disk beside the compiled kernels, for later processes with the same
    processor and number of threads. That takes about a second per contraction, once. It prints what
    it finds; the report that the block yields has it too. Results may round differently afterwards.

    Raises `ArgumentError` in a job of several ranks, whose timings would disturb each other.

    Example: `with metaop.tune(): model(images)`, or METAOP_TUNE=search for a whole program.
    """
    place = launched()
    if place is not None and place.size > 1:
        raise ArgumentError(
            f"tune() is called in a job of {place.size} ranks, which would time each other",
            fix="tune in a process of its own with as many threads as a rank has "
            "(METAOP_NUM_THREADS); the ranks then use what was found",
        )
    executor.realize()
    executor.clear_programs()
    with searching() as report:
        yield report
        executor.realize()
    print(f"metaop {report}", file=sys.stderr)
