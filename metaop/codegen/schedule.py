"""A program before it is compiled for a machine: launches in order, and where buffers live."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from metaop.codegen.lowering import LoweredKernel, Machine, lower
from metaop.fusion.group import group
from metaop.fusion.kernel import Kernel
from metaop.fusion.memory_plan import Lifetime, plan
from metaop.fusion.simplify import simplify, split_long_reductions
from metaop.unified_graph.node import Input, Node, topological


@dataclass(frozen=True)
class Schedule:
    """Launches, the nodes that they exchange, and the memory plan.

    `inputs` and `outputs` are the program's own; `temporaries` have offsets into an arena of
    `arena_bytes`. An output may be an input, or appear twice.
    """

    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]
    kernels: tuple[Kernel, ...]
    launches: tuple[LoweredKernel, ...]
    temporaries: tuple[Node, ...]
    offsets: tuple[int, ...]
    arena_bytes: int


def optimise(outputs: Sequence[Node]) -> list[Node]:
    """The graph passes, in order."""
    simplified = simplify(outputs)
    return split_long_reductions(simplified)


def schedule(
    inputs: Sequence[Node], outputs: Sequence[Node], machine: Machine = Machine()
) -> Schedule:
    """Fuses, lowers and plans a graph of meta-operators."""
    final = optimise(outputs)
    kernels = group(final)
    stored = {root for kernel in kernels for root in kernel.roots}
    uses = Counter(source for node in topological(final) for source in node.inputs)
    launches: list[LoweredKernel] = []
    for kernel in kernels:
        launches.extend(lower(kernel, stored.__contains__, uses, machine))
    temporaries, offsets, size = _plan_memory(launches, set(final))
    return Schedule(
        tuple(inputs),
        tuple(final),
        tuple(kernels),
        tuple(launches),
        tuple(temporaries),
        tuple(offsets),
        size,
    )


def _plan_memory(
    launches: Sequence[LoweredKernel], outputs: set[Node]
) -> tuple[list[Node], list[int], int]:
    first: dict[Node, int] = {}
    last: dict[Node, int] = {}
    for step, launch in enumerate(launches):
        for node in launch.buffers:
            if not isinstance(node.op, Input) and node not in outputs:
                first.setdefault(node, step)
                last[node] = step
    temporaries = list(first)
    lifetimes = [Lifetime(node.nbytes, first[node], last[node]) for node in temporaries]
    offsets, size = plan(lifetimes)
    return temporaries, offsets, size
