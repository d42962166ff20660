"""Peak memory of training steps, in fresh processes.

Pages count from what is resident when model and data are there: activations, gradients, the state
of the optimizer and the memory of kernels. What compiling takes would hide them, so the kernels
come from a disk cache that an earlier process has filled.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from benchmarks import whole_steps  # noqa: F401  registers workloads
from benchmarks.fresh_process import disk_cache, run_program
from benchmarks.workload import named_in

GROUP = "memory"
_STEPS, _QUICK_STEPS = 3, 2
_PROGRAM = """
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
for _ in range({steps}):
    run()
    framework.finish()
print(resident("VmHWM") - before)
"""


class Peak(NamedTuple):
    """Bytes that some steps add to a process."""

    name: str
    metaop: int
    torch: int

    @property
    def ratio(self) -> float:
        """metaop's growth over PyTorch's: below 1, metaop needs less."""
        return self.metaop / self.torch

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        return {**self._asdict(), "ratio": self.ratio}


def names() -> dict[str, str]:
    """The workloads by the names under which the command knows them."""
    return named_in(GROUP, "training")


def measure(workload: str, modes: Sequence[str], quick: bool) -> Peak:
    """The growth of processes that train one network; PyTorch runs in the first of its modes."""
    count = _QUICK_STEPS if quick else _STEPS
    with tempfile.TemporaryDirectory() as folder:
        environment = disk_cache(folder)
        _growth("metaop", workload, count, environment)
        metaop = _growth("metaop", workload, count, environment)
        return Peak(workload, metaop, _growth(modes[0], workload, count, environment))


def _growth(library: str, workload: str, count: int, environment: Mapping[str, str]) -> int:
    program = _PROGRAM.format(library=library, workload=workload, steps=count)
    return int(run_program(program, environment))


HEAD = ("| network | metaop MB | PyTorch MB | ratio |", "| --- | ---: | ---: | ---: |")


def markdown_row(row: Peak) -> str:
    """One line of the table."""
    return f"| {row.name} | {row.metaop / 1e6:.0f} | {row.torch / 1e6:.0f} | {row.ratio:.2f} |"
