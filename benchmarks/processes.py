"""Measurements in fresh processes: imports and first results."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Mapping

from benchmarks.fresh_process import run_program
from benchmarks.report import Metric

_IMPORT = """
import time
start = time.perf_counter()
import {library}
print(time.perf_counter() - start)
"""
_FIRST_RESULT = """
import time
start = time.perf_counter()
from {library} import tensor
(tensor([1.0, 2.0]) + 1).sum().item()
print(time.perf_counter() - start)
"""
_LIBRARIES = ("metaop", "torch")
_REPETITIONS = 5


def measure() -> list[Metric]:
    """Times of fresh processes."""
    metrics = []
    for library, target in zip(_LIBRARIES, (0.4, None)):
        seconds = _median(_IMPORT.format(library=library), {})
        metrics.append(Metric("import", library, seconds, "s", target))
    first = "first result of (tensor([1., 2.]) + 1).sum()"
    for library, target in zip(_LIBRARIES, (1.0, None)):
        code = _FIRST_RESULT.format(library=library)
        with tempfile.TemporaryDirectory() as folder:
            environment = {"METAOP_CACHE_DIR": folder}
            off = {**environment, "METAOP_DISK_CACHE": "0"}
            metrics.append(Metric(first, library, _median(code, off), "s", target))
            if library == "metaop":
                run_program(code, environment)
                seconds = _median(code, environment)
                metrics.append(Metric(f"{first}, from the disk cache", library, seconds, "s"))
    return metrics


def _median(code: str, environment: Mapping[str, str]) -> float:
    return statistics.median(float(run_program(code, environment)) for _ in range(_REPETITIONS))
