"""Decides when a program is made for exact sizes, and when for any size.

The first sizes of a structure get a program of their own. The second sizes trigger the compilation
of the general program, in which symbols stand for the numbers that differ; it serves all sizes that
its guards admit. Sizes that no variant admits cause another variant, up to a limit. Beyond the
limit, or if there is no general program, each choice of sizes has its own program. So do sizes that
have run long enough. An extent that is marked dynamic differs from the start; one that is marked
static never becomes a symbol.

If a line of the user's program keeps producing new structures (a tree for each sentence, layers
dropped at random), a structure first runs in pieces: call by call, with programs that all
structures share. It gets a program of its own once it has run for as long as making one takes.
So does a long loop whose steps grow: step by step, with a program that all steps share.
"""

from __future__ import annotations

import math
import sys
import time
from collections import OrderedDict, deque
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from metaop.codegen.backend import GeneralProgram, Program
from metaop.codegen.budget import current_budget
from metaop.compiler import backend_named, backend_of, compile_generally, compile_subgraph
from metaop.errors import call_path
from metaop.rerolling import growing_steps
from metaop.settings import get
from metaop.shortcuts import go_without
from metaop.unified_graph.cut import Subgraph
from metaop.unified_graph.recording import Call
from metaop.unified_graph.shape_rule import learn_rule
from metaop.unified_graph.symbolic import NotGeneralError
from metaop.unified_graph.symbolic_cut import numbers_of, structure_key

# Variants of one structure: sizes on either side of a few thresholds.
_MOST_VARIANTS = 8
_KEPT_STRUCTURES = 512
# A program for any size runs at least this many seconds before one is made for exact sizes.
_LEAST_TRIAL = 1.0
_MOST_NAMES = 6
# An extent that is marked dynamic seems to have been about this many times as large.
_FAR = 1009
# After this many structures in a row that reached a line only once, the next ones run in pieces.
_MOST_ONCE = 4


@dataclass
class Trial:
    """How long a program for any size has run for one choice of sizes, in seconds.

    After `limit`, a program for these sizes alone is worth making: even if it gains nothing, making
    programs takes no more time in total than running them.
    """

    limit: float
    seconds: float = 0.0

    @property
    def is_over(self) -> bool:
        return self.seconds > self.limit


@dataclass
class Family:
    """The programs of one structure: the numbers that they were made for, and the variants.

    The first numbers have a program of their own; the latest variant comes first. `refusals` say
    why there is no program for any size; making one took `seconds`. A structure that runs
    `in_pieces` has no program; `steps` are where its parts begin, if they are not single calls.
    `is_repeated` is set when it occurs again.
    """

    operators: str
    seen: list[tuple[float, ...]]
    in_pieces: Trial | None = None
    steps: frozenset[int] | None = None
    is_repeated: bool = False
    variants: list[GeneralProgram] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def __str__(self) -> str:
        parts = [self.operators]
        parts += ["  any sizes where\n" + _indented(one.conditions) for one in self.variants]
        if self.in_pieces is not None:
            by_call = "  call by call, as its line brings ever new structures"
            parts.append("  step by step, as its steps grow" if self.steps else by_call)
        parts += [f"  sizes one by one: {reason}" for reason in dict.fromkeys(self.refusals)]
        return "\n".join(parts if len(parts) > 1 else [*parts, "  one size so far"])


@dataclass
class _Site:
    """A line that asks for values, and the latest structures that reached it.

    Two reads within one call of the package (an optimizer's, say) are apart.
    """

    latest: deque[Family] = field(default_factory=lambda: deque(maxlen=_MOST_ONCE))
    is_changing: bool = False

    def meet(self, family: Family) -> None:
        """Notes a new structure."""
        full = len(self.latest) == _MOST_ONCE
        self.is_changing |= full and not any(one.is_repeated for one in self.latest)
        self.latest.append(family)


@dataclass
class _Making:
    """How long compilation took in this process; the initial values are a guess."""

    seconds: float = 0.5
    calls: int = 100

    def expected(self, subgraph: Subgraph) -> float:
        return len(subgraph.order) * self.seconds / self.calls

    def note(self, subgraph: Subgraph, start: float) -> None:
        self.seconds += time.perf_counter() - start
        self.calls += len(subgraph.order)


# Of some leaves, the dimensions that are marked, and whether as dynamic.
_marks: WeakKeyDictionary[Call, dict[int, bool]] = WeakKeyDictionary()
_families: OrderedDict[Hashable, Family] = OrderedDict()
_sites: OrderedDict[Hashable, _Site] = OrderedDict()
_making = _Making()


class Found(NamedTuple):
    """A program for a subgraph; a program for any size is on `trial`. `is_new`: it was compiled.

    Without a program, the subgraph runs in pieces, also on trial.
    """

    program: Program | None
    trial: Trial | None = None
    is_new: bool = True
    family: Family | None = None


def mark(leaf: Call, dims: Iterable[int], as_dynamic: bool) -> None:
    """Marks dimensions of a computed value as dynamic or static, in place of earlier marks."""
    _marks.setdefault(leaf, {}).update(dict.fromkeys(dims, as_dynamic))


def program_for(subgraph: Subgraph, whole: bool) -> Found:
    """Finds a program for a subgraph that has none: a bound one on trial, or one for its own sizes.

    Returns no program if the subgraph should run in pieces, which `whole` rules out.
    """
    device = subgraph.outputs[0].type.device
    # A budget is kept for exact sizes: a program for any size has no upper bound.
    is_exact = get("METAOP_SIZES") == "exact" or current_budget() > 0
    if backend_named(backend_of(device)).general is None or is_exact:
        return Found(compile_subgraph(subgraph))
    key, numbers = structure_key(subgraph), numbers_of(subgraph)
    family = _families.get(key)
    if family is None:
        family = Family(_operators(subgraph), [_others(subgraph, numbers, numbers)])
        _families[key] = family
        _limit(_families, _KEPT_STRUCTURES)
        if family.seen[0] == numbers:
            family.in_pieces = None if whole else _trial_in_pieces(subgraph, family)
        if family.seen[0] == numbers and family.in_pieces is None:
            start = time.perf_counter()
            program = compile_subgraph(subgraph)
            _making.note(subgraph, start)
            return Found(program, family=family)
    else:
        family.is_repeated = True
        _families.move_to_end(key)
    if family.in_pieces is not None:
        if not (whole or family.in_pieces.is_over):
            return Found(None, family.in_pieces, is_new=False, family=family)
        family.in_pieces = None
        return Found(compile_subgraph(subgraph), family=family)
    found = _bound(family, numbers)
    is_new = found is None
    if found is None and len(family.variants) + len(family.refusals) < _MOST_VARIANTS:
        start = time.perf_counter()
        try:
            others = [_others(subgraph, numbers, seen) for seen in family.seen]
            family.variants.insert(0, compile_generally(subgraph, *others))
            family.seen.append(numbers)
            for _, signature in subgraph.operators:
                learn_rule(signature)
        except NotGeneralError as reason:
            family.refusals.append(str(reason))
        except Exception as fault:
            go_without("a program for any size", fault)
            family.refusals.append(repr(fault))
        family.seconds = max(family.seconds, time.perf_counter() - start)
        found = _bound(family, numbers)
        if get("METAOP_EXPLAIN"):
            print(family, file=sys.stderr)
    if found is None:
        return Found(compile_subgraph(subgraph))
    return Found(found, Trial(max(_LEAST_TRIAL, family.seconds)), is_new)


def _others(
    subgraph: Subgraph, numbers: tuple[float, ...], seen: tuple[float, ...]
) -> tuple[float, ...]:
    """Numbers that were seen, with dynamic extents unlike `numbers`, and static ones like them.

    Numbers that would share the symbol of a static extent are fixed with it.
    """
    if not any(leaf in _marks for leaf in subgraph.leaves):
        return seen
    pairs, position = list(zip(numbers, seen)), 0
    static: set[tuple[float, float]] = set()
    for leaf in subgraph.leaves:
        marks = _marks.get(leaf, {})
        # Only these extents are numbers; the others belong to the structure.
        for dim in [dim for dim, extent in enumerate(leaf.type.shape) if extent not in (0, 1)]:
            here, there = pairs[position]
            if marks.get(dim) is False:
                static.add((here, there))
            elif marks.get(dim) and here == there:
                # Equal extents share a symbol; no others are proportional or equally far apart.
                pairs[position] = here, here * _FAR + 1
            position += 1
    return tuple(here if (here, there) in static else there for here, there in pairs)


def _trial_in_pieces(subgraph: Subgraph, family: Family) -> Trial | None:
    """How long a new structure runs in pieces; None if it does not."""
    mode, device = get("METAOP_PIECES"), subgraph.outputs[0].type.device
    if mode == "never" or len(subgraph.order) == 1 or backend_of(device) != "llvm":
        return None
    if mode == "always":
        return Trial(math.inf)
    path = call_path()
    site = _sites.setdefault(path, _Site())
    _sites.move_to_end(path)
    _limit(_sites, _KEPT_STRUCTURES)
    site.meet(family)
    family.steps = frozenset(growing_steps(subgraph)) or None
    is_wanted = mode == "first" or site.is_changing or family.steps
    return Trial(_making.expected(subgraph)) if is_wanted else None


def _limit(kept: OrderedDict[Hashable, Any], most: int) -> None:
    """Drops the least recently used entry if there are too many."""
    if len(kept) > most:
        kept.popitem(last=False)


def _bound(family: Family, numbers: tuple[float, ...]) -> Program | None:
    for variant in family.variants:
        program = variant.bind(numbers)
        if program is not None:
            family.variants.remove(variant)
            family.variants.insert(0, variant)
            return program
    return None


def _operators(subgraph: Subgraph) -> str:
    """The operators of a subgraph on one line; only the last ones if there are many."""
    names = [signature.composite.name for _, signature in subgraph.operators]
    return ", ".join(names if len(names) <= _MOST_NAMES else ["…", *names[-_MOST_NAMES:]])


def _indented(lines: Sequence[str]) -> str:
    return "\n".join(f"    {line}" for line in lines or ["always"])


def described() -> str:
    """The structures that ran with more than one choice of sizes, and what their programs admit."""
    varied = [family for family in _families.values() if family.variants or family.refusals]
    return "".join(f"{family}\n" for family in varied)


def clear() -> None:
    """Forgets all structures, as if in a new process."""
    _families.clear()
    _sites.clear()
