"""What the schedules of a stencil share: its windows, their taps, and the results at a position."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

from metaop.codegen.lowering.base.kernel import LoweredKernel
from metaop.codegen.lowering.contractions.axes import ContractionAxes
from metaop.codegen.lowering.stencils.geometry import Stencil
from metaop.codegen.machine import Thresholds
from metaop.codegen.nest import ir
from metaop.fusion.kernel import Kernel
from metaop.fusion.storage import Storage
from metaop.unified_graph import index_expr
from metaop.unified_graph.access import Guard
from metaop.unified_graph.index_expr import Axis, IndexExpr
from metaop.unified_graph.node import Node
from metaop.unified_graph.symbolic import is_symbolic

# The fewest tasks of a stencil, if it has enough planes.
FEWEST_TASKS = 16
# The products in the body of the innermost loop.
_MOST_PRODUCTS = 64
# The registers that are not for the sums of taps.
_BESIDE_SUMS = 7

# The numbers of a tap in both windows.
Tap = tuple[int, int]


def running(axis: str, extent: int) -> IndexExpr:
    """The index of a loop; a symbolic extent gets no guard that tells one iteration from more."""
    return (
        index_expr.of(Axis(axis, extent)) if is_symbolic(extent) else index_expr.axis(axis, extent)
    )


class Group(NamedTuple):
    """Rows of results that are computed at once, and how many such groups follow each other."""

    first: int
    rows: int
    times: int


class Result(NamedTuple):
    """The indices that identify a result among those at its position, and its taps."""

    fixed: dict[int, int]
    taps: list[Tap]


class Taps(ContractionAxes):
    """A stencil: its windows down and along a plane, and the residues that move them."""

    def __init__(
        self,
        kernel: Kernel,
        storage: Storage,
        uses: dict[Node, int],
        stencil: Stencil,
        thresholds: Thresholds,
    ) -> None:
        super().__init__(kernel, storage, uses)
        self.thresholds = thresholds
        self.most_sums = thresholds.registers - _BESIDE_SUMS
        self.down, self.along = stencil.windows
        self.residues, self.channels = stencil.residues, stencil.channels

    def lower(self) -> LoweredKernel:
        """The nest of the launch."""
        raise NotImplementedError

    def loop(
        self,
        axis: str,
        extent: int,
        kind: str = "serial",
        vector: bool = False,
        accumulators: Iterable[ir.Accumulator] = (),
    ) -> AbstractContextManager[IndexExpr]:
        """A loop of the nest, which runs `running(axis, extent)`."""
        counted = is_symbolic(extent)
        return self.values.loop(
            axis, extent, kind, vector=vector, accumulators=accumulators, counted=counted
        )

    def taps(self) -> Iterator[Tap]:
        """The taps of both windows."""
        return itertools.product(range(self.down.taps), range(self.along.taps))

    def every_result(self) -> list[Result]:
        """The results at each position, with the taps that are not always outside the plane."""
        axes = sorted((*self.contraction.rows, *(residue.axis for residue in self.residues)))
        anywhere = {k: index_expr.axis(f"o{k}", n) for k, n in enumerate(self.kernel.shape)}
        found = []
        for indices in itertools.product(*(range(self.kernel.shape[k]) for k in axes)):
            fixed = dict(zip(axes, indices))
            place = {**anywhere, **{k: index_expr.constant(x) for k, x in fixed.items()}}
            taps = [
                tap
                for tap in self.taps()
                if not self.is_outside(self.contraction.left, self.tap_at(place, tap))
            ]
            found.append(Result(fixed, taps))
        return found

    def result_at(self, place: dict[int, IndexExpr], result: Result) -> dict[int, IndexExpr]:
        """A position with one of its results."""
        return {**place, **{k: index_expr.constant(x) for k, x in result.fixed.items()}}

    def store_results(
        self,
        place: dict[int, IndexExpr],
        results: Sequence[Result],
        sums: Sequence[ir.Expr],
        guards: tuple[Guard, ...] = (),
    ) -> None:
        """Stores the results at a position; neighbouring ones are stored together."""
        pairs = zip(results, sums)
        for _, group in itertools.groupby(pairs, key=lambda one: list(one[0].fixed.values())[:-1]):
            stored = [(self.result_at(place, result), total) for result, total in group]
            self.store_all(stored, guards)

    def groups(self, products: int, count: int, most: int = _MOST_PRODUCTS) -> list[Group]:
        """Groups of rows, of limited size, with a number of products per element.

        A symbolic number of rows leaves some over, one by one.
        """
        most = max(1, min(_MOST_PRODUCTS // max(products, 1), most))
        if is_symbolic(count):
            times = count // most
            alone = [] if most == 1 else [Group(times * most, 1, count - times * most)]
            return [Group(0, most, times), *alone]
        most = min(most, count)
        fitting = max(n for n in range(1, most + 1) if count % n == 0)
        rows = fitting if 2 * fitting > most else most
        times, rest = divmod(count, rows)
        groups = [Group(0, rows, times)]
        return [*groups, Group(times * rows, rest, 1)] if rest else groups

    def plane_at(self, axes: Sequence[int], number: IndexExpr) -> dict[int, IndexExpr]:
        """The indices of the outer axes, by the number of a plane."""
        indices = index_expr.unravel(number, [self.kernel.shape[k] for k in axes])
        return {**self.place, **dict(zip(axes, indices))}

    def tap_at(self, place: dict[int, IndexExpr], tap: Tap) -> dict[int, IndexExpr]:
        """A position with a tap."""
        down, along = map(index_expr.constant, tap)
        return {**place, self.down.short: down, self.along.short: along}

    def left_at(self, place: dict[int, IndexExpr]) -> ir.Expr:
        """The left factor at a position."""
        return self.padded(self.contraction.left, place, [])

    def accumulators(self, names: Iterable[str]) -> list[ir.Accumulator]:
        """Sums under some names."""
        return [ir.Accumulator(name, "add", self.scalar) for name in names]

    def store_taps(self, sums: Mapping[Tap, str]) -> None:
        """Stores the sums of the taps, which are bound to names, at the current position."""
        for tap, name in sums.items():
            self.store(self.tap_at(self.place, tap), (), ir.Name(name, self.scalar))

    def apply(self, function: str, left: ir.Expr, right: ir.Expr) -> ir.Expr:
        """A function of two values."""
        return ir.Apply(function, (left, right), self.scalar, self.scalar)

    def sum_of(self, products: Sequence[tuple[ir.Expr, ir.Expr]]) -> ir.Expr:
        """The sum of some products, one added after another."""
        total: ir.Expr | None = None
        for left, right in products:
            product = self.apply("mul", left, right)
            total = product if total is None else self.apply("add", total, product)
        return ir.Number(0, self.scalar) if total is None else total
