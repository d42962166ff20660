"""The cost model of kernels: the work and the memory traffic of a fused and planned graph."""

from __future__ import annotations

from typing import NamedTuple

from metaop.codegen.machine import Processor
from metaop.codegen.nest.ir import LoopNest
from metaop.codegen.schedule import Schedule
from metaop.unified_graph.node import Input, Node
from metaop.unified_graph.symbolic import hint_of


class KernelWork(NamedTuple):
    """Operations of one launch, and the bytes of the buffers that it reads or writes."""

    name: str
    operations: int
    nbytes: int


class ProgramWork(NamedTuple):
    """The launches of a program in order, its temporary memory, and the launch that completes each
    result."""

    kernels: tuple[KernelWork, ...]
    arena_bytes: int
    finished_after: tuple[int, ...]


def program_work(plan: Schedule) -> ProgramWork:
    """The work of the program of a schedule, without compiling it."""
    last: dict[Node, int] = {}
    kernels = []
    for number, launch in enumerate(plan.launches):
        last.update(dict.fromkeys(launch.buffers, number + 1))
        operations, nbytes = launch.operations, sum(node.nbytes for node in launch.buffers)
        if launch.repetition is not None:
            # A loop without a bound counts as one step.
            steps = max(launch.repetition.body.length, 1)
            work = program_work(launch.repetition.step).kernels
            operations += steps * sum(kernel.operations for kernel in work)
            nbytes = steps * sum(kernel.nbytes for kernel in work)
        kernels.append(KernelWork(launch.nest.name, operations, nbytes))
    finished = tuple(
        0 if isinstance(node.op, Input) else last.get(node, 0) for node in plan.outputs
    )
    return ProgramWork(tuple(kernels), plan.arena_bytes, finished)


def program_seconds(plan: Schedule, processor: Processor) -> list[float]:
    """The seconds of each launch of a program on a processor, for repeated runs.

    Memory traffic and arithmetic overlap. A buffer is read from the level of cache that holds
    everything touched since its last access, in this run or the one before.
    """
    work = program_work(plan).kernels
    sizes = [{node: hint_of(node.nbytes) for node in launch.buffers} for launch in plan.launches]
    touched, last = 0, dict[Node, int]()
    found: list[float] = []
    for is_counted in (False, True):
        for launch, one, buffers in zip(plan.launches, work, sizes):
            cores = _cores(launch.nest, plan.machine.threads)
            touched += sum(buffers.values())
            moving = sum(
                nbytes / _bandwidth(processor, cores, touched - last.get(node, 0))
                for node, nbytes in buffers.items()
            )
            last.update(dict.fromkeys(buffers, touched - sum(buffers.values())))
            if is_counted:
                computing = one.operations / (processor.core_flops * cores)
                starting = processor.fork_seconds if cores > 1 else 0.0
                again = launch.repetition
                found.append(
                    starting + max(moving, computing)
                    if again is None
                    else max(again.body.length, 1) * sum(program_seconds(again.step, processor))
                )
    return found


def _cores(nest: LoopNest, threads: int) -> int:
    """The number of threads that get a chunk of tasks."""
    return max(min(-(-hint_of(nest.tasks) // nest.grain), threads), 1)


def _bandwidth(processor: Processor, cores: int, distance: int) -> float:
    """The bytes per second at which cores read a buffer after touching other bytes in between."""
    if distance <= processor.near_bytes * cores:
        return processor.near_bandwidth * cores
    if distance <= processor.last_bytes:
        return processor.last_bandwidth * cores
    return min(processor.core_bandwidth * cores, processor.memory_bandwidth)
