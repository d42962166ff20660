"""What every backend offers: programs that turn arguments into result buffers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from metaop.codegen.memory import Buffer

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

    def run(self, arguments: Sequence[Any]) -> Mapping[int, Any]:
        """Runs the program; the results that are made anew, by number."""


@runtime_checkable
class Preparable(Protocol):
    """A program that can prepare a run for many repetitions."""

    def prepared(
        self, arguments: Sequence[Any], memory: Mapping[int, Any], varying: Sequence[int]
    ) -> Repeatable | None:
        """A run as `run(arguments, memory)`, to be repeated with other arguments where they are
        `varying`; None when this program has none."""


class Observer(Protocol):
    """Something that watches programs run: the profiler, tests that count kernels."""

    def ran(self, program: Program, names: Sequence[str], times: Sequence[int]) -> None:
        """Called after a run with the kernels launched and the time in nanoseconds (monotonic)
        before each of them and after the last."""


# Everybody in here is told of every run; empty costs nothing.
observers: list[Observer] = []
