"""Searching for the fastest way to compute contractions on this machine, once and for all."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from metaop import executor
from metaop.codegen.llvm.tuning import Report, searching
from metaop.dist.environment import launched
from metaop.errors import ArgumentError

__all__ = ["Report", "tune"]


@contextmanager
def tune() -> Iterator[Report]:
    """Tunes the matrix products and convolutions of all that runs inside of the block.

    A few schedules and sizes of blocks are timed for each one on random data, and the fastest is
    kept, in this process and, in the folder of compiled kernels, for later ones with the same
    processor and number of threads. Takes a second or so for each contraction, once; prints what it
    has found, which the report of the block has too. Results may round otherwise than before.

    Raises `ArgumentError` in a job of several ranks, which would time each other.

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
