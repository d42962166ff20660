"""The factors and the results of a contraction, by positions of its rows, columns and depth.

Every schedule of contractions gets the value of a factor at a position here, and passes the values
to store at a position of the result. Index maps are evaluated only here.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from metaop.codegen.lowering.base.kernel import LoweredKernel, Lowering
from metaop.codegen.lowering.base.values import Values
from metaop.codegen.lowering.contractions.prepacked import right_as_read
from metaop.codegen.nest import ir
from metaop.errors import InternalError
from metaop.fusion.cases import WHOLE, Case
from metaop.fusion.inline import map_at, widened
from metaop.fusion.kernel import Indices, Kernel
from metaop.fusion.storage import Storage
from metaop.reindex.meta_op import Reindex
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph import index_expr
from metaop.unified_graph.access import Guard, Within
from metaop.unified_graph.dtype import DType
from metaop.unified_graph.index_expr import Axis, IndexExpr
from metaop.unified_graph.node import Node
from metaop.unified_graph.symbolic import hint_of

# Axes, their extents, a position among them, and its bound, which a block may exceed.
Outer = tuple[tuple[int, ...], list[int], IndexExpr, int]
# The dtype in memory of a factor, and its strides along named axes.
_Strides = tuple[DType, dict[str, int]]


class ContractionAxes(Lowering):
    """One case of a contraction: its axes, its factors and its results at given positions."""

    def __init__(
        self,
        kernel: Kernel,
        storage: Storage,
        uses: dict[Node, int],
        case: Case = WHOLE,
    ) -> None:
        super().__init__(kernel, storage, uses)
        contraction = kernel.contraction
        assert contraction is not None
        self.case = case
        self._known_strides: dict[tuple, _Strides | None] = {}
        kept = [
            tuple(k for k in axes if k not in case.fixed)
            for axes in (contraction.batch, contraction.rows, contraction.columns)
        ]
        self.contraction = replace(contraction, batch=kept[0], rows=kept[1], columns=kept[2])
        self.root = kernel.roots[0]
        self.scalar = sum_type(self.root.dtype)
        # The dtype of factors that can be read in place.
        self.in_place = self.scalar
        # The dtype in which factors are multiplied; sums have that of `scalar`.
        self.multiplied = self.scalar
        shape = kernel.shape
        self.batch, self.rows, self.columns = ([shape[k] for k in axes] for axes in kept)
        self.depth = self._depth_extents()
        self.place: dict[int, IndexExpr] = {}
        # The outer axes of the depth that are offsets of a window, and the axes inside them.
        self.offset_axes, self.inner = 0, math.prod(self.depth)

    def _depth_extents(self) -> list[int]:
        ranges = self.case.ranges
        return [ranges.get(k, (0, self.kernel.shape[k]))[1] for k in self.contraction.depth]

    def part_of_work(self) -> float:
        """The fraction of the kernel's work in this case."""
        shape, case = self.kernel.shape, self.case
        found = 1 / math.prod(hint_of(shape[axis]) for axis in case.fixed)
        for axis, (_, extent) in case.ranges.items():
            found *= hint_of(extent) / hint_of(shape[axis])
        return found

    def put_outside(self, windows: Sequence[int]) -> None:
        """Reorders the depth: offsets of the window outside, channels inside."""
        inside = [k for k in self.contraction.depth if k not in windows]
        self.contraction = replace(self.contraction, depth=(*windows, *inside))
        self.depth = self._depth_extents()
        self.offset_axes = len(windows)
        self.inner = math.prod(self.depth[len(windows) :])

    def factor(
        self,
        factor: Node,
        outer: Outer,
        inner: tuple[IndexExpr, int],
        guards: tuple[Guard, ...] = (),
    ) -> ir.Expr:
        """`factor` at a position of its outer axes and a depth; zero outside the contraction.

        `outer` holds the axes, their extents, the position and its bound; `inner` the depth and
        its bound. It is zero, too, unless further guards hold.
        """
        axes, extents, position, bound = outer
        step, depth = inner
        place = dict(self.place)
        place.update(zip(axes, unravel_within(position, extents)))
        place.update(zip(self.contraction.depth, self.depth_at(step)))
        # Bounds of positions come first: they tell which slice of a factor is read.
        ends = (Within(position, bound), Within(step, depth), *guards)
        return self.padded(factor, place, [guard for guard in ends if not guard.always])

    def depth_at(self, step: IndexExpr) -> tuple[IndexExpr, ...]:
        """The indices of a step of the depth: offsets of the window, then channels."""
        outside = self.offset_axes
        if not outside:
            return unravel_within(step, self.depth)
        offsets = unravel_within(step // self.inner, self.depth[:outside])
        return (*offsets, *index_expr.unravel(step % self.inner, self.depth[outside:]))

    def padded(self, factor: Node, place: dict[int, IndexExpr], guards: list[Guard]) -> ir.Expr:
        """`factor` at a position if guards hold, else zero."""
        values = self.values
        value = values.value(factor, self.box(place), tuple(guards))
        value = converted(value, factor.dtype, self.multiplied)
        is_guarded = isinstance(value, ir.Load) and bool(value.conditions)
        if not guards or is_guarded:
            return value
        zero = ir.Number(0, self.multiplied)
        return ir.Choose(values.conditions(guards), value, zero, self.multiplied)

    def box(self, place: dict[int, IndexExpr]) -> Indices:
        """The indices of all axes of the kernel at a position."""
        ranges, fixed = self.case.ranges, self.case.fixed
        return tuple(
            place.get(k, index_expr.constant(fixed.get(k, 0))) + ranges.get(k, (0, 0))[0]
            for k in range(len(self.kernel.shape))
        )

    def behind_views(
        self, factor: Node, place: dict[int, IndexExpr]
    ) -> tuple[Node, Indices, tuple[Guard, ...]]:
        """The node that a factor views, its indices at a position, and its guards there.

        If a guard does not hold, the factor is zero.
        """
        at: Indices = self.box(place)
        guards: tuple[Guard, ...] = ()
        while isinstance(factor.op, Reindex) and not self.storage.has_buffer(factor):
            if factor.op.map.lookups():
                break
            targets, own = map_at(factor.op.map, at, _looks_up)
            if own and factor.op.fill != 0:
                break
            factor, at, guards = factor.inputs[0], targets, (*guards, *own)
        return factor, at, guards

    def is_outside(self, factor: Node, place: dict[int, IndexExpr]) -> bool:
        """Whether guards make a factor zero at a position, whatever its buffer contains."""
        return any(guard.never for guard in self.behind_views(factor, place)[2])

    def right_is_shared(self) -> bool:
        """Whether several kernels read the right factor in the same way, without repetition."""
        contraction = self.kernel.contraction
        assert contraction is not None
        source = contraction.right
        while isinstance(source.op, Reindex):
            source = source.inputs[0]
        elements = math.prod((*self.batch, *self.columns, *self.depth))
        return self.values.uses.get(right_as_read(contraction), 0) > 1 and elements <= source.size

    def rows_are_neighbours(self) -> bool:
        """Whether the rows of the left factor are neighbours in memory."""
        strides = self.left_strides(0)
        return strides is not None and strides["r"] == 1

    def left_is_gathered(self) -> bool:
        """Whether the left factor is strided along both the rows and the depth."""
        strides = self.left_strides(0)
        return strides is not None and 1 not in strides.values()

    def left_strides(self, first: int) -> dict[str, int] | None:
        """The strides along the rows, and along the inner depth axes from `first` on.

        0 represents a stride that is not constant. None if the left factor is not a buffer.
        """
        found = self._strides_of(self.contraction.left, "r", first)
        return None if found is None or found[0] is not self.in_place else found[1]

    def right_strides(self) -> dict[str, int] | None:
        """The strides of the right factor, along the columns "c"; its dtype may be narrower."""
        found = self._strides_of(self.contraction.right, "c", 0)
        return None if found is None else found[1]

    def _strides_of(self, factor: Node, outer: str, first: int) -> _Strides | None:
        """The dtype in memory of a factor, and its strides."""
        key = factor, outer, first, self.contraction.depth
        if key not in self._known_strides:
            self._known_strides[key] = self._strides(factor, outer, first)
        return self._known_strides[key]

    def _strides(self, factor: Node, outer: str, first: int) -> _Strides | None:
        probe = Values(Lowering(self.kernel, self.storage, {}), self.values.uses)
        contraction = self.contraction
        extents = {
            "b": (contraction.batch, self.batch),
            "o": (contraction.depth[:first], self.depth[:first]),
            outer: (contraction.rows, self.rows)
            if outer == "r"
            else (contraction.columns, self.columns),
            "k": (contraction.depth[first:], self.depth[first:]),
        }
        place: dict[int, IndexExpr] = {}
        with contextlib.ExitStack() as loops:
            for name, (axes, sizes) in extents.items():
                variable = loops.enter_context(probe.loop(name, math.prod(sizes)))
                place.update(zip(axes, unravel_within(variable, sizes)))
            element = probe.element(factor, self.box(place))
        if element is None:
            return None
        strides = {outer: 0, "k": 0}
        nested: set[str] = set()
        for part, coefficient in element.offset.terms:
            if isinstance(part, ir.LoopIndex):
                if part.axis in strides:
                    strides[part.axis] = coefficient  # type: ignore[assignment]
            else:
                nested |= _axes_inside(part)
        return element.dtype, {axis: 0 if axis in nested else n for axis, n in strides.items()}

    def lower_empty(self) -> LoweredKernel:
        """An empty sum: the epilogue gets zeros."""
        values = self.values
        rows, columns = math.prod(self.rows), math.prod(self.columns)
        tasks = math.prod(self.batch) * rows
        with (
            values.loop("p", tasks, "parallel") as task,
            values.loop("n", columns, vector=True) as column,
        ):
            batch = index_expr.unravel(task // rows, self.batch)
            self.place = dict(zip(self.contraction.batch, batch))
            self.results((task % rows, rows), (column, columns), ir.Number(0, self.scalar))
        return self.finish("contraction", values.body, columns)

    def results(
        self, row: tuple[IndexExpr, int], column: tuple[IndexExpr, int], tile: ir.Expr
    ) -> None:
        """Stores one element of the tile through the epilogue; row and column have bounds."""
        place = dict(self.place)
        place.update(zip(self.contraction.rows, unravel_within(row[0], self.rows)))
        place.update(zip(self.contraction.columns, unravel_within(column[0], self.columns)))
        guards = tuple(guard for guard in (Within(*row), Within(*column)) if not guard.always)
        self.store(place, guards, tile)

    def store(self, place: dict[int, IndexExpr], guards: tuple[Guard, ...], total: ir.Expr) -> None:
        """Stores a sum at a position of the box through the epilogue, where the guards hold."""
        self.store_all([(place, total)], guards)

    def store_all(
        self, sums: Sequence[tuple[dict[int, IndexExpr], ir.Expr]], guards: tuple[Guard, ...] = ()
    ) -> None:
        """Stores sums at positions of the box through the epilogue, where the guards hold.

        It reads everything before it writes, so that a result may alias an operand.
        """
        conditions = self.values.conditions(guards)
        results = [x for place, total in sums for x in self._results_at(place, guards, total)]
        for root, at, value in results:
            if root not in self.kernel.private:
                self._store(root, at, value, conditions)

    def _results_at(
        self, place: dict[int, IndexExpr], guards: tuple[Guard, ...], total: ir.Expr
    ) -> list[tuple[Node, Indices, ir.Expr]]:
        """The values of all roots at a position, with their indices there."""
        values = self.values
        # Values stored at other positions are not read here.
        self.waiting.update(self.kernel.roots)
        if self.root.dtype is not self.scalar:
            total = ir.Apply("cast", (total,), self.root.dtype, self.scalar)
        name = values.fresh("t")
        values.emit(ir.Let(name, total))
        values.bind_reduced(self.root, name)
        box, results = self.box(place), []
        for root in self.kernel.roots:
            at = _substitute(self.kernel.indices_of(root), box)
            results.append((root, at, values.value(root, at, guards)))
        return results


def sum_type(dtype: DType) -> DType:
    """The dtype in which a contraction with results of a dtype sums."""
    return dtype if dtype in (dtypes.float64, dtypes.int32) else dtypes.float32


def unravel_within(position: IndexExpr, extents: Sequence[int]) -> tuple[IndexExpr, ...]:
    """The indices of a position that a guard keeps below the product of the extents.

    The outermost index needs no remainder then, so that one axis stays affine.
    """
    if not extents:
        return ()
    inner = index_expr.unravel(position, extents[1:])
    return (position // math.prod(extents[1:]), *inner)


def converted(value: ir.Expr, source: DType, target: DType) -> ir.Expr:
    """A value of a dtype in another one; what was made wider before is taken as it was."""
    if source is target:
        return value
    if isinstance(value, ir.Apply) and value.function == "cast" and value.operand_dtype is target:
        if target.compute is source:
            return value.operands[0]
    if isinstance(value, ir.Choose):
        one, other = (converted(x, source, target) for x in (value.value, value.otherwise))
        return ir.Choose(value.conditions, one, other, target)
    if isinstance(value, ir.Number) and value.value == 0:
        return ir.Number(0, target)
    return ir.Apply("cast", (value,), target, source)


def _looks_up(*_: object) -> IndexExpr:
    raise InternalError("a map without index operands looks something up")


def narrowest(factor: Node) -> DType:
    """The narrowest dtype that represents all elements of a factor."""
    while isinstance(factor.op, Reindex) and not factor.op.fill:
        factor = factor.inputs[0]
    source = widened(factor)
    return factor.dtype if source is None else source.dtype


def _axes_inside(factor: ir.Factor) -> set[str]:
    """The axes in a quotient or a remainder."""
    found: set[str] = set()
    for inner, _ in factor.dividend.terms:  # type: ignore[union-attr]
        found |= {inner.axis} if isinstance(inner, ir.LoopIndex) else set()
        if isinstance(inner, (ir.QuotientIndex, ir.RemainderIndex)):
            found |= _axes_inside(inner)
    return found


def _substitute(at: Iterable[IndexExpr] | None, box: Indices) -> Indices:
    assert at is not None
    return tuple(
        index.substitute(
            lambda atom: box[int(str(atom.name)[1:])] if isinstance(atom, Axis) else None
        )
        for index in at
    )
