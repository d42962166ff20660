"""Compiled kernels by skeleton: nests that differ only in sizes share one.

Nests of one skeleton form a family. The first nest of a family is compiled with its integers as
literals, except for those that `always_general` names. When a nest arrives that differs from it,
one more kernel is compiled, with arguments at all positions in which nests of the family ever
differed.

Families of one skeleton whose kernels would be printed alike, such as those of a network's layers,
are printed once, with arguments where they differ; each has a kernel in which LLVM finds literals
in the place of these arguments.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeAlias, TypeVar

from metaop.codegen.nest.generalise import Walker, generalise, walked
from metaop.codegen.nest.ir import LoopNest
from metaop.errors import InternalError
from metaop.unified_graph.symbolic import hint_of, is_symbolic

# The most families of one skeleton that differ in integers worth a kernel: enough for the layers of
# a network, and a bound on compilation if sizes never stop changing.
_SPECIAL_FAMILIES = 16
# More than a program has; a kernel that was dropped is found again on disk.
_KEPT_SKELETONS = 4096


Kernel = TypeVar("Kernel")


class _Member:
    """A nest and its integers; those that depend on symbols are arguments of its kernel.

    Their hints belong to a single program.
    """

    def __init__(self, nest: LoopNest, walker: Walker) -> None:
        self.nest = nest
        self.walker = walker
        self.skeleton = tuple(walker.tokens)
        self.integers = tuple(walker.integers)
        self.symbolic = frozenset(k for k, here in enumerate(self.integers) if is_symbolic(here))
        if self.symbolic and any(map(is_symbolic, walker.tokens)):
            raise InternalError(f"{nest.name}: the form of the code depends on symbols")


@dataclass
class _Made(Generic[Kernel]):
    """A kernel, and the positions of the integers that it takes as arguments."""

    kernel: Kernel
    arguments: tuple[int, ...]


@dataclass
class _Family(Generic[Kernel]):
    """The nests of one skeleton: the integers of the first, and the kernels by what varies."""

    first: tuple[int, ...]
    varying: frozenset[int]
    kernels: dict[frozenset[int], _Made[Kernel]] = field(default_factory=dict)

    def differing(self, member: _Member) -> frozenset[int]:
        """The positions in which a nest differs from the first, and those with symbols."""
        pairs = enumerate(zip(self.first, map(hint_of, member.integers)))
        return member.symbolic.union(k for k, (first, here) in pairs if first != here)

    def fitting(self, differing: frozenset[int]) -> frozenset[int] | None:
        """The arguments of the most specialised kernel that allows these differences."""
        fitting = [varying for varying in self.kernels if differing <= varying]
        return min(fitting, key=len, default=None)

    def form(self, member: _Member) -> tuple[int | None, ...]:
        """The integers that decide how a kernel of the family is printed; None for arguments."""
        formal = sorted(member.walker.formal())
        return tuple(None if k in self.varying else self.first[k] for k in formal)


# The families of a skeleton, by the integers that are worth a kernel.
_Families: TypeAlias = "dict[tuple[int, ...] | None, _Family[Kernel]]"
# Compiles a nest for each choice of literals for some of its arguments.
Specialise: TypeAlias = "Callable[[LoopNest, Sequence[Mapping[int, int]]], Sequence[Kernel]]"


class KernelCache(Generic[Kernel]):
    """Compiled kernels by skeleton; threads may share a cache.

    `compile_nest` returns a handle on a nest's machine code, such as its address; with `specialise`
    the families of a program that are printed alike are printed once. `reals` says whether
    `compile_nest` supports real arguments. The cache holds the kernels of the most recently used
    skeletons; a caller that needs a kernel for longer holds it itself.
    """

    def __init__(
        self,
        compile_nest: Callable[[LoopNest], Kernel],
        specialise: Specialise[Kernel] | None = None,
        reals: bool = True,
    ) -> None:
        self._compile = compile_nest
        self._specialise = specialise
        self._takes_reals = reals
        self._skeletons: OrderedDict[Hashable, _Families[Kernel]] = OrderedDict()
        self._lock = threading.Lock()

    def kernel_for(self, nest: LoopNest) -> tuple[Kernel, tuple[int, ...]]:
        """A kernel that computes the nest, and the arguments to call it with."""
        return self.kernels_for([nest])[0]

    def kernels_for(self, nests: Sequence[LoopNest]) -> list[tuple[Kernel, tuple[int, ...]]]:
        """Kernels that compute the nests of a program, and the arguments to call them with.

        The differences within each family are collected before its first kernel is compiled.
        """
        # Kernels that are alike have the same nest.
        different = {id(nest): nest for nest in nests}
        known = {
            number: _Member(nest, walked(nest, self._takes_reals))
            for number, nest in different.items()
        }
        members = [known[id(nest)] for nest in nests]
        with self._lock:
            found = [(member, self._family(member)) for member in members]
            missing = []
            for member, family in found:
                differing = family.differing(member)
                if family.fitting(differing) is None:
                    family.varying |= differing
                    missing.append((member, family))
            self._make(missing)
            return [_call(member, family) for member, family in found]

    def _make(self, missing: Sequence[tuple[_Member, _Family[Kernel]]]) -> None:
        """Compiles a kernel for the nests of each family, together with those printed alike."""
        firsts: dict[int, tuple[_Member, _Family[Kernel]]] = {}
        for member, family in missing:
            firsts.setdefault(id(family), (member, family))
        alike: dict[Hashable, list[tuple[_Member, _Family[Kernel]]]] = {}
        for number, (member, family) in firsts.items():
            form = (member.skeleton, family.form(member)) if self._specialise else number
            alike.setdefault(form, []).append((member, family))
        for group in alike.values():
            (member, family), *others = group
            if others:
                self._make_alike(group)
            else:
                kernel = self._compile(_generalised(member.nest, family.varying, self._takes_reals))
                family.kernels[family.varying] = _Made(kernel, tuple(sorted(family.varying)))

    def _make_alike(self, group: Sequence[tuple[_Member, _Family[Kernel]]]) -> None:
        """Compiles a kernel for each family of a group, of one nest in which they all fit."""
        nest = group[0][0].nest
        varying = frozenset[int]().union(*(family.varying for _, family in group))
        # Where literals of all families are equal, they are one argument.
        same: dict[int, int] = {}
        columns: dict[tuple[int, ...], int] = {}
        for k, here in enumerate(zip(*(family.first for _, family in group))):
            if k not in varying and len(set(here)) > 1 and columns.setdefault(here, k) != k:
                same[k] = columns[here]
        arguments = sorted(varying.union(columns.values()))
        places = {k: place for place, k in enumerate(arguments, len(nest.arguments))}
        choices = [
            {places[k]: family.first[k] for k in arguments if k not in family.varying}
            for _, family in group
        ]
        assert self._specialise is not None
        general = _generalised(nest, arguments, self._takes_reals, same)
        for (_, family), kernel in zip(group, self._specialise(general, choices)):
            family.kernels[family.varying] = _Made(kernel, tuple(arguments))

    def _family(self, member: _Member) -> _Family[Kernel]:
        """The family of a nest, or a new one."""
        walker = member.walker
        special = walker.special() - member.symbolic
        values: tuple[int, ...] | None
        values = tuple(walker.integers[position] for position in sorted(special))
        families = self._skeletons.setdefault(member.skeleton, {})
        self._skeletons.move_to_end(member.skeleton)
        if len(self._skeletons) > _KEPT_SKELETONS:
            self._skeletons.popitem(last=False)
        family = families.get(values)
        if family is None and len(families) >= _SPECIAL_FAMILIES:
            values = None
            family = families.get(values)
        if family is None:
            general = walker.general() | (special if values is None else frozenset())
            first = tuple(map(hint_of, walker.integers))
            family = families[values] = _Family(first, general)
        return family


def _call(member: _Member, family: _Family[Kernel]) -> tuple[Kernel, tuple[int, ...]]:
    """The most specialised kernel of a family for a nest, and the arguments to call it with."""
    varying = family.fitting(family.differing(member))
    assert varying is not None
    made = family.kernels[varying]
    added = [member.integers[position] for position in made.arguments]
    return made.kernel, (*member.nest.arguments, *added)


def _generalised(
    nest: LoopNest,
    varying: Collection[int],
    takes_reals: bool,
    same: Mapping[int, int] | None = None,
) -> LoopNest:
    general = generalise(nest, varying, takes_reals, same)
    return general._replace(arguments=tuple(map(hint_of, general.arguments)))
