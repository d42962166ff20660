"""A program before it is compiled for a machine: launches in order, and where buffers live."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from metaop.codegen.bands import gather_bands
from metaop.codegen.in_place import exact_pairs, index_checks
from metaop.codegen.lowering import LoweredKernel, Machine, lower
from metaop.codegen.lowering.prepared import Prepared, right_as_read
from metaop.codegen.streaming import stream_results
from metaop.codegen.verify import Checked, verify_donations, verify_launches, verify_memory
from metaop.fusion.group import group
from metaop.fusion.joining import join_reductions
from metaop.fusion.kernel import Kernel
from metaop.fusion.memory_plan import Lifetime, plan
from metaop.fusion.recompute import recompute
from metaop.fusion.simplify import simplify, split_long_reductions
from metaop.fusion.sums import lay_apart, reduce_terms
from metaop.settings import get
from metaop.unified_graph.node import Input, Node, topological

_PLAIN_MACHINE = Machine()
# How many launches a result waits for, to be written over an input that they read.
_SOON = 4


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
    gathered = join_reductions(reduce_terms(lay_apart(simplify(outputs))))
    return split_long_reductions(gathered)


def schedule(
    inputs: Sequence[Node], outputs: Sequence[Node], machine: Machine = _PLAIN_MACHINE
) -> Schedule:
    """Fuses, lowers and plans a graph of meta-operators."""
    graph = recompute(optimise(outputs))
    final = graph.outputs
    kernels, storage = group(graph)
    roots = [root for kernel in kernels for root in kernel.roots]
    uses = Counter(source for node in topological(roots) for source in node.inputs)
    uses.update(right_as_read(kernel.contraction) for kernel in kernels if kernel.contraction)
    launches: list[LoweredKernel] = []
    prepared: set[Node] = set()
    for kernel in kernels:
        launches.extend(_without_prepared(lower(kernel, storage, uses, machine), prepared))
    is_verified = get("METAOP_VERIFY")
    checked: Checked = {}
    if is_verified:
        verify_launches(launches, inputs, final, checked)
    launches = _updates_after_reads(launches, set(final))
    if machine.tile.near_bytes:
        launches = gather_bands(launches, final, machine.threads, machine.tile.near_bytes)
    if is_verified:
        verify_launches(launches, inputs, final, checked)
    temporaries, offsets, size = _plan_memory(launches, set(final))
    if machine.cache_bytes:
        places = dict(zip(temporaries, offsets))
        launches = stream_results(launches, places, machine.cache_bytes)
    found = Schedule(
        tuple(inputs),
        tuple(final),
        tuple(kernels),
        tuple(launches),
        tuple(temporaries),
        tuple(offsets),
        size,
    )
    if is_verified:
        verify_memory(found)
    return found


def _without_prepared(
    launches: Sequence[LoweredKernel], prepared: set[Node]
) -> Iterator[LoweredKernel]:
    """The launches but for those that prepare again what another kernel has `prepared`."""
    for launch in launches:
        parameters = zip(launch.buffers, launch.nest.parameters)
        written = {node for node, parameter in parameters if parameter.role != "read"}
        if not written <= prepared or not written:
            prepared.update(node for node in written if isinstance(node.op, Prepared))
            yield launch


def _updates_after_reads(
    launches: Sequence[LoweredKernel], outputs: set[Node]
) -> list[LoweredKernel]:
    """The launches, of which those that may write a result over an input come behind others that
    soon read this input: the gradient by a layer's input before the step of its weight."""
    ordered = list(launches)
    for position in reversed(range(len(ordered))):
        launch = ordered[position]
        sources = {
            launch.buffers[read]
            for written, read in _exact_pairs(launch)
            if launch.buffers[written] in outputs and isinstance(launch.buffers[read].op, Input)
        }
        roles = zip(launch.buffers, launch.nest.parameters)
        written = {node for node, parameter in roles if parameter.role != "read"}
        behind = position
        for later in range(position + 1, min(position + 1 + _SOON, len(ordered))):
            if not written.isdisjoint(ordered[later].buffers):
                break
            if not sources.isdisjoint(ordered[later].buffers):
                behind = later
        ordered.insert(behind, ordered.pop(position))
    return ordered


def _plan_memory(
    launches: Sequence[LoweredKernel], outputs: set[Node]
) -> tuple[list[Node], list[int], int]:
    """Offsets of the temporaries; a result takes over the memory of an operand that dies."""
    first: dict[Node, int] = {}
    last: dict[Node, int] = {}
    for step, launch in enumerate(launches):
        for node in launch.buffers:
            if not isinstance(node.op, Input) and node not in outputs:
                first.setdefault(node, step)
                last[node] = step
    block = _shared_blocks(launches, first, last)
    members: dict[Node, list[Node]] = {}
    for node in first:
        members.setdefault(block[node], []).append(node)
    lifetimes = [
        Lifetime(
            max(node.nbytes for node in nodes),
            min(first[node] for node in nodes),
            max(last[node] for node in nodes),
        )
        for nodes in members.values()
    ]
    offsets, size = plan(lifetimes)
    offset_of = dict(zip(members, offsets))
    temporaries = list(first)
    return temporaries, [offset_of[block[node]] for node in temporaries], size


def _shared_blocks(
    launches: Sequence[LoweredKernel], first: dict[Node, int], last: dict[Node, int]
) -> dict[Node, Node]:
    """For every temporary the first one of those that share its memory, itself at least."""
    block: dict[Node, Node] = {}
    taken: set[Node] = set()
    for step, launch in enumerate(launches):
        pairs = _exact_pairs(launch)
        for number, node in enumerate(launch.buffers):
            if first.get(node) != step or node in block:
                continue
            block[node] = node
            for written, read in pairs:
                source = launch.buffers[read]
                dies = last.get(source) == step and source not in taken
                if written == number and dies and source.nbytes == node.nbytes:
                    block[node] = block[source]
                    taken.add(source)
                    break
    return block


def _exact_pairs(launch: LoweredKernel) -> list[tuple[int, int]]:
    """The pairs whose operand is given to the kernel but once, so that all its reads are known."""
    times = Counter(launch.buffers)
    return [pair for pair in exact_pairs(launch.nest) if times[launch.buffers[pair[1]]] == 1]


def _last_failure(launches: Sequence[LoweredKernel]) -> int:
    """The last launch at which a run may stop for an index that no earlier one has tested."""
    tested: dict[tuple[Node, bool], int] = {}
    found = -1
    for step, launch in enumerate(launches):
        for check in index_checks(launch.nest):
            if check.buffer is None:
                found = step
                continue
            node = launch.buffers[check.buffer]
            known = tested.get((node, check.wraps), check.bound + 1)
            if known > check.bound:
                found = step
            if check.elements == node.size:
                tested[node, check.wraps] = min(known, check.bound)
    return found


def donations(schedule: Schedule) -> dict[Node, Node]:
    """Outputs that may be written over an input, should nobody need that input after the run.

    The input is read last by the launch that writes the output, element by element. Launches that
    may still fail come before, so that a failed run has destroyed nothing.
    """
    outputs = set(schedule.outputs)
    last = {node: k for k, launch in enumerate(schedule.launches) for node in launch.buffers}
    first = {
        node: k
        for k, launch in reversed(list(enumerate(schedule.launches)))
        for node in launch.buffers
    }
    found: dict[Node, Node] = {}
    for step in reversed(range(_last_failure(schedule.launches) + 1, len(schedule.launches))):
        launch = schedule.launches[step]
        for written, read in _exact_pairs(launch):
            output, source = launch.buffers[written], launch.buffers[read]
            if output not in outputs or output in found or first[output] != step:
                continue
            if not isinstance(source.op, Input) or source in outputs or last[source] != step:
                continue
            if source not in found.values() and source.nbytes == output.nbytes:
                found[output] = source
    if get("METAOP_VERIFY"):
        verify_donations(schedule, found)
    return found
