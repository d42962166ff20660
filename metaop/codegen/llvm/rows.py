"""The launches of a program as rows of one table; a loop is a row that repeats others, its step.

All rows share one table of addresses. After the addresses of the program come those that a loop
sets: fixed ones of its private memory, set once, and those that advance with every step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from metaop.codegen.llvm.kernels import kernel_cache
from metaop.codegen.llvm.objects.engine import Code
from metaop.codegen.lowering import LoweredKernel
from metaop.codegen.lowering.repetition import Repetition, aligned
from metaop.codegen.schedule import Schedule
from metaop.unified_graph.loop import Loop
from metaop.unified_graph.node import Input, Node

_EVERY, _BY_TURNS, _NONE = -1, 1, -1


class Launch(NamedTuple):
    """One launch: the kernel, its buffers by slot, its integer arguments.

    Without a kernel it repeats other rows, as its arguments say in the format of `runtime_text`.
    """

    name: str
    kernel: Code | None
    slots: tuple[int, ...]
    arguments: tuple[Any, ...]
    tasks: int
    grain: int


class Rows:
    """Makes the rows of a schedule, whose nodes have `slots`; `count` slots are taken at the end.

    The rows of the schedule itself come first.
    """

    def __init__(self, schedule: Schedule, slots: Mapping[Node, int], count: int) -> None:
        self.count = count
        self._rows: list[Launch | None] = []
        self._add(schedule, slots)

    @property
    def launches(self) -> tuple[Launch, ...]:
        return tuple(row for row in self._rows if row is not None)

    def _add(self, schedule: Schedule, slots: Mapping[Node, int]) -> int:
        first = len(self._rows)
        self._rows += [None] * len(schedule.launches)
        nests = [launch.nest for launch in schedule.launches if launch.repetition is None]
        kernels = iter(kernel_cache().kernels_for(nests))
        for row, launch in enumerate(schedule.launches, first):
            if launch.repetition is None:
                self._rows[row] = _launch(launch, slots, *next(kernels))
            else:
                found = Steps(self.slot, launch.repetition, slots)
                arguments = (self._add(found.schedule, found.slots) - row, *found.arguments)
                numbers = tuple(slots[node] for node in launch.buffers)
                self._rows[row] = Launch(launch.nest.name, None, numbers, arguments, 0, 1)
        return first

    def slot(self) -> int:
        """A new slot."""
        self.count += 1
        return self.count - 1


def _launch(
    launch: LoweredKernel, slots: Mapping[Node, int], kernel: Code, arguments: tuple[int, ...]
) -> Launch:
    nest = launch.nest
    numbers = tuple(slots[node] for node in launch.buffers)
    return Launch(nest.name, kernel, numbers, arguments, nest.tasks, nest.grain)


class Steps:
    """The work of a loop besides the launches of its steps, and the slots of their nodes.

    `fresh` gives slots that nothing else has; nodes around the loop have those in `outer`.

    Addresses in `fixed` are (slot, slot of the base, offset); those `moving` are (slot, slot of
    the base, start, stride, mask, first): at step t the offset is start + (t & mask) * stride, but
    the first step has the address of the slot `first` if there is one. Copies `between` steps and
    `after` the last one are (slot to, slot from, bytes).
    """

    def __init__(
        self, fresh: Callable[[], int], repetition: Repetition, outer: Mapping[Node, int]
    ) -> None:
        self._fresh = fresh
        self._outer = outer
        self._repetition = repetition
        self.schedule = repetition.step
        self.body = repetition.body
        self._base = outer[repetition.workspace]
        self.slots: dict[Node, int] = {}
        self.fixed: list[tuple[Any, ...]] = []
        self.moving: list[tuple[Any, ...]] = []
        self.between: list[tuple[Any, ...]] = []
        self.after: list[tuple[Any, ...]] = []
        self._copied: list[tuple[int, Node]] = []
        count = len(self.body.carried)
        roots = [root for root in repetition.results if root.op.stacked is not None]  # type: ignore
        # A value may be stacked and carried at once: then a step reads the stack.
        self._stacks: dict[Node, int] = {}
        for node, root in zip(self.schedule.outputs[count:], roots):
            if not isinstance(node.op, Input) and node not in self._stacks:
                self._stacks[node] = outer[root]
                self.slots[node] = self._along(outer[root], node.nbytes)
            else:
                self._copied.append((self._along(outer[root], node.nbytes), node))
        self._inputs()
        for node, place in zip(repetition.step.temporaries, repetition.step.offsets):
            self.slots[node] = self._place(repetition.arena + place)
        for slot, node in self._copied:
            self.between.append((slot, self.slots[node], node.nbytes))
        for root in repetition.results:
            assert isinstance(root.op, Loop)
            if root.op.stacked is None:
                source = self.slots[self.schedule.inputs[1 + root.op.number]]
                self.after.append((outer[root], source, root.nbytes))

    @property
    def guard(self) -> int | None:
        """The slot of the flag that ends the loop."""
        return self.slots[self.schedule.inputs[1]] if self.body.guarded else None

    @property
    def position(self) -> tuple[int, Any, int]:
        """The slot of a step's position, the first position and the way to the next one."""
        first, stride = (self.body.length - 1, -1) if self.body.reverse else (0, 1)
        return self.slots[self.schedule.inputs[0]], first, stride

    @property
    def arguments(self) -> tuple[Any, ...]:
        """The arguments of the loop for the runtime, except the distance to the rows of a step."""
        guard = _NONE if self.guard is None else self.guard
        lists = (self.fixed, self.moving, self.between, self.after)
        once, every = self.schedule.once, len(self.schedule.launches) - self.schedule.once
        head = (self.body.length, guard, *self.position, once, every)
        numbers = (number for rules in lists for rule in rules for number in rule)
        return (*head, *map(len, lists), *numbers)

    def _place(self, offset: Any) -> int:
        slot = self._fresh()
        self.fixed.append((slot, self._base, offset))
        return slot

    def _move(self, base: int, start: Any, stride: Any, mask: int, first: int = _NONE) -> int:
        slot = self._fresh()
        self.moving.append((slot, base, start, stride, mask, first))
        return slot

    def _along(self, whole: int, nbytes: Any, first: int = _NONE, start: Any = 0) -> int:
        """The slot of a step's element in a stack; with `first`, that of the step before it.

        Position 0 has element `start`.
        """
        late = int(first != _NONE)
        if self.body.reverse:
            end = self.body.length - 1 + late + start
            return self._move(whole, end * nbytes, -nbytes, _EVERY, first)
        return self._move(whole, (start - late) * nbytes, nbytes, _EVERY, first)

    def _inputs(self) -> None:
        index, *inputs = self.schedule.inputs
        count = len(self.body.carried)
        self.slots[index] = self._place(0)
        wholes = [self._outer[operand] for operand in self._repetition.operands]
        for node, new, whole, place in zip(
            inputs, self.schedule.outputs, wholes, self._repetition.places
        ):
            self.slots[node] = self._carried(node.nbytes, new, whole, place)
        starts = self.body.starts or (0,) * len(self.body.sliced)
        for node, whole, flag, start in zip(
            inputs[count:], wholes[count:], self.body.sliced, starts
        ):
            self.slots[node] = self._along(whole, node.nbytes, start=start) if flag else whole

    def _carried(self, nbytes: Any, new: Node, first: int, place: Any) -> int:
        """The slot of a value that a step reads and replaces by a new one."""
        stack = self._stacks.pop(new, None)
        if stack is not None:
            return self._along(stack, nbytes, first)
        size = aligned(nbytes)
        target = self._move(self._base, place + size, -size, _BY_TURNS)
        if isinstance(new.op, Input) or new in self.slots:
            self._copied.append((target, new))
        else:
            self.slots[new] = target
        return self._move(self._base, place, size, _BY_TURNS, first)
