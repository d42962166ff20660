"""Subgraphs that run call by call, or part by part, with programs that graphs share."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import repeat
from typing import Any, NamedTuple

from metaop.codegen.backend import Program
from metaop.unified_graph.cut import Subgraph, apart
from metaop.unified_graph.recording import Call


class _Step(NamedTuple):
    """A program, the slots that it reads and writes, and those that it is the last to read."""

    program: Program
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    last_reads: tuple[int, ...]


class Pieces:
    """A program that runs one part after the other and frees values after their last use.

    Parts are single calls, or begin at `starts`: see `apart`.
    """

    donors: Mapping[int, int] = {}

    def __init__(
        self,
        subgraph: Subgraph,
        program_of: Callable[[Subgraph], Program],
        starts: Collection[int] | None = None,
    ) -> None:
        places: dict[Call, int] = {}
        for call in (*subgraph.leaves, *subgraph.order):
            places[call] = len(places)
        self._outputs = [places[call] for call in subgraph.outputs]
        self._room = len(subgraph.order)
        steps = [
            _Step(
                program_of(piece),
                tuple(places[leaf] for leaf in piece.leaves),
                tuple(places[call] for call in piece.outputs),
                (),
            )
            for piece in apart(subgraph, starts)
        ]
        read = set(self._outputs)
        for number in reversed(range(len(steps))):
            last = set(steps[number].reads) - read
            read |= last
            steps[number] = steps[number]._replace(last_reads=tuple(last))
        self._steps = steps

    def run(
        self,
        arguments: Sequence[Any],
        memory: Mapping[int, Any] | None = None,
        around: Iterable[AbstractContextManager[object]] = repeat(nullcontext()),
    ) -> list[Any]:
        """Returns the buffers of the outputs; each piece runs inside a context of `around`."""
        values = [*arguments, *[None] * self._room]
        for (program, reads, writes, last_reads), context in zip(self._steps, around):
            with context:
                results = program.run([values[place] for place in reads])
            for place, result in zip(writes, results):
                values[place] = result
            for place in last_reads:
                values[place] = None
        return [values[place] for place in self._outputs]
