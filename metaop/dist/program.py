"""Programs of global tensors, and the buffers that hold these tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar
from zlib import crc32

import numpy as np

from metaop.dist.boxing import Parts
from metaop.dist.mesh_world import MeshWorld
from metaop.dist.planned import Compile, PlannedProgram
from metaop.dist.sbp import BROADCAST, NdSbp, nd_text
from metaop.dist.sharding_search import assign
from metaop.errors import DistributedError
from metaop.unified_graph.node import Node


class DistributedProgram:
    """A graph with one plan for each sharding of its arguments, made when it is first needed."""

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
        self, arguments: Sequence[Any], memory: Mapping[int, Any] | None = None
    ) -> list[ShardedBuffer]:
        """Returns the output buffers; unsharded arguments are equal on all ranks."""
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
        numbers = tuple(
            _number(argument, node)
            for argument, node in zip(arguments, self.inputs)
            if argument is not None and not isinstance(argument, ShardedBuffer)
        )
        results = program.run(parts, numbers)
        return [
            ShardedBuffer(result, states, self.world, node.shape, node.dtype.numpy)
            for result, states, node in zip(results, program.plan.states, self.outputs)
        ]


def _number(argument: Any, node: Node) -> int | float | bool:
    """What the ranks compare for an unsharded argument: its value, or a checksum."""
    if isinstance(argument, (int, float, bool)):
        return argument
    value = argument.view(node.shape, node.dtype.numpy)
    if value.size == 1 and value.dtype.kind in "biuf":
        found: int | float | bool = value.item()
        return found
    return crc32(value.tobytes())


def _parts(argument: Any, node: Node, world: MeshWorld) -> Parts:
    if isinstance(argument, ShardedBuffer):
        return argument.parts
    if argument is None:
        raise DistributedError(
            f"a value that depends on a tensor of shape {list(node.shape)} is read before the "
            "previous stage has sent the tensor",
            fix="return the value from build() and read it after the step",
        )
    if isinstance(argument, (int, float, bool)):
        value = np.asarray(argument).astype(node.dtype.numpy)
    else:
        value = argument.view(node.shape, node.dtype.numpy)
    return dict.fromkeys(world.owned, world.memory.put(value))


class ShardedBuffer:
    """The memory of a global tensor: the parts that this process holds, and its sharding."""

    __slots__ = ("parts", "states", "world", "shape", "dtype", "_whole", "__weakref__")

    exposure = None

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
        """The whole value, gathered from all ranks; every rank must call this."""
        if self._whole is None:
            self._whole = self.world.memory.get(self.whole())
        return self._whole.view(np.dtype(dtype)).reshape(tuple(shape))

    def whole(self) -> Any:
        """The whole value in the memory of this rank; every rank must call this."""
        self._check_member()
        whole = (BROADCAST,) * len(self.states)
        if self.states != whole:
            self.world.verify(f"read {self.dtype}{list(self.shape)} {nd_text(self.states)}")
        parts = self.world.box(self.parts, self.states, whole, self.shape)
        return parts[self.world.owned[0]]

    def _check_member(self) -> None:
        if not self.world.owned:
            raise DistributedError(
                f"a tensor of shape {list(self.shape)} is read on a rank that is not in its "
                "placement",
                fix="read it on the ranks of its placement, or move it with to_global(placement=)",
            )

    def copy(self) -> ShardedBuffer:
        """The same value in new memory."""
        with self.world.memory.active():
            copied = {rank: part.copy() for rank, part in self.parts.items()}
        return ShardedBuffer(copied, self.states, self.world, self.shape, self.dtype)
