"""Loops whose steps differ in size: they stay written out, but their steps can share a program."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise, starmap

from metaop.rerolling.periods import Run, periodic_runs
from metaop.unified_graph.composite import Composite, Signature
from metaop.unified_graph.cut import Subgraph
from metaop.unified_graph.recording import Call

# Shorter programs are compiled soon enough, and shorter steps gain too little from one program.
_LEAST_CALLS, _LEAST_STEP = 400, 16
# So many steps have sizes of their own: others may repeat them, as at the end of a window.
_LEAST_SIZES = 8
# The steps are at least this part of a program.
_LEAST_SHARE = 0.75


def growing_steps(subgraph: Subgraph) -> list[int]:
    """The numbers of the calls with which parts of a subgraph begin: steps, and what is around.

    Empty unless many steps have sizes of their own, as in writing word after word. With gradients
    it is empty, too: layers that grow are trained by one program.
    """
    operators = subgraph.operators
    if len(operators) < _LEAST_CALLS or any(starmap(_is_trained, operators)):
        return []
    calls = [call for call, _ in operators]
    known: dict[Composite, int] = {}
    tokens = [known.setdefault(one.composite, len(known)) for _, one in operators]
    runs = [run for run in periodic_runs(tokens) if run.period >= _LEAST_STEP]
    if sum(run.end - run.start for run in runs) < _LEAST_SHARE * len(calls):
        return []
    starts, sizes = {0}, set()
    for run in runs:
        steps = range(_quietest(calls, run), run.end + 1, run.period)
        starts.update(steps)
        for first, after in pairwise(steps):
            sizes.add(tuple(call.type.shape for call in calls[first:after]))
    return sorted(starts) if len(sizes) >= _LEAST_SIZES else []


def _is_trained(call: Call, signature: Signature) -> bool:
    return call.requires_grad or signature.composite.derivation is not None


def _quietest(calls: Sequence[Call], run: Run) -> int:
    """The first start of a step, such that the fewest values cross from one step to the next."""
    middle = run.start + (run.end - run.start) // run.period // 2 * run.period
    last_use = {source: place for place, call in enumerate(calls) for source in call.inputs}
    ends = [last_use.get(call, place) for place, call in enumerate(calls[:middle])]

    def crossing(offset: int) -> int:
        place = middle - run.period + offset
        return sum(end >= place for end in ends[place - run.period : place])

    return run.start + min(range(run.period), key=crossing)
