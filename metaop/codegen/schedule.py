"""A program on its way through the passes, and the inputs that its results may overwrite."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from metaop.codegen.lowering import LoweredKernel, Machine
from metaop.codegen.lowering.repetition import flattened
from metaop.codegen.nest.in_place import exact_pairs, index_checks
from metaop.codegen.verify import verify_donations
from metaop.settings import get
from metaop.unified_graph.node import Input, Node

if TYPE_CHECKING:
    from metaop.codegen.lowering.choice import Choice
    from metaop.fusion.explain import Decision
    from metaop.fusion.kernel import Kernel
    from metaop.fusion.recompute import Recomputed
    from metaop.fusion.storage import Storage
    from metaop.unified_graph.shape_env import ShapeEnv

PLAIN_MACHINE = Machine()
_PAGE = 4096


class Schedule(NamedTuple):
    """The value that passes transform: a graph, which becomes kernels, then launches with a plan.

    `inputs` and `outputs` are the program's own; an output may be an input, or appear twice. What
    no pass has made yet is empty. `graph` has the order of the nodes when all graph passes are
    done, `storage` tells which nodes have buffers, `decisions` why kernels are as they are, and
    `choices` by which strategies they are lowered; `temporaries` have `offsets` into an
    arena of `arena_bytes`. `env` has the symbols and guards of a program for any size; there is
    none where all sizes are numbers.

    What a loop repeats reads the inputs in `invariants` alike in every step: the first `once`
    launches run once. `steps` has the schedules of such steps by the first root of their kernel.

    `budget` is what the program may take besides its inputs, in bytes; 0: as much as it likes.
    `plain_outputs` are the outputs before any value was computed again. Behind the arena, from a
    whole page on, `spilled_bytes` of a file hold what is spilled.
    """

    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]
    machine: Machine = PLAIN_MACHINE
    graph: Recomputed | None = None
    kernels: tuple[Kernel, ...] = ()
    storage: Storage | None = None
    decisions: tuple[Decision, ...] = ()
    choices: tuple[Choice, ...] = ()
    launches: tuple[LoweredKernel, ...] = ()
    temporaries: tuple[Node, ...] = ()
    offsets: tuple[int, ...] = ()
    arena_bytes: int = 0
    env: ShapeEnv | None = None
    invariants: frozenset[Node] = frozenset()
    once: int = 0
    budget: int = 0
    plain_outputs: tuple[Node, ...] = ()
    steps: Mapping[Node, Schedule] = MappingProxyType({})
    spilled_bytes: int = 0

    @property
    def end_of_memory(self) -> int:
        """The end of the arena, or of the file behind it."""
        if not self.spilled_bytes:
            return self.arena_bytes
        return first_of_file(self.arena_bytes) + self.spilled_bytes


def first_of_file(arena_bytes: int) -> int:
    """The offset at which what is spilled begins, behind an arena."""
    return -(-arena_bytes // _PAGE) * _PAGE


class Stage(NamedTuple):
    """The result of a pass, and the reason for the pass."""

    name: str
    why: str
    schedule: Schedule


def pairs_of(launch: LoweredKernel) -> list[tuple[int, int]]:
    """The exact pairs of a launch whose operand is a single argument.

    All reads of such an operand are known.
    """
    times = Counter(launch.buffers)
    return [pair for pair in exact_pairs(launch.nest) if times[launch.buffers[pair[1]]] == 1]


def donations(schedule: Schedule) -> dict[Node, Node]:
    """Outputs that may overwrite an input, if nothing needs that input after the run.

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
    for step in reversed(range(last_failure(schedule.launches) + 1, len(schedule.launches))):
        launch = schedule.launches[step]
        for written, read in pairs_of(launch):
            output, source = launch.buffers[written], launch.buffers[read]
            if output not in outputs or output in found or first[output] != step:
                continue
            if not isinstance(source.op, Input) or source in outputs or last[source] != step:
                continue
            if source not in found.values() and source.nbytes == output.nbytes:
                found[output] = source
    if get("METAOP_VERIFY") and schedule.env is None:
        verify_donations(schedule, found)
    return found


def last_failure(launches: Sequence[LoweredKernel]) -> int:
    """The last launch that may stop a run because of an index that no earlier one has checked."""
    tested: dict[tuple[Node, bool], int] = {}
    found = -1
    for step, launch in enumerate(launches):
        if launch.is_rerun:
            continue
        if launch.repetition and any(any(index_checks(one.nest)) for one in flattened([launch])):
            found = step
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
