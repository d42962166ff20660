"""The cost model of kernels: what a graph will compute and move once it is fused and planned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from metaop.codegen.schedule import Schedule
from metaop.fusion.work import operations_of
from metaop.unified_graph.node import Input, Node


class KernelWork(NamedTuple):
    """Operations of one launch, and the bytes of the buffers that it reads or writes."""

    name: str
    operations: int
    nbytes: int


class ProgramWork(NamedTuple):
    """The launches of a program in order, its temporary memory, and after how many launches each
    result is complete."""

    kernels: tuple[KernelWork, ...]
    arena_bytes: int
    finished_after: tuple[int, ...]


def program_work(plan: Schedule) -> ProgramWork:
    """What the program of a schedule does; nothing is compiled."""
    known: set[Node] = set()
    last: dict[Node, int] = {}
    kernels = []
    for number, launch in enumerate(plan.launches):
        made = [n for n in launch.buffers if not isinstance(n.op, Input) and n not in known]
        known.update(made)
        last.update(dict.fromkeys(launch.buffers, number + 1))
        operations, nbytes = arithmetic(made, known), sum(node.nbytes for node in launch.buffers)
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


def arithmetic(made: Sequence[Node], stored: set[Node]) -> int:
    """The arithmetic between the buffers that a launch makes and those that it reads."""
    seen: set[Node] = set()
    stack = list(made)
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            stack.extend(n for n in node.inputs if n not in stored)
    return sum(operations_of(node) for node in seen)
