"""The passes as functions of a `Schedule`; metaop/compiler.py lists them in order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from metaop.codegen.lowering import LoweredKernel
from metaop.codegen.lowering.alike import AlikeKernels
from metaop.codegen.lowering.contractions.prepacked import Prepacked, right_as_read
from metaop.codegen.nest.ir import LoopNest
from metaop.codegen.schedule import Schedule, first_of_file, pairs_of
from metaop.codegen.transforms import streaming
from metaop.codegen.transforms.spilling import is_spilled
from metaop.codegen.transforms.tile_and_fuse import tiled_launches
from metaop.errors import InternalError
from metaop.fusion import group as grouping
from metaop.fusion import recompute as recomputing
from metaop.fusion.memory_plan import Lifetime, plan
from metaop.fusion.two_stages import in_two_stages
from metaop.unified_graph.node import Input, Node, topological
from metaop.unified_graph.symbolic import maximum

# The most launches by which an update is delayed, so that it can overwrite an input that they read.
_SOON = 4


def on_nodes(function: Callable[[Sequence[Node]], list[Node]]) -> Callable[[Schedule], Schedule]:
    """A pass that rewrites the nodes of the outputs."""
    return lambda schedule: schedule._replace(outputs=tuple(function(schedule.outputs)))


def split_reductions(schedule: Schedule) -> Schedule:
    """Cuts reductions that would leave processors idle into two stages."""
    machine = schedule.machine
    outputs = in_two_stages(schedule.outputs, machine.cut, machine.threads)
    return schedule._replace(outputs=tuple(outputs))


def recompute(schedule: Schedule) -> Schedule:
    """Recomputes values that are cheaper to compute again than to keep."""
    graph = recomputing.recompute(schedule.outputs)
    outputs = tuple(graph.outputs)
    return schedule._replace(outputs=outputs, graph=graph, plain_outputs=schedule.outputs)


def keep_all(schedule: Schedule) -> Schedule:
    """The schedule after `recompute` without any recomputation."""
    outputs = list(schedule.plain_outputs)
    graph = recomputing.Recomputed(outputs, topological(outputs))
    return schedule._replace(outputs=schedule.plain_outputs, graph=graph)


def group(schedule: Schedule) -> Schedule:
    """Chooses the nodes that have buffers, and those that share a kernel."""
    assert schedule.graph is not None
    # A second thread begins with the second chunk.
    small = 2 * schedule.machine.thresholds.chunk_elements
    kernels, storage, decisions = grouping.group(schedule.graph, small)
    return schedule._replace(kernels=tuple(kernels), storage=storage, decisions=tuple(decisions))


def lower(schedule: Schedule) -> Schedule:
    """Lowers each kernel to one or several loop nests."""
    kernels, storage = schedule.kernels, schedule.storage
    assert storage is not None
    roots = [root for kernel in kernels for root in kernel.roots]
    uses = Counter(source for node in topological(roots) for source in node.inputs)
    contractions = [kernel.contraction for kernel in kernels if kernel.contraction is not None]
    alike = _invariant([one.right for one in contractions], schedule.invariants)
    for one in contractions:
        # All steps of a loop read its invariants, so they are read often.
        uses[right_as_read(one)] += 2 if one.right in alike else 1
    launches: list[LoweredKernel] = []
    prepared: dict[Node, LoopNest] = {}
    known = AlikeKernels(storage, uses, schedule.machine)
    for kernel in kernels:
        lowered = known.lower(kernel, schedule.steps.get(kernel.roots[0]))
        launches.extend(_without_prepared(lowered, prepared))
    return schedule._replace(launches=tuple(launches), choices=tuple(known.choices))


def _without_prepared(
    launches: Sequence[LoweredKernel], prepared: dict[Node, LoopNest]
) -> Iterator[LoweredKernel]:
    """The launches without those that repeat what another kernel has `prepared`."""
    for launch in launches:
        written = set(launch.written)
        if not (written and all(node in prepared for node in written)):
            prepared.update((x, launch.nest) for x in written if isinstance(x.op, Prepacked))
            yield launch
        elif any(prepared[node].body != launch.nest.body for node in written):
            raise InternalError(f"{launch.nest.name} prepares something else under the same name")


def _invariant(nodes: Sequence[Node], invariants: frozenset[Node]) -> set[Node]:
    """Those of some nodes and of their sources that read inputs, but none that varies."""
    reading: set[Node] = set()
    varying: set[Node] = set()
    for node in topological(nodes) if invariants else ():
        is_input = isinstance(node.op, Input)
        if is_input or not reading.isdisjoint(node.inputs):
            reading.add(node)
        if (is_input and node not in invariants) or not varying.isdisjoint(node.inputs):
            varying.add(node)
    return reading - varying


def hoist_invariants(schedule: Schedule) -> Schedule:
    """Moves loop-invariant launches to the front, where they run once."""
    if not schedule.invariants:
        return schedule
    alike, outputs = set(schedule.invariants), set(schedule.outputs)
    first: list[LoweredKernel] = []
    rest: list[LoweredKernel] = []
    # What a later launch writes again, or writes a part of, is not finished by the first one.
    writers = Counter(node for launch in schedule.launches for node in set(launch.written))
    for launch in schedule.launches:
        written = set(launch.written)
        is_alike = alike.issuperset(set(launch.buffers) - written) and not any(
            node in outputs or writers[node] > 1 for node in written
        )
        (first if is_alike else rest).append(launch)
        alike.update(written if is_alike else ())
    return schedule._replace(launches=(*first, *rest), once=len(first))


def delay_updates(schedule: Schedule) -> Schedule:
    """Moves launches that may overwrite an input after others that soon read it.

    For example, the gradient with respect to a layer's input runs before the update of its weight.
    """
    outputs = set(schedule.outputs)
    ordered = list(schedule.launches)
    for position in reversed(range(len(ordered))):
        launch = ordered[position]
        sources = {
            launch.buffers[read]
            for written, read in pairs_of(launch)
            if launch.buffers[written] in outputs and isinstance(launch.buffers[read].op, Input)
        }
        written = set(launch.written)
        behind = position
        for later in range(position + 1, min(position + 1 + _SOON, len(ordered))):
            if not written.isdisjoint(ordered[later].buffers):
                break
            if not sources.isdisjoint(ordered[later].buffers):
                behind = later
        ordered.insert(behind, ordered.pop(position))
    return schedule._replace(launches=tuple(ordered))


def tile_and_fuse(schedule: Schedule) -> Schedule:
    """Tiles and fuses neighbours that exchange large values, where the machine has caches."""
    machine, near_bytes = schedule.machine, schedule.machine.tile.near_bytes
    if not near_bytes:
        return schedule
    once, rest = schedule.launches[: schedule.once], schedule.launches[schedule.once :]
    outside = [*schedule.outputs, *(node for launch in once for node in launch.buffers)]
    launches = tiled_launches(
        rest, outside, machine.threads, near_bytes, machine.thresholds.least_bytes, schedule.env
    )
    return schedule._replace(launches=(*once, *launches))


def plan_memory(schedule: Schedule) -> Schedule:
    """Places the temporaries; a result takes over the memory of an operand that dies."""
    launches, outputs = schedule.launches, set(schedule.outputs)
    first: dict[Node, int] = {}
    last: dict[Node, int] = {}
    for step, launch in enumerate(launches):
        for node in launch.buffers:
            if not isinstance(node.op, Input) and node not in outputs:
                first.setdefault(node, step)
                last[node] = step
    # What runs once is read in every step.
    kept = (node for launch in launches[: schedule.once] for node in launch.buffers)
    last.update((node, len(launches)) for node in kept if node in last)
    block = _shared_blocks(launches, first, last)
    members: dict[Node, list[Node]] = {}
    for node in first:
        members.setdefault(block[node], []).append(node)

    def placed(blocks: Sequence[Node]) -> tuple[dict[Node, Any], Any]:
        lifetimes = [
            Lifetime(
                maximum([node.nbytes for node in members[one]]),
                min(first[node] for node in members[one]),
                max(last[node] for node in members[one]),
            )
            for one in blocks
        ]
        offsets, size = plan(lifetimes)
        return dict(zip(blocks, offsets)), size

    offset_of, size = placed([one for one in members if not is_spilled(one)])
    in_file, spilled = placed([one for one in members if is_spilled(one)])
    start = size if not in_file else first_of_file(size)
    offset_of |= {one: start + offset for one, offset in in_file.items()}
    return schedule._replace(
        temporaries=tuple(first),
        offsets=tuple(offset_of[block[node]] for node in first),
        arena_bytes=size,
        spilled_bytes=spilled,
    )


def stream_results(schedule: Schedule) -> Schedule:
    """Marks results that would leave the caches before they are read."""
    thresholds = schedule.machine.thresholds
    if not thresholds.stream_bytes:
        return schedule
    places = dict(zip(schedule.temporaries, schedule.offsets))
    launches = streaming.stream_results(schedule.launches, places, thresholds)
    return schedule._replace(launches=tuple(launches))


def _shared_blocks(
    launches: Sequence[LoweredKernel], first: dict[Node, int], last: dict[Node, int]
) -> dict[Node, Node]:
    """For every temporary, the first of those that share its memory, possibly itself."""
    block: dict[Node, Node] = {}
    taken: set[Node] = set()
    for step, launch in enumerate(launches):
        operands: dict[int, list[Node]] = {}
        for written, read in pairs_of(launch):
            operands.setdefault(written, []).append(launch.buffers[read])
        for number, node in enumerate(launch.buffers):
            if first.get(node) != step or node in block:
                continue
            block[node] = node
            for source in operands.get(number, ()):
                dies = last.get(source) == step and source not in taken
                is_near = is_spilled(source) == is_spilled(node)
                if dies and is_near and source.nbytes == node.nbytes:
                    block[node] = block[source]
                    taken.add(source)
                    break
    return block
