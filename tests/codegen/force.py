"""Forcing what the analytic model would not choose: tactics of contractions, thresholds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest

from metaop.codegen.lowering import Machine
from metaop.codegen.lowering.choice import other_blocks, other_tiles, rivals
from metaop.codegen.lowering.request import Request
from metaop.codegen.lowering.strategy import Tactic
from metaop.codegen.machine import Processor


def forcing(machine: Machine, pick: Callable[[list[Tactic]], Tactic | None]) -> Machine:
    """A machine on which `pick` chooses among all tactics of a contraction (None: the default)."""

    def choose(request: Request, default: Tactic) -> Tactic:
        return pick(rivals(request)) or default

    return replace(machine, choose=choose)


def forcing_schedules(machine: Machine, schedules: Iterable[str]) -> Machine:
    """A machine on which contractions take the first of these schedules that they can take."""
    wanted = list(schedules)

    def pick(found: list[Tactic]) -> Tactic | None:
        by_name = {tactic.name: tactic for tactic in found}
        return next((by_name[name] for name in wanted if name in by_name), None)

    return forcing(machine, pick)


def with_every_size(found: Iterable[Tactic], machine: Machine) -> list[Tactic]:
    """Tactics, and one of each sort with every register tile and every other size of blocks."""
    plain = list(found)
    sorts = {type(one.plan): one for one in plain}.values()
    return plain + [
        sized for one in sorts for sized in (*other_tiles(one, machine), *other_blocks(one))
    ]


def change_thresholds(monkeypatch: pytest.MonkeyPatch, **changes: int) -> None:
    """Makes some thresholds of this machine other ones than follow from its processor."""
    follow = Processor.thresholds
    monkeypatch.setattr(Processor, "thresholds", lambda self: follow(self)._replace(**changes))
