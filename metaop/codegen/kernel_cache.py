"""Compiled kernels by skeleton: nests that differ in sizes alone share one.

Nests of one skeleton form a family. The first nest of a family is compiled with its integers as
literals, apart from those that `always_general` names; when a nest arrives that differs from it,
the positions in which nests of the family ever differed become arguments, and one more kernel is
compiled.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeAlias, TypeVar

from metaop.codegen.generalise import Walker, generalise, walked
from metaop.codegen.loop_nest import LoopNest
from metaop.errors import InternalError
from metaop.unified_graph.symbolic import hint_of, is_symbolic

# So many families of one skeleton differ in integers that are worth a kernel: enough for the
# layers of a network, and an end to compiling when sizes never stop changing.
_SPECIAL_FAMILIES = 16
# More than a program has; what was forgotten and comes again is found on disk.
_KEPT_SKELETONS = 4096


Kernel = TypeVar("Kernel")


@dataclass
class _Family(Generic[Kernel]):
    """The nests of one skeleton: the integers of the first, and the kernels by what varies."""

    first: tuple[int, ...]
    varying: frozenset[int]
    kernels: dict[frozenset[int], Kernel] = field(default_factory=dict)

    def fitting(self, differing: frozenset[int]) -> frozenset[int] | None:
        """The arguments of the most special kernel that allows these differences."""
        fitting = [varying for varying in self.kernels if differing <= varying]
        return min(fitting, key=len, default=None)


# The families of a skeleton, by the integers that are worth a kernel.
_Families: TypeAlias = "dict[tuple[int, ...] | None, _Family[Kernel]]"


class KernelCache(Generic[Kernel]):
    """Compiled kernels by skeleton; threads may share a cache.

    `compile_nest` gives what stands for a nest's machine code, as its address; `reals` says whether
    it knows arguments that are real numbers. The cache holds the kernels of the skeletons that were
    asked for last; whoever needs another one for longer holds it.
    """

    def __init__(self, compile_nest: Callable[[LoopNest], Kernel], reals: bool = True) -> None:
        self._compile = compile_nest
        self._takes_reals = reals
        self._skeletons: OrderedDict[Hashable, _Families[Kernel]] = OrderedDict()
        self._lock = threading.Lock()

    def kernel_for(self, nest: LoopNest) -> tuple[Kernel, tuple[int, ...]]:
        """A kernel that computes the nest, and the arguments to call it with."""
        walker = walked(nest, self._takes_reals)
        integers = tuple(walker.integers)
        # Those that follow from symbols are arguments; their hints are of no program but one.
        symbolic = frozenset(k for k, here in enumerate(integers) if is_symbolic(here))
        if symbolic and any(map(is_symbolic, walker.tokens)):
            raise InternalError(f"{nest.name}: the form of the code depends on symbols")
        with self._lock:
            family = self._family(walker, symbolic)
            pairs = enumerate(zip(family.first, map(hint_of, integers)))
            differing = symbolic.union(k for k, (first, here) in pairs if first != here)
            varying = family.fitting(differing)
            if varying is None:
                family.varying |= differing
                varying = family.varying
                general = generalise(nest, varying, self._takes_reals)
                general = general._replace(arguments=tuple(map(hint_of, general.arguments)))
                family.kernels[varying] = self._compile(general)
        added = [integers[position] for position in sorted(varying)]
        return family.kernels[varying], (*nest.arguments, *added)

    def _family(self, walker: Walker, symbolic: frozenset[int]) -> _Family[Kernel]:
        """The family of a nest, or a new one."""
        special = walker.special() - symbolic
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
