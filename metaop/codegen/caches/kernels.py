"""Compiled kernels by skeleton: nests that differ only in sizes share one.

Nests of one skeleton form a family. The first nest of a family is compiled with its integers as
literals, except for those that `always_general` names. When a nest arrives that differs from it,
one more kernel is compiled, with arguments at all positions in which nests of the family ever
differed.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
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
        self.integers = tuple(walker.integers)
        self.symbolic = frozenset(k for k, here in enumerate(self.integers) if is_symbolic(here))
        if self.symbolic and any(map(is_symbolic, walker.tokens)):
            raise InternalError(f"{nest.name}: the form of the code depends on symbols")


@dataclass
class _Family(Generic[Kernel]):
    """The nests of one skeleton: the integers of the first, and the kernels by what varies."""

    first: tuple[int, ...]
    varying: frozenset[int]
    kernels: dict[frozenset[int], Kernel] = field(default_factory=dict)

    def differing(self, member: _Member) -> frozenset[int]:
        """The positions in which a nest differs from the first, and those with symbols."""
        pairs = enumerate(zip(self.first, map(hint_of, member.integers)))
        return member.symbolic.union(k for k, (first, here) in pairs if first != here)

    def fitting(self, differing: frozenset[int]) -> frozenset[int] | None:
        """The arguments of the most specialised kernel that allows these differences."""
        fitting = [varying for varying in self.kernels if differing <= varying]
        return min(fitting, key=len, default=None)


# The families of a skeleton, by the integers that are worth a kernel.
_Families: TypeAlias = "dict[tuple[int, ...] | None, _Family[Kernel]]"


class KernelCache(Generic[Kernel]):
    """Compiled kernels by skeleton; threads may share a cache.

    `compile_nest` returns a handle on a nest's machine code, such as its address; `reals` says
    whether it supports real arguments. The cache holds the kernels of the most recently used
    skeletons; a caller that needs a kernel for longer holds it itself.
    """

    def __init__(self, compile_nest: Callable[[LoopNest], Kernel], reals: bool = True) -> None:
        self._compile = compile_nest
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
            for member, family in found:
                differing = family.differing(member)
                if family.fitting(differing) is None:
                    family.varying |= differing
            return [self._kernel(member, family) for member, family in found]

    def _kernel(self, member: _Member, family: _Family[Kernel]) -> tuple[Kernel, tuple[int, ...]]:
        """The most specialised kernel of a family for a nest, and the arguments to call it with."""
        varying = family.fitting(family.differing(member))
        if varying is None:
            varying = family.varying
            general = generalise(member.nest, varying, self._takes_reals)
            general = general._replace(arguments=tuple(map(hint_of, general.arguments)))
            family.kernels[varying] = self._compile(general)
        added = [member.integers[position] for position in sorted(varying)]
        return family.kernels[varying], (*member.nest.arguments, *added)

    def _family(self, member: _Member) -> _Family[Kernel]:
        """The family of a nest, or a new one."""
        walker = member.walker
        special = walker.special() - member.symbolic
        values: tuple[int, ...] | None
        values = tuple(walker.integers[position] for position in sorted(special))
        skeleton = tuple(walker.tokens)
        families = self._skeletons.setdefault(skeleton, {})
        self._skeletons.move_to_end(skeleton)
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
