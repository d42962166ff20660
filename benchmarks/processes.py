"""What needs processes of its own: imports, first results, peak memory of a training step."""

from __future__ import annotations

import json
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
# Pages count from what is resident when model and data are there; one step first would hide
# what compiling takes, so the kernels come from the disk cache.
_PEAK = """
import json
from benchmarks import whole_steps
from benchmarks.frameworks import alone
from benchmarks.workload import WORKLOADS
framework = alone({library!r})
run = WORKLOADS[{workload!r}].prepare(framework).run
framework.finish()
def resident(row):
    # Not getrusage: its maximum begins with what the parent process had.
    with open("/proc/self/status") as file:
        (line,) = (line for line in file if line.startswith(row))
    return int(line.split()[1]) * 1024
before = resident("VmRSS")
for _ in range(3):
    run()
    framework.finish()
most = resident("VmHWM")
allocated = 0
if {library!r} == "metaop":
    from metaop.codegen.memory import host
    allocated = host.peak
print(json.dumps([most - before, allocated]))
"""
_STEPS = ("ResNet-18 CIFAR, batch 32, SGD", "GPT 6 layers of 384, 4 x 256 tokens, AdamW")
_LIBRARIES = ("metaop", "torch")
_REPETITIONS = 5


def measure() -> list[Metric]:
    """Times of fresh processes, and memory."""
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
    for step in _STEPS:
        metrics.extend(_peaks(step))
    return metrics


def _peaks(workload: str) -> list[Metric]:
    """Megabytes that become resident in three steps; for metaop also what its tensors take."""
    name = f"memory of a step of {workload}"
    grown = {}
    for library in _LIBRARIES:
        code = _PEAK.format(library=library, workload=workload)
        run_program(code, {})
        resident, allocated = json.loads(run_program(code, {}))
        grown[library] = (resident / 1e6, allocated / 1e6)
    return [
        *(Metric(f"{name}, growth", library, each[0], "MB") for library, each in grown.items()),
        Metric(f"{name}, most in tensors", "metaop", grown["metaop"][1], "MB"),
    ]


def _median(code: str, environment: Mapping[str, str]) -> float:
    return statistics.median(float(run_program(code, environment)) for _ in range(_REPETITIONS))
