"""What every backend offers: programs that turn arguments into result buffers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from metaop.codegen.memory.buffers import Buffer

if TYPE_CHECKING:
    from metaop.codegen.lowering import Machine
    from metaop.codegen.nest.ir import LoopNest
    from metaop.codegen.schedule import Schedule
    from metaop.unified_graph.cut import Subgraph
    from metaop.unified_graph.node import Node
    from metaop.unified_graph.symbolic_cut import SymbolicCut

Argument = Buffer | int | float | bool
# Runs the passes.
Scheduled = Callable[[], "Schedule"]


class Program(Protocol):
    """A compiled static subgraph. Buffers are of the kind of its device.

    Donors are inputs whose memory results can take over.
    """

    @property
    def donors(self) -> Mapping[int, int]:
        """The number of a result -> the number of its donor among the inputs."""

    def run(self, arguments: Sequence[Any], memory: Mapping[int, Any] | None = None) -> list[Any]:
        """The buffers of the outputs; scalars among the arguments are Python numbers.

        `memory` maps numbers of results to unused buffers that they may take: that of the donor, or
        one that the program does not read. A program need not use them.
        """


# Called between steps with the number of completed steps and the results, some not yet computed.
Between = Callable[[int, list[Any]], None]
# Called with the number of each result and the result once it is final, or with -1 and None after a
# step that completed none.
Ready = Callable[[int, Any], None]


@runtime_checkable
class Watchable(Protocol):
    """A program that can be watched while it runs."""

    @property
    def arena_bytes(self) -> int:
        """How much memory its temporaries take."""

    @property
    def finished_after(self) -> Sequence[int]:
        """For each result, after how many steps its value is complete."""

    def run(
        self,
        arguments: Sequence[Any],
        memory: Mapping[int, Any] | None = None,
        between: Between | None = None,
    ) -> list[Any]:
        """Like `Program.run`, with calls of `between` before the first step and after each."""


class Repeatable(Protocol):
    """A run whose arguments and results mostly stay where they are."""

    def takes(self, arguments: Sequence[Any]) -> bool:
        """Whether the varying arguments are of the same kind as before."""

    def run(
        self, arguments: Sequence[Any], undo: Callable[[], None] | None = None
    ) -> Mapping[int, Any]:
        """Runs the program and returns the newly allocated results by number.

        With `undo`, another thread may run it, and meanwhile nothing else may write an argument. If
        the run fails, `undo` is called before the error is raised.
        """


@runtime_checkable
class Preparable(Protocol):
    """A program that can prepare a run for many repetitions."""

    def prepared(
        self, arguments: Sequence[Any], memory: Mapping[int, Any], varying: Sequence[int]
    ) -> Repeatable | None:
        """The run of `run(arguments, memory)`, to be repeated with other `varying` arguments.

        None if this program cannot prepare one.
        """


class LocalProgram:
    """The part of a distributed program that one rank runs between collectives, on its arrays.

    `buffer_of` gives the buffer of an array, and `array_of` the array of a buffer, a shape and a
    type.
    """

    def __init__(
        self,
        program: Watchable,
        outputs: Sequence[Node],
        buffer_of: Callable[[Any], Any],
        array_of: Callable[..., Any],
    ) -> None:
        self.program, self._outputs = program, outputs
        self.arena_bytes = program.arena_bytes
        self._buffer_of, self._array_of = buffer_of, array_of

    def __call__(self, arrays: Sequence[Any], ready: Ready | None = None) -> list[Any]:
        """The results, of which `ready` is told between kernels."""
        given = [self._buffer_of(array) for array in arrays]
        between = None
        if ready is not None:
            between = telling(self.program, lambda k, buffer: ready(k, self._array(k, buffer)))
        buffers = self.program.run(given, between=between)
        return [self._array(k, buffer) for k, buffer in enumerate(buffers)]

    def _array(self, k: int, buffer: Any) -> Any:
        node = self._outputs[k]
        return None if buffer is None else self._array_of(buffer, node.shape, node.dtype.numpy)


def telling(program: Watchable, ready: Ready) -> Between:
    """A `between` of runs of `program`, which passes on each result that is final."""

    def between(steps: int, results: list[Any]) -> None:
        done = [k for k, last in enumerate(program.finished_after) if last == steps]
        for k in done:
            ready(k, results[k])
        if not done:
            ready(-1, None)

    return between


class GeneralProgram(Protocol):
    """A program for all numbers that its guards admit; `conditions` are the guards as text."""

    @property
    def conditions(self) -> Sequence[str]: ...

    def bind(self, numbers: Sequence[float]) -> Program | None:
        """The program for the numbers of a subgraph; None if its guards do not admit them."""


class Backend(NamedTuple):
    """The functions with which a backend turns schedules of the compiler's passes into programs.

    `program` makes the program of a subgraph; it calls its argument to run the passes, unless it
    knows the result. `machine` describes the device with a given index to the passes, and `source`
    prints a nest in the backend's language. Without these two no pass runs, and the program gets
    the recorded meta-operators. `general` is `program` on symbolic sizes. `local` makes what a rank
    runs on the device with a given index, from inputs to outputs.
    """

    program: Callable[[Subgraph, Scheduled], Program]
    machine: Callable[[int], Machine] | None = None
    source: Callable[[LoopNest], str] | None = None
    general: Callable[[SymbolicCut, Scheduled], GeneralProgram] | None = None
    local: Callable[[Sequence[Node], Sequence[Node], Scheduled, int], LocalProgram] | None = None


class Observer(Protocol):
    """An observer of runs, such as the profiler, or a test that counts kernels."""

    def ran(self, program: Program, names: Sequence[str], times: Sequence[int]) -> None:
        """Called after a run with the kernels launched and the time in nanoseconds (monotonic)
        before each of them and after the last."""


# The observers that are called after every run; an empty list costs nothing.
observers: list[Observer] = []
