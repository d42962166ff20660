"""The program of a subgraph with loops, with the arguments and results of the one without."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from metaop.codegen.backend import Program
from metaop.codegen.memory.buffers import Buffer, PartOfBuffer, allocate
from metaop.codegen.memory.slots import pack_scalar
from metaop.unified_graph.cut import Subgraph
from metaop.unified_graph.dtype import DType


class Numbers(NamedTuple):
    """Arguments that are numbers, one for each step of a loop, as one array."""

    slots: tuple[int, ...]
    dtype: DType

    def taken(self, arguments: Sequence[Any]) -> Buffer:
        """The array."""
        size, dtype = self.dtype.itemsize, self.dtype
        content = b"".join([pack_scalar(arguments[slot], dtype)[:size] for slot in self.slots])
        return Buffer.from_numpy(np.frombuffer(content, np.uint8))


class Parts(NamedTuple):
    """Arguments at some positions of a stack of so many rows, which an earlier program has made."""

    slots: tuple[int, ...]
    positions: tuple[int, ...]
    rows: int

    def taken(self, arguments: Sequence[Any]) -> Buffer:
        """The stack, copied together if the arguments are not parts of one."""
        buffers = [arguments[slot] for slot in self.slots]
        whole = getattr(buffers[0], "whole", None)
        for buffer, position in zip(buffers, self.positions):
            is_part = isinstance(buffer, PartOfBuffer) and buffer.whole is whole
            if not is_part or buffer.position != position:
                return self._copied(buffers)
        is_same = whole is not None and whole.nbytes == self.rows * buffers[0].nbytes
        return whole if is_same else self._copied(buffers)  # type: ignore[return-value]

    def _copied(self, buffers: Sequence[Buffer]) -> Buffer:
        made = allocate(self.rows * buffers[0].nbytes)
        rows = made.view((self.rows, buffers[0].nbytes), np.uint8)
        for buffer, position in zip(buffers, self.positions):
            rows[position] = np.asarray(buffer)
        return made


# An argument by its number, or several of them as one.
Argument = int | Numbers | Parts


class Rerolled(NamedTuple):
    """A subgraph with loops, and how it differs from the one with copies of steps.

    `arguments` are the leaves of that one that its leaves stand for. For each output of that one,
    `outputs` has the number of an output here, and the position in it if it is an element of a
    stack.
    """

    subgraph: Subgraph
    arguments: list[Argument]
    outputs: list[tuple[int, int | None]]

    def program(self, program: Program, leaves: int) -> Program:
        """A program for the subgraph without loops, which has so many leaves."""
        same = [(number, None) for number in range(len(self.outputs))]
        if self.arguments == list(range(leaves)) and self.outputs == same:
            return program
        return _WithoutLoops(program, self)


class _WithoutLoops:
    """A program on other arguments, whose results may be elements of those of another program.

    Elements are parts of the result, whose memory lives as long as one of them.
    """

    def __init__(self, program: Program, rerolled: Rerolled) -> None:
        subgraph, self._arguments, self._outputs = rerolled
        self._program = program
        self._lengths = [one.type.shape[0] if one.type.shape else 1 for one in subgraph.outputs]
        self._places = {number: k for k, (number, at) in enumerate(self._outputs) if at is None}
        self.donors: dict[int, int] = {}
        for number, slot in program.donors.items():
            argument = self._arguments[slot]
            if number in self._places and isinstance(argument, int):
                self.donors[self._places[number]] = argument

    def run(self, arguments: Sequence[Any], memory: Mapping[int, Any] | None = None) -> list[Any]:
        """The buffers of the results."""
        given = [
            arguments[one] if isinstance(one, int) else one.taken(arguments)
            for one in self._arguments
        ]
        places = self._places
        taken = {n: memory[k] for n, k in places.items() if k in memory} if memory else None
        joint = [x for x, one in zip(given, self._arguments) if not isinstance(one, int)]
        buffers = [
            x.copy() if any(x is one for one in joint) else x
            for x in self._program.run(given, taken)
        ]
        parts: dict[int, list[Buffer]] = {}
        found = []
        for number, position in self._outputs:
            if position is None:
                found.append(buffers[number])
                continue
            if number not in parts:
                stack = buffers[number]
                # Users may write a value through NumPy, so no other one has its memory.
                apart = stack.copy() if number in places else stack
                parts[number] = apart.parts(self._lengths[number])
            found.append(parts[number][position])
        return found
