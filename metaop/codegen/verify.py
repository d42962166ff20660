"""Checks of launches and of their memory plan, beyond those of single nests.

- a launch reads only elements of a buffer that an earlier one wrote, or inputs;
- at the end every element of every output is written;
- buffers that share memory are alive at different times, or one takes over the memory of another
  in the launch that reads the one and writes the other, element by element;
- an output that overwrites an input is written by the last launch that reads it.

`METAOP_VERIFY=1` checks all that is compiled; the tests set it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from metaop.codegen.lowering.base.kernel import LoweredKernel
from metaop.codegen.nest.verify import Touched, VerificationError, verify_nest
from metaop.unified_graph.code import Code
from metaop.unified_graph.node import Input, MetaOp, Node
from metaop.unified_graph.symbolic import SymInt, symbolic_parts, with_parts
from metaop.unified_graph.symbolic_source import function_of, source_of

if TYPE_CHECKING:
    from metaop.codegen.schedule import Schedule


# The results for launches that were checked before, by the identity of their nests, which those
# that are alike share, and the sizes of their buffers.
Checked = dict[tuple[int, ...], tuple[LoweredKernel, Touched]]


@dataclass(frozen=True)
class _Value(MetaOp):
    """Stands for a value of a program for any size when that is checked for particular sizes."""

    number: int
    name: ClassVar[str] = "value"


def verify_sizes(schedule: Schedule, symbols: Sequence[float]) -> None:
    """Checks a program for any size for some values of its symbols.

    Raises `VerificationError`.
    """
    assert schedule.env is not None
    sizes = list(symbolic_parts(list(map(_sizes, _with_steps(schedule)))))
    values = dict(zip(sizes, function_of(source_of(schedule.env, sizes))(*symbols)))
    for one in _with_steps(schedule):
        found = _for_sizes(one, values)
        verify_launches(found, {})
        verify_memory(found)


def _with_steps(schedule: Schedule) -> list[Schedule]:
    """A schedule, and those of the steps of its loops."""
    found = [schedule]
    for launch in schedule.launches:
        if launch.repetition is not None:
            found += _with_steps(launch.repetition.step)
    return found


def _sizes(schedule: Schedule) -> list[Any]:
    buffers = [node for launch in schedule.launches for node in launch.buffers]
    shapes = [node.shape for node in (*buffers, *schedule.inputs, *schedule.outputs)]
    nests = [launch.nest for launch in schedule.launches]
    return [nests, shapes, schedule.offsets, schedule.arena_bytes]


def _for_sizes(schedule: Schedule, values: Mapping[SymInt, int]) -> Schedule:
    nodes: dict[Node, Node] = {}

    def bound(node: Node) -> Node:
        if node not in nodes:
            op = node.op if isinstance(node.op, (Input, Code)) else _Value(len(nodes))
            nodes[node] = Node(op, (), with_parts(node.shape, values), node.dtype)
        return nodes[node]

    launches = tuple(
        replace(
            launch,
            nest=with_parts(launch.nest, values),
            buffers=tuple(map(bound, launch.buffers)),
        )
        for launch in schedule.launches
    )
    return schedule._replace(
        inputs=tuple(map(bound, schedule.inputs)),
        outputs=tuple(map(bound, schedule.outputs)),
        launches=launches,
        temporaries=tuple(map(bound, schedule.temporaries)),
        offsets=with_parts(schedule.offsets, values),
        arena_bytes=with_parts(schedule.arena_bytes, values),
        env=None,
    )


def verify_launches(schedule: Schedule, checked: Checked) -> None:
    """Checks each nest, and that every element is written before a launch reads it.

    The nests of launches that were `checked` before are not looked at again. Raises
    `VerificationError`.
    """
    given = set(schedule.inputs)
    written: dict[Node, np.ndarray | None] = {}
    for launch in schedule.launches:
        key = (id(launch.nest), *(node.size for node in launch.buffers))
        if key not in checked:
            checked[key] = launch, _touched(launch)
        touched = checked[key][1]
        _check_reads(launch, touched, written, given)
        for number, flags in touched.written.items():
            node = launch.buffers[number]
            known = written.get(node, np.zeros(node.size, bool))
            written[node] = None if flags is None or known is None else known | flags
    for node in schedule.outputs:
        # What a user's kernel leaves out is checked by its interpreter.
        if not isinstance(node.op, (Input, Code)) and node.size:
            flags = written.get(node, np.zeros(node.size, bool))
            if flags is not None and not flags.all():
                element = int(flags.argmin())
                raise VerificationError(
                    f"the compiler made a wrong program: no kernel writes element {element} of the "
                    f"output {node!r}; the kernels are "
                    + ", ".join(launch.nest.name for launch in schedule.launches)
                )


def _touched(launch: LoweredKernel) -> Touched:
    """What a launch reads and writes; for a loop, all its buffers: its steps are checked apart."""
    if launch.repetition is None:
        return verify_nest(launch.nest, [node.size for node in launch.buffers])
    read: dict[int, np.ndarray | None] = {}
    written: dict[int, np.ndarray | None] = {}
    for number, (node, parameter) in enumerate(zip(launch.buffers, launch.nest.parameters)):
        flags = read if parameter.role == "read" else written
        flags[number] = np.ones(node.size, bool)
    return Touched(read, written)


def _check_reads(
    launch: LoweredKernel,
    touched: Touched,
    written: Mapping[Node, np.ndarray | None],
    given: set[Node],
) -> None:
    for number, flags in touched.read.items():
        node = launch.buffers[number]
        if flags is None or node in given or isinstance(node.op, Input):
            continue
        known = written.get(node, np.zeros(node.size, bool))
        if known is not None and (flags & ~known).any():
            element = int((flags & ~known).argmax())
            raise VerificationError(
                f"the compiler made a wrong program: {launch.nest.name} reads element {element} of "
                f"{node!r}, which no kernel has written by then"
            )


def verify_memory(schedule: Schedule, _: Checked | None = None) -> None:
    """Checks that no two values are in the same memory at the same time.

    Raises `VerificationError`.
    """
    first: dict[Node, int] = {}
    last: dict[Node, int] = {}
    for step, launch in enumerate(schedule.launches):
        for node in launch.buffers:
            first.setdefault(node, step)
            last[node] = step
    for launch in schedule.launches[: schedule.once]:
        last.update(dict.fromkeys(launch.buffers, len(schedule.launches)))
    places = sorted(
        (offset, offset + node.nbytes, position)
        for position, (node, offset) in enumerate(zip(schedule.temporaries, schedule.offsets))
    )
    alive: list[tuple[int, int, int]] = []
    for start, end, position in places:
        node = schedule.temporaries[position]
        is_beyond = start < schedule.arena_bytes < end
        if is_beyond or end > schedule.end_of_memory:
            raise VerificationError(f"{node!r} lies behind the end of the program's arena")
        alive = [other for other in alive if other[1] > start]
        for other in alive:
            _check_apart(schedule, node, schedule.temporaries[other[2]], first, last)
        alive.append((start, end, position))


def _check_apart(
    schedule: Schedule, one: Node, other: Node, first: Mapping[Node, int], last: Mapping[Node, int]
) -> None:
    """Checks that two buffers that share memory are not alive together, or the later takes over."""
    earlier, later = sorted((one, other), key=lambda node: (first[node], last[node]))
    if last[earlier] < first[later]:
        return
    if last[earlier] > first[later] or one.nbytes != other.nbytes:
        raise VerificationError(f"{earlier!r} and {later!r} are alive together in the same memory")
    verify_take_over(schedule.launches[first[later]], later, earlier)


def verify_take_over(launch: LoweredKernel, result: Node, operand: Node) -> None:
    """Checks that a launch may overwrite `operand` by `result`. Raises `VerificationError`."""
    written = launch.buffers.index(result)
    pairs = [(written, k) for k, node in enumerate(launch.buffers) if node is operand]
    verify_nest(launch.nest, [node.size for node in launch.buffers], pairs)


def verify_donations(schedule: Schedule, donations: Mapping[Node, Node]) -> None:
    """Checks that outputs overwrite only inputs that no launch reads later.

    Raises `VerificationError`.
    """
    for output, source in donations.items():
        readers = [k for k, launch in enumerate(schedule.launches) if source in launch.buffers]
        writers = [k for k, launch in enumerate(schedule.launches) if output in launch.buffers]
        if not writers or (readers and readers[-1] > writers[0]) or source in schedule.outputs:
            raise VerificationError(f"{output!r} is written over {source!r} while that is needed")
        if readers and readers[-1] == writers[0]:
            verify_take_over(schedule.launches[writers[0]], output, source)
