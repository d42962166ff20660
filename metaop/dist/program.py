"""Running a graph on many ranks: local programs with collectives between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from metaop.dist.assign import Plan, State, assign
from metaop.dist.boxing import Parts
from metaop.dist.local_graph import Stage, local_stages
from metaop.dist.mesh_world import MeshWorld
from metaop.dist.sbp import BROADCAST, NdSbp, nd_text
from metaop.errors import DistributedError
from metaop.unified_graph.node import Node, topological

LocalProgram = Callable[[Sequence[np.ndarray]], Sequence[np.ndarray]]
# Makes a local program of input and output nodes.
Compile = Callable[[Sequence[Node], Sequence[Node]], LocalProgram]


class PlannedProgram:
    """A plan, compiled for the ranks of this process."""

    def __init__(self, plan: Plan, world: MeshWorld, compile_local: Compile) -> None:
        self.plan = plan
        self.world = world
        self.stages: dict[int, list[Stage]] = {}
        self.programs: dict[int, list[LocalProgram]] = {}
        for rank in world.owned:
            self.stages[rank] = local_stages(plan, world.place(rank))
            self.programs[rank] = [
                compile_local(stage.inputs, stage.outputs) if stage.outputs else _nothing
                for stage in self.stages[rank]
            ]
        self._description = describe(plan)

    def run(self, arguments: Sequence[Parts]) -> list[Parts]:
        """The parts of the outputs from those of the inputs, by rank."""
        plan, world = self.plan, self.world
        world.verify(self._description)
        values: dict[State, Parts] = dict(zip(zip(plan.inputs, plan.given), arguments))
        for k, goals in enumerate(plan.stages):
            computed = [goal for goal in goals if goal not in values]
            for goal in computed:
                values[goal] = {}
            for rank in world.owned:
                sources = [values[pair][rank] for pair in self.stages[rank][k].sources]
                results = self.programs[rank][k](sources)
                for goal, result in zip(computed, results):
                    values[goal][rank] = result
            for node, move in plan.boxes[k]:
                parts = values[node, move.source]
                values[node, move.target] = world.move(parts, move, node.shape)
        return [values[pair] for pair in zip(plan.outputs, plan.states)]


def _nothing(arguments: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
    return ()


def describe(plan: Plan) -> str:
    """What the ranks are going to compute and send, which must be equal on all of them."""
    lines = [
        f"input {node.dtype.name}{list(node.shape)} {nd_text(states)}"
        for node, states in zip(plan.inputs, plan.given)
    ]
    lines += [repr(node) for node in topological(plan.outputs)]
    for boxes in plan.boxes:
        for node, move in boxes:
            kind = f"{node.dtype.name}{list(node.shape)}"
            lines.append(f"{nd_text(move.source)}->{nd_text(move.target)} {kind}")
    return "\n".join(lines)


class DistributedProgram:
    """A graph that finds its plan when it sees how the arguments lie; one plan for each lie."""

    def __init__(
        self,
        inputs: Sequence[Node],
        outputs: Sequence[Node],
        world: MeshWorld,
        compile_local: Compile,
    ) -> None:
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)
        self.world = world
        self.compile_local = compile_local
        self.planned: dict[tuple[NdSbp, ...], PlannedProgram] = {}

    # No output takes over the memory of an argument.
    donors: ClassVar[dict[int, int]] = {}

    def run(
        self, arguments: Sequence[Any], dying: frozenset[int] = frozenset()
    ) -> list[ShardedBuffer]:
        """The output buffers; arguments that are not sharded are equal on all ranks."""
        whole = (BROADCAST,) * len(self.world.mesh)
        states = tuple(getattr(argument, "states", whole) for argument in arguments)
        program = self.planned.get(states)
        if program is None:
            plan = assign(self.inputs, states, self.outputs, self.world.mesh)
            program = PlannedProgram(plan, self.world, self.compile_local)
            self.planned[states] = program
        parts = [
            _parts(argument, node, self.world) for argument, node in zip(arguments, self.inputs)
        ]
        results = program.run(parts)
        return [
            ShardedBuffer(result, states, self.world, node.shape, node.dtype.numpy)
            for result, states, node in zip(results, program.plan.states, self.outputs)
        ]


def _parts(argument: Any, node: Node, world: MeshWorld) -> Parts:
    if isinstance(argument, ShardedBuffer):
        return argument.parts
    if isinstance(argument, (int, float, bool)):
        value = np.asarray(argument).astype(node.dtype.numpy)
    else:
        value = argument.view(node.shape, node.dtype.numpy)
    return dict.fromkeys(world.owned, value)


class ShardedBuffer:
    """The memory of a global tensor: the parts that this process holds, and how they lie."""

    __slots__ = ("parts", "states", "world", "shape", "dtype", "_whole", "__weakref__")

    def __init__(
        self, parts: Parts, states: NdSbp, world: MeshWorld, shape: Sequence[int], dtype: Any
    ) -> None:
        self.parts = parts
        self.states = states
        self.world = world
        self.shape = tuple(shape)
        self.dtype = np.dtype(dtype)
        self._whole: np.ndarray | None = None

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self.parts.values())

    def local(self) -> np.ndarray:
        """What the first rank of this process holds."""
        self._check_member()
        return self.parts[self.world.owned[0]]

    def view(self, shape: Sequence[int], dtype: Any) -> np.ndarray:
        """The whole value, gathered from all ranks: every rank has to ask for it."""
        if self._whole is None:
            self._check_member()
            whole = (BROADCAST,) * len(self.states)
            if self.states != whole:
                kind = f"{np.dtype(dtype)}{list(self.shape)}"
                self.world.verify(f"read {kind} {nd_text(self.states)}")
            parts = self.world.box(self.parts, self.states, whole, self.shape)
            self._whole = parts[self.world.owned[0]]
        return self._whole.view(np.dtype(dtype)).reshape(tuple(shape))

    def _check_member(self) -> None:
        if not self.world.owned:
            raise DistributedError(
                f"a tensor of shape {list(self.shape)} is read on a rank that is not in its "
                "placement",
                fix="read it on the ranks of its placement, or move it with to_global(placement=)",
            )

    def copy(self) -> ShardedBuffer:
        """The same value in memory of its own."""
        copied = {rank: part.copy() for rank, part in self.parts.items()}
        return ShardedBuffer(copied, self.states, self.world, self.shape, self.dtype)
