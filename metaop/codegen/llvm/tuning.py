"""Tuning: the fastest tactic of a contraction on this machine, found by measuring, kept on disk.

The analytic model proposes the candidates: schedules that it does not consider hopeless, each
register tile that fits the machine, and then blocks of half and twice the size around the best of
these. A candidate that is faster than the default by more than noise replaces it, in this process
and in later ones. The choice does not change what is computed, but may change the rounding.
"""

from __future__ import annotations

import atexit
import functools
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path

import numpy as np

from metaop import settings
from metaop.codegen.caches.choices import Choices
from metaop.codegen.caches.disk import cache_at
from metaop.codegen.caches.fingerprint import kernel_fingerprint
from metaop.codegen.llvm.objects.engine import code_generator
from metaop.codegen.llvm.target import Target, host_target
from metaop.codegen.llvm.timing_trial import Candidate, Memory, timing_trial
from metaop.codegen.lowering import Machine
from metaop.codegen.lowering.choice import lower_by, other_blocks, other_tiles, rivals
from metaop.codegen.lowering.request import Request
from metaop.codegen.lowering.strategy import Tactic
from metaop.codegen.nest.ir import LoopNest

# A part of the folder's name: increment it to invalidate older choices.
_VERSION = "1"
# Schedules for which the model predicts more than this many times the work of panels are not tried.
_HOPELESS = 1.5
# The seconds for which the candidates of a round take turns, and the fewest turns of each.
_SECONDS, _TURNS, _FINAL_TURNS = 0.3, 4, 16
# A candidate that is faster by less than this share, or in a smaller share of turns, may be so by
# chance.
_NOISE, _WON = 0.03, 0.75


@dataclass
class Report:
    """The result of a search: contractions tried, those that got faster, seconds spent.

    `before` and `after` are the sums of the measured times of the default and of the choice.
    """

    tried: int = 0
    faster: int = 0
    seconds: float = 0.0
    before: float = 0.0
    after: float = 0.0

    def add(self, before: float, after: float, seconds: float) -> None:
        """Counts one contraction."""
        self.tried += 1
        self.faster += after < before
        self.seconds += seconds
        self.before += before
        self.after += after

    def __str__(self) -> str:
        gain = f", together {self.before / self.after:.2f} times as fast" if self.after else ""
        return (
            f"contractions tuned: {self.tried} in {self.seconds:.0f} s, "
            f"{self.faster} got faster{gain}"
        )


# Of the blocks `searching`, the innermost last.
_reports: list[Report] = []


def mode() -> str:
    """The mode of METAOP_TUNE or `searching`: off, stored or search."""
    found: str = settings.get("METAOP_TUNE")
    return "search" if _reports else found


@contextmanager
def searching() -> Iterator[Report]:
    """Tunes what is compiled inside the block, whatever METAOP_TUNE says."""
    _reports.append(report := Report())
    try:
        yield report
    finally:
        _reports.pop()


def _report() -> Report:
    return _reports[-1] if _reports else _of_process()


@functools.cache
def _of_process() -> Report:
    """What METAOP_TUNE=search finds, printed when the process ends."""
    report = Report()
    atexit.register(lambda: print(f"metaop {report}", file=sys.stderr))
    return report


def tuned(machine: Machine) -> Machine:
    """The machine with the choices that were found for it; in search mode, it finds more."""
    now = mode()
    if now == "off":
        return machine
    choices = _choices(machine)
    if now == "stored" and not choices:
        return machine
    return replace(machine, choose=functools.partial(_choose, choices, now == "search"))


def state_of_choices(machine: Machine) -> str:
    """A hash of the choices that `tuned` makes; "" where there are none."""
    return "" if mode() == "off" else _choices(machine).state


def count_of_choices(machine: Machine) -> int:
    """How many contractions were tuned for a machine."""
    return len(_choices(machine))


def _choices(machine: Machine) -> Choices:
    directory = settings.get("METAOP_CACHE_DIR") if settings.get("METAOP_DISK_CACHE") else None
    return _choices_in(directory, machine, host_target())


@functools.cache
def _choices_in(directory: str | None, machine: Machine, target: Target) -> Choices:
    """The choices for a machine in a folder, or none."""
    if directory is None:
        return Choices(None)
    parts = (_VERSION, code_generator(), repr(target), repr(machine))
    digest = blake2b("\n".join(parts).encode(), digest_size=12).hexdigest()
    folder = Path(directory).expanduser() / f"tactics-{digest}"
    return Choices(cache_at(str(folder), settings.get("METAOP_CACHE_BYTES")))


def _choose(
    choices: Choices,
    searches: bool,
    request: Request,
    default: Tactic,
) -> Tactic:
    """The tactic of a contraction: known, found now, or the default."""
    key = kernel_fingerprint(request.kernel, request.storage)
    if key is None:
        return default
    if key not in choices:
        if not searches:
            return default
        choices.keep(key, _Search(request, default).winner())
    return choices.find(key, rivals(request)) or default


class _Search:
    """The search for the fastest tactic of one contraction."""

    def __init__(self, request: Request, default: Tactic) -> None:
        self.request, self.default = request, default
        self.memory = Memory()
        # Tactics whose sizes exceed those of the contraction have the same launches.
        self.nests: list[list[LoopNest]] = []
        self.ready: list[Candidate] = []

    def winner(self) -> Tactic:
        """The default, or a tactic that is faster by more than noise."""
        start = time.perf_counter()
        others = [
            one for one in rivals(self.request) if one != self.default and one.share <= _HOPELESS
        ]
        best = self._best([self.default, *others, *other_tiles(self.default, self.request.machine)])
        best = self._best([best, *other_blocks(best)])
        times = self._times([self.default, best], _FINAL_TURNS)
        before, after = times.min(0)
        if after >= (1 - _NOISE) * before or (times[:, 1] < times[:, 0]).mean() < _WON:
            best, after = self.default, before
        _report().add(before, after, time.perf_counter() - start)
        return best

    def _best(self, candidates: Sequence[Tactic]) -> Tactic:
        return candidates[int(self._times(candidates, _TURNS).min(0).argmin())]

    def _times(self, candidates: Sequence[Tactic], turns: int) -> np.ndarray:
        """The times of each candidate, [turn, candidate]."""
        from tqdm import tqdm

        title = f"tuning contraction {_report().tried + 1}"
        bar = tqdm(candidates, title, leave=False, delay=1, disable=None)
        numbers = [self._launched(one) for one in bar]
        different = sorted(set(numbers))
        if len(different) == 1:
            return np.zeros((1, len(candidates)))
        times = timing_trial([self.ready[number] for number in different], _SECONDS, turns)
        return times[:, [different.index(number) for number in numbers]]

    def _launched(self, tactic: Tactic) -> int:
        """The number of a tactic's candidate, which is ready to run."""
        launches = lower_by(tactic, self.request)
        nests = [launch.nest for launch in launches]
        if nests not in self.nests:
            self.nests.append(nests)
            self.ready.append(Candidate(launches, self.memory))
        return self.nests.index(nests)
