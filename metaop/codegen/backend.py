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
    from metaop.unified_graph.symbolic_cut import SymbolicCut

Argument = Buffer | int | float | bool


class Program(Protocol):
    """A compiled static subgraph. Buffers are of the kind of its device.

    Donors are inputs whose memory results can take over.
    """

    @property
    def donors(self) -> Mapping[int, int]:
        """The number of a result -> the number of its donor among the inputs."""

    def run(self, arguments: Sequence[Any], memory: Mapping[int, Any] | None = None) -> list[Any]:
        """The buffers of the outputs; scalars among the arguments are Python numbers.

        `memory` has buffers that nobody needs, by the number of the result that may take each:
        that of its donor, or one that the program does not read. A program need not use them.
        """


@runtime_checkable
class Watchable(Protocol):
    """A program that can be watched while it runs."""

    @property
    def finished_after(self) -> Sequence[int]:
        """For each result, after how many steps its value is complete."""

    def run(
        self,
        arguments: Sequence[Any],
        memory: Mapping[int, Any] | None = None,
        between: Callable[[int, list[Any]], None] | None = None,
    ) -> list[Any]:
        """As any program; `between` is called before the first step and after each with the number
        of steps done and the results, of which some are not computed yet."""


class Repeatable(Protocol):
    """A run whose arguments and results mostly stay where they are."""

    def takes(self, arguments: Sequence[Any]) -> bool:
        """Whether the varying arguments are of the kind that they were."""

    def run(
        self, arguments: Sequence[Any], undo: Callable[[], None] | None = None
    ) -> Mapping[int, Any]:
        """Runs the program; the results that are made anew, by number.

        With `undo` another thread may run it, while nobody else may write an argument. Should it
        fail, `undo` is called before the error is raised.
        """


@runtime_checkable
class Preparable(Protocol):
    """A program that can prepare a run for many repetitions."""

    def prepared(
        self, arguments: Sequence[Any], memory: Mapping[int, Any], varying: Sequence[int]
    ) -> Repeatable | None:
        """A run as `run(arguments, memory)`, to be repeated with other arguments where they are
        `varying`; None when this program has none."""


class LocalProgram(Protocol):
    """What one rank of a distributed program runs between collectives, on arrays of its device."""

    arena_bytes: int

    def __call__(
        self, arrays: Sequence[Any], ready: Callable[[int, Any], None] | None = None
    ) -> list[Any]:
        """The results. `ready` is called between kernels: with the number of each result and the
        result as soon as it is complete, and with -1 and None when none is."""


class GeneralProgram(Protocol):
    """A program for any numbers that its guards admit; `conditions` are these as text."""

    @property
    def conditions(self) -> Sequence[str]: ...

    def bind(self, numbers: Sequence[float]) -> Program | None:
        """The program for the numbers of a subgraph; None when this is none for them."""


class Backend(NamedTuple):
    """What makes programs of what the compiler's passes have made.

    `program` makes the program of a subgraph; it calls the function that it is given to run the
    passes, unless it knows the result. `machine` tells the passes of the device of a number, and
    `source` prints a nest in the backend's language; without them no pass runs and the program gets
    the meta-operators as they were recorded. `general` is `program` on symbolic sizes. `local`
    makes of a schedule what a rank runs on the device of a number.
    """

    program: Callable[[Subgraph, Callable[[], Schedule]], Program]
    machine: Callable[[int], Machine] | None = None
    source: Callable[[LoopNest], str] | None = None
    general: Callable[[SymbolicCut, Callable[[], Schedule]], GeneralProgram] | None = None
    local: Callable[[Schedule, int], LocalProgram] | None = None


class Observer(Protocol):
    """Something that watches programs run: the profiler, tests that count kernels."""

    def ran(self, program: Program, names: Sequence[str], times: Sequence[int]) -> None:
        """Called after a run with the kernels launched and the time in nanoseconds (monotonic)
        before each of them and after the last."""


# Everybody in here is told of every run; empty costs nothing.
observers: list[Observer] = []
