"""The choice between tactics: what the model prefers, and what else a tuner may measure.

A tactic is plain data: the model chooses one, and lowering carries it out. The machine may replace
it by another one, for example one that a tuner measured to be faster.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from metaop.codegen.lowering.base.kernel import LoweredKernel
from metaop.codegen.lowering.machine import Machine
from metaop.codegen.lowering.request import Request
from metaop.codegen.lowering.strategies import STRATEGIES, tactics
from metaop.codegen.lowering.strategy import Rival, Strategy, Tactic

# Strategies that cut a contraction by sizes other than those of blocks.
_OWN_SIZES = ("stencil", "thin")
# Another strategy than the plain one pays if its work is at most this share.
_WORTH = 0.85


class Choice(NamedTuple):
    """A kernel, and the tactic that was chosen for it."""

    request: Request
    tactic: Tactic


def lower_by(tactic: Tactic, request: Request) -> list[LoweredKernel]:
    """The launches that compute a kernel by a tactic.

    Usually one; two if a result must be initialised first; for a contraction, one per case,
    possibly after one that prepares a factor. The launch of a loop repeats a step.
    """
    launches = strategy_of(tactic).lower(request, tactic)
    return [launch.in_chunks(request.machine.thresholds) for launch in launches]


def strategy_of(tactic: Tactic) -> Strategy:
    """The row of the table that a tactic belongs to."""
    return next(one for one in STRATEGIES if one.name == tactic.strategy)


def chosen_tactic(request: Request) -> Tactic:
    """The tactic that the model prefers, or the one that the machine puts in its place."""
    default, choose = default_tactic(request), request.machine.choose
    if choose is None or not isinstance(strategy_of(default), Rival):
        return default
    return choose(request, default)


def default_tactic(request: Request) -> Tactic:
    """The tactic that the analytic model prefers."""
    found: list[Tactic] = []
    for tactic in tactics(request):
        found.append(tactic)
        if not tactic.share:
            break
    last = found.pop()
    return min((*(one for one in found if one.share <= _WORTH), last), key=lambda one: one.share)


def rivals(request: Request) -> list[Tactic]:
    """All tactics of a sum of products, the plain one last."""
    return list(tactics(request, Rival))


def other_tiles(tactic: Tactic, machine: Machine) -> list[Tactic]:
    """The tactic with the machine's other register tiles, if it has one of them."""
    tile, usual = tactic.tile, machine.tile
    sizes = (tile.rows, tile.columns)
    known = ((usual.rows, usual.columns), *machine.tiles)
    if tactic.strategy in _OWN_SIZES or sizes not in known:
        return []
    others = (one for one in known if one != sizes)
    tiles = (replace(tile, rows=rows, columns=columns) for rows, columns in others)
    return [replace(tactic, tile=one) for one in tiles if one.is_possible]


def other_blocks(tactic: Tactic) -> list[Tactic]:
    """The tactic with one of its blocks halved or doubled."""
    if tactic.strategy in _OWN_SIZES:
        return []
    tile, found = tactic.tile, []
    for name in ("depth", "block_rows", "block_columns"):
        size = getattr(tile, name)
        found += [replace(tile, **{name: other}) for other in (size // 2, 2 * size)]
    return [replace(tactic, tile=one) for one in found if one.is_possible]


def show_choices(choices: Iterable[Choice]) -> str:
    """One line per choice; of sums of products, with the rivals that cost more or cannot do it."""
    return "".join(f"[lowering] {line}\n" for one in choices for line in _show(*one))


def _show(request: Request, tactic: Tactic) -> list[str]:
    strategy, root = strategy_of(tactic), request.kernel.roots[-1]
    if not isinstance(strategy, Rival):
        return [f"{strategy.name}: {root!r}: {strategy.why}"]
    found, without = rivals(request), request.machine.without
    able = {one.strategy for one in found}
    refused = [one for one in STRATEGIES if isinstance(one, Rival) and one.name not in able]
    reasons = [
        (one.name, "switched off here" if one.name in without else f"needs {one.needs}")
        for one in refused
    ]
    return [
        f"{tactic}, {tactic.share:.2f} of the plain time: {root!r}: {strategy.why}",
        *(f"  not {one.name}: {one.share:.2f} of the plain time" for one in found if one != tactic),
        *(f"  not {name}: {reason}" for name, reason in reasons),
    ]
