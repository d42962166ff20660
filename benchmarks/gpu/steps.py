"""The launches of a training step for a GPU that need not be there.

A step is recorded as always, but its programs are only planned: what they would compute gets memory
that nobody has written. The second step is the one that counts: the first makes the optimizer's
states.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import astuple, replace
from typing import Any, NamedTuple

from benchmarks.frameworks import MetaOp
from benchmarks.gpu.demand import demand_of
from benchmarks.gpu.machines import Machine
from benchmarks.gpu.model import Demand, Prediction, predict
from benchmarks.workload import Workload
from metaop.codegen.caches.disk import shared_cache
from metaop.codegen.cuda import nvrtc
from metaop.codegen.cuda.kernels import DeviceKernels
from metaop.codegen.cuda.program import most_blocks
from metaop.codegen.cuda.schedules import CUDA
from metaop.codegen.estimate import program_work
from metaop.codegen.memory.buffers import allocate
from metaop.compiler import schedule
from metaop.execution import executor
from metaop.unified_graph.cut import Subgraph, finish
from metaop.unified_graph.node import Node

# Inputs and outputs.
Graph = tuple[list[Node], list[Node]]


class Predicted(NamedTuple):
    """A launch of a step: what it writes, what it asks for and how long that takes."""

    shapes: str
    demand: Demand
    prediction: Prediction


@contextmanager
def planned_only() -> Iterator[list[Graph]]:
    """Nothing is computed inside; the list gets the graphs that would have been."""
    found: list[Graph] = []

    def note(subgraph: Subgraph, watch: Any = None, **flags: Any) -> tuple[int, ...]:
        found.append(subgraph.expand())
        for call in subgraph.outputs:
            call.buffer = allocate(call.type.nbytes)
        finish(subgraph)
        return ()

    run, executor.run = executor.run, note
    try:
        yield found
    finally:
        executor.run = run


def programs_of(workload: Workload) -> list[Graph]:
    """The graphs of one training step."""
    framework = MetaOp([])
    step = workload.prepare(framework).run
    framework.finish()
    with planned_only() as found:
        for _ in range(2):
            found.clear()
            step()
            framework.finish()
    return found


class _OnlyCompiles:
    """In the place of a GPU: a kernel is what the compiler tells about it."""

    def __init__(self, architecture: str) -> None:
        self.architecture = architecture

    def load(self, text: str, symbol: str) -> nvrtc.Usage | None:
        """What a kernel takes of a multiprocessor, kept on disk; None without the compiler."""
        if not nvrtc.is_available():
            return None
        named = "\n".join(("usage", str(nvrtc.version()), self.architecture, text))
        key, cache = hashlib.sha256(named.encode()).hexdigest(), shared_cache()
        kept = cache.get(key) if cache else None
        if kept is not None:
            return nvrtc.Usage(*json.loads(kept))
        usage = nvrtc.compile_text(text, self.architecture).usage[symbol]
        if cache:
            cache.put(key, json.dumps(astuple(usage)).encode())
        return usage


@functools.cache
def _kernels(architecture: str) -> DeviceKernels:
    return DeviceKernels(_OnlyCompiles(architecture))  # type: ignore[arg-type]


def launches_of(graph: Graph, machine: Machine) -> list[Predicted]:
    """The launches of a program on a machine, in order."""
    plan = schedule(*graph, replace(CUDA, threads=machine.multiprocessors))
    kernels, most = _kernels(machine.architecture), most_blocks(machine.multiprocessors)
    found = []
    launches = kernels.launches_for([launch.nest for launch in plan.launches])
    works = program_work(plan).kernels
    for launch, work, made in zip(plan.launches, works, launches, strict=True):
        sizes = [node.nbytes for node in launch.buffers]
        demand = demand_of(launch.nest, sizes, work.operations, made, most, made.kernel)
        pairs = zip(launch.buffers, launch.nest.parameters, strict=True)
        written = [str(list(node.shape)) for node, p in pairs if p.role != "read"]
        shapes = written[0] + (f" and {len(written) - 1} more" if len(written) > 1 else "")
        found.append(Predicted(shapes, demand, predict(demand, machine)))
    return found
