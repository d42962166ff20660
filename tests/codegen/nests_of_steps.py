"""Writes the nests of whole training steps for several processors, to be compared by `diff -r`.

python -m tests.codegen.nests_of_steps before
python -m tests.codegen.nests_of_steps after mlp lenet    # steps with one of these words

A change of the compiler that should change no schedule gives the same folder. Steps are recorded
and scheduled, but neither compiled nor run.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tqdm import tqdm

from benchmarks import attention, memory_bound, whole_steps  # noqa: F401, they register workloads
from benchmarks.frameworks import MetaOp
from benchmarks.workload import WORKLOADS, Workload
from metaop.codegen.llvm.machine import machine_for
from metaop.codegen.llvm.target import target_named
from metaop.codegen.lowering import LoweredKernel, Machine
from metaop.codegen.nest.show import show_nest
from metaop.compiler import schedule
from metaop.execution import executor, specialisation
from metaop.unified_graph.cut import Subgraph

_TARGETS = ("x86-64-v4", "x86-64-v3", "x86-64", "aarch64")
# Threads, and the sizes of the near and the last cache.
_SIZES = ((1, 1 << 18, 8 << 20), (2, 1 << 20, 32 << 20), (8, 1 << 19, 32 << 20))


class _RecordedError(Exception):
    """A step is known now, and need not run."""


def machines() -> Iterator[tuple[str, Machine]]:
    """Machines by name."""
    for target in _TARGETS:
        plain = machine_for(target_named(target))
        for threads, near, last in _SIZES:
            tile = replace(plain.tile, near_bytes=near)
            thresholds = plain.thresholds._replace(stream_bytes=last)
            one = replace(plain, tile=tile, threads=threads, thresholds=thresholds)
            yield f"{target}-{threads}-{near >> 10}K-{last >> 20}M", one


def subgraph_of(workload: Workload) -> Subgraph | None:
    """What the first program of a step computes."""
    framework = MetaOp([])
    prepared = workload.prepare(framework)
    framework.finish()
    found: list[Subgraph] = []

    def note(subgraph: Subgraph) -> Any:
        found.append(subgraph)
        raise _RecordedError

    kept = executor.compile_subgraph
    executor.compile_subgraph = specialisation.compile_subgraph = note
    try:
        prepared.run()
        executor.realize()
    except _RecordedError:
        pass
    finally:
        executor.compile_subgraph = specialisation.compile_subgraph = kept
    return found[0] if found else None


def text_of(launches: Sequence[LoweredKernel]) -> str:
    """The nests of launches, with those of the steps that they repeat."""
    parts = []
    for launch in launches:
        streamed = [k for k, one in enumerate(launch.nest.parameters) if one.streamed]
        parts.append(f"{show_nest(launch.nest)}streamed {streamed}\n")
        if launch.repetition is not None:
            parts.append(text_of(launch.repetition.step.launches))
    return "\n".join(parts)


def main(arguments: Sequence[str]) -> None:
    """Writes a file for each step and machine into the folder that the first argument names."""
    folder, words = Path(arguments[0]), [word.lower() for word in arguments[1:]]
    folder.mkdir(parents=True, exist_ok=True)
    rows = [
        row
        for row in WORKLOADS.values()
        if not words or any(word in f"{row.group}: {row.name}".lower() for word in words)
    ]
    for row in tqdm(rows, "nests", unit=" steps", disable=None):
        subgraph = subgraph_of(row)
        if subgraph is None:
            continue
        graph = subgraph.expand()
        name = re.sub(r"\W+", "_", f"{row.group} {row.name}")
        for machine_name, machine in machines():
            text = text_of(schedule(*graph, machine).launches)
            (folder / f"{name}.{machine_name}.txt").write_text(text)
        executor.clear_programs()


if __name__ == "__main__":
    main(sys.argv[1:])
