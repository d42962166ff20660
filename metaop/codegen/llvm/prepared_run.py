"""Repeated runs of one program, most of whose memory stays the same from run to run."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from weakref import ref

from metaop.codegen.backend import Argument
from metaop.codegen.memory.buffers import Buffer, allocate
from metaop.codegen.memory.slots import SCALAR_BYTES, ScalarPacker

if TYPE_CHECKING:
    from metaop.codegen.llvm.program import LLVMProgram


class PreparedRun:
    """The table of addresses of a run, to be run again with only some of them changed.

    `varying` are the numbers of the arguments that change in every run. The caller guarantees that
    all other arguments and the results in `memory` stay where they are. Other results are allocated
    in every run.
    """

    def __init__(
        self,
        program: LLVMProgram,
        arguments: Sequence[Argument],
        memory: Mapping[int, Buffer],
        varying: Sequence[int],
    ) -> None:
        self._program = program
        first = len(arguments)
        numbers = [k for k, one in enumerate(arguments) if not isinstance(one, Buffer)]
        self._numbers = [(slot, k * SCALAR_BYTES) for k, slot in enumerate(numbers)]
        self._packer = ScalarPacker([program.input_types[slot] for slot in numbers])
        self._buffers = [slot for slot in varying if slot not in numbers]
        made = [memory.get(k) for k in range(len(program.made))]
        self._fresh = [
            (k, nbytes, first + k) for k, nbytes in enumerate(program.made) if made[k] is None
        ]
        self._places = list(enumerate(program.offsets, first + len(made)))
        self._arena_bytes = program.arena_bytes
        addresses = [one.address if isinstance(one, Buffer) else 0 for one in (*arguments, *made)]
        self._addresses = array("q", [*addresses, *program.offsets, *program.spare])
        # Results in memory that does not hold the old value of an argument.
        own = {id(one) for one in arguments}
        self._results = [ref(one) for one in memory.values() if id(one) not in own]
        self._has_failed = False

    def run(
        self, arguments: Sequence[Argument], undo: Callable[[], None] | None = None
    ) -> dict[int, Buffer]:
        """Runs the program; returns the allocated results by number. Raises as `LLVMProgram.run`.

        With `undo` another thread runs it, and meanwhile nothing else may write an argument.
        """
        addresses = self._addresses[:]
        for slot in self._buffers:
            addresses[slot] = arguments[slot].address  # type: ignore[union-attr]
        used: list[Any] = []
        if self._numbers:
            numbers = [arguments[slot] for slot, _ in self._numbers]
            packed = array("q", self._packer.pack(numbers))  # type: ignore[arg-type]
            start, _ = packed.buffer_info()
            for slot, offset in self._numbers:
                addresses[slot] = start + offset
            used.append(packed)
        made = {}
        for number, nbytes, slot in self._fresh:
            buffer = made[number] = allocate(nbytes)
            addresses[slot] = buffer.address
        if self._places:
            arena = allocate(self._arena_bytes)
            start = arena.address
            for slot, offset in self._places:
                addresses[slot] = start + offset
            used.append(arena.memory)
        if undo is not None and self._program.may_run_ahead:
            self._run_ahead(addresses, arguments, used, made, undo)
        else:
            self._program.launch(addresses)
        return made

    def _run_ahead(
        self,
        addresses: array[int],
        arguments: Sequence[Argument],
        used: list[Any],
        made: Mapping[int, Buffer],
        undo: Callable[[], None],
    ) -> None:
        given = [one for one in arguments if isinstance(one, Buffer)]
        results = [one for one in (result() for result in self._results) if one is not None]
        results += made.values()
        used += [one.memory for one in (*given, *results)]

        def failed() -> None:
            self._has_failed = True
            undo()

        self._program.launch_ahead(addresses, used, results, failed)

    def takes(self, arguments: Sequence[Any]) -> bool:
        """Whether the varying arguments are buffers where they were buffers before."""
        return not self._has_failed and all(
            isinstance(arguments[slot], Buffer) for slot in self._buffers
        )
