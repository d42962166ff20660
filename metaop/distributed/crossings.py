"""The boundaries between pipeline stages in a recorded program, forward and backward.

Recording computes nothing, so every rank records the whole step of all micro-batches. At a stage
boundary, a new leaf replaces the recorded value: a register, which is filled when the value
arrives. Each rank computes what lies between its registers, in the order of the schedule.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from metaop.differentiation.entries import TapeEntry
from metaop.dist.mesh_world import nothing_partial
from metaop.dist.placement import Placement
from metaop.dist.program import ShardedBuffer
from metaop.errors import ArgumentError
from metaop.tensor.core import Tensor, wrap
from metaop.unified_graph.recording import Call, leaf, modes
from metaop.unified_graph.tensor_type import TensorType


@dataclass
class Boundary:
    """What one micro-batch sends across the boundary of two stages, in one direction."""

    sources: list[Call] = field(default_factory=list)
    registers: list[Call] = field(default_factory=list)

    def cross(self, source: Call, placement: Placement) -> Call:
        """The register on the other side for a value on this side."""
        kind = source.type
        register = leaf(TensorType(kind.shape, kind.dtype, placement.device), None)
        self.sources.append(source)
        self.registers.append(register)
        return register

    def packed(self) -> list[Any]:
        """This rank's parts of the computed values, and their shardings."""
        found: list[Any] = []
        for source in self.sources:
            buffer: ShardedBuffer = source.buffer
            states = nothing_partial(buffer.states)
            parts = buffer.world.box(buffer.parts, buffer.states, states, buffer.shape)
            found.append(np.frombuffer(pickle.dumps(states), np.uint8).copy())
            found.append(parts[buffer.world.owned[0]])
        return found

    def fill(self, arrays: Sequence[Any]) -> None:
        """Fills the registers with what `packed` returned on the rank of the other stage."""
        for register, header, part in zip(self.registers, arrays[::2], arrays[1::2]):
            states = pickle.loads(header.tobytes())
            kind = register.type
            world = kind.device.placement.world
            here = world.memory.put(part) if isinstance(part, np.ndarray) else part
            parts = {world.owned[0]: here}
            register.buffer = ShardedBuffer(parts, states, world, kind.shape, kind.dtype.numpy)


class MicroBatch:
    """The boundaries of one micro-batch; `stages` lists the placements of the stages in order."""

    def __init__(self, stages: Sequence[Placement]) -> None:
        self.stages = list(stages)
        self.forward = [Boundary() for _ in stages]
        self.backward = [Boundary() for _ in stages]
        self._crossed: dict[tuple[int, Placement], Tensor] = {}

    def bring(self, value: Tensor, target: Placement) -> Tensor:
        """Moves `value` to the stage `target`; from the previous stage, through a register."""
        source = value.device.placement
        if source is target or source is None:
            return value
        to = self.stages.index(target)
        if source not in self.stages or self.stages.index(source) != to - 1:
            raise ArgumentError(
                f"stage {to} takes a tensor of shape {list(value.shape)} from {source}, which is "
                "not the previous stage",
                fix="pass the tensor through the stages between, or place it with to_global",
            )
        key = (id(value.call), target)
        if key not in self._crossed:
            self._crossed[key] = self._brought(value, to)
        return self._crossed[key]

    def _brought(self, value: Tensor, to: int) -> Tensor:
        source = value.call
        register = self.forward[to - 1].cross(source, self.stages[to])
        if modes.gradients and source.requires_grad:

            def gradient(cotangents: Sequence[Call | None]) -> Sequence[Call | None]:
                (own,) = cotangents
                home = self.stages[to - 1]
                return [None if own is None else self.backward[to].cross(own, home)]

            register.requires_grad = True
            register.tape = TapeEntry(function=gradient, sources=(source,), name="next stage")
        return wrap(register)
