"""Workloads, and their registry."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from benchmarks.frameworks import Framework


class Prepared(NamedTuple):
    """A workload set up in one framework.

    `run()` does the work once and returns its results. `observe()` gives the tensors that must
    be equal in all frameworks; without it, those are the results of the first run.
    """

    run: Callable[[], Any]
    observe: Callable[[], Sequence[Any]] | None = None


class Workload(NamedTuple):
    """One row of the table.

    `nbytes` is what has to be read and written at least, `flops` what has to be multiplied and
    added (two for each pair). `tolerance` bounds the largest difference of observed values
    relative to the largest value.
    """

    name: str
    group: str
    prepare: Callable[[Framework], Prepared]
    nbytes: float
    flops: float
    tolerance: float


WORKLOADS: dict[str, Workload] = {}


def named_in(prefix: str, group: str) -> dict[str, str]:
    """The workloads of a group by the names that another group, `prefix`, gives them."""
    members = [one.name for one in WORKLOADS.values() if one.group == group]
    return {f"{prefix}: {name}": name for name in members}


def workload(
    group: str, name: str, nbytes: float = 0, flops: float = 0, tolerance: float = 1e-4
) -> Callable[[Callable[[Framework], Any]], Callable[[Framework], Any]]:
    """Registers a function that sets up a workload and returns `Prepared` or just its `run`."""

    def register(function: Callable[[Framework], Any]) -> Callable[[Framework], Any]:
        def prepare(framework: Framework) -> Prepared:
            prepared = function(framework)
            return prepared if isinstance(prepared, Prepared) else Prepared(prepared)

        WORKLOADS[name] = Workload(name, group, prepare, nbytes, flops, tolerance)
        return function

    return register
