"""Every access of a nest: which elements, by which task, at which time.

Indices are evaluated for all iterations at once, as NumPy arrays with one axis per enclosing loop.
An access has two times: as if lanes ran one after another, and as if all lanes of a vector loop ran
in parallel. What is correct in both orders is correct with every vector width.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from functools import cached_property
from typing import NamedTuple

import numpy as np

from metaop.codegen.nest import ir

# Nests with more accesses than this are only checked in the first and last iterations of loops.
MOST_ACCESSES = 1 << 20
_SAMPLED = 4
# The number of values, between 0 and its bound, at which a data-dependent integer is tried.
_TRIED = 9
# The task number of statements before the parallel loop.
NO_TASK = -1

Integers = np.ndarray


class Order(NamedTuple):
    """Times of an access, in units that count the phases of all statements that ran before."""

    serial: Integers
    lanes: Integers


class Survey(NamedTuple):
    """All accesses of a nest, and whether they are all: a large nest is sampled."""

    accesses: list[Access]
    scratch: dict[int, int]
    is_complete: bool


class _Data(NamedTuple):
    """An integer that depends on data, from 0 on below `bound`."""

    bound: int

    def at(self, share: float) -> Integers:
        """The value at a fraction of the way from the least to the greatest."""
        return np.asarray(round(max(self.bound - 1, 0) * share), np.int64)


Value = Integers | _Data


class _Place(NamedTuple):
    """Where a statement stands, over all iterations of the loops around it.

    `indices` are those of the loops, `names` the integers that are bound, `serial` and `lanes` the
    times at which the body around it begins, `after` the phases from there to the statement; side
    by side, each takes `scale`. `mask` tells in which iterations the statement runs at all. `tried`
    says where integers that depend on data are tried.
    """

    indices: Mapping[str, Integers]
    names: Mapping[str, Value]
    serial: Integers
    lanes: Integers
    scale: int
    mask: Integers | None
    is_exact: bool = True
    tried: float = 0.0
    after: int = 0


class _FreeInteger(Exception):
    """A user's kernel computes an index from data without a bound."""


class Access:
    """One load, store or panel of a statement, over all iterations of the loops around it.

    `offsets`, `tasks` and both times are flat, with one entry per accessed element. `is_exact` is
    false if an index depends on data: `offsets` then has a few possible ones.
    `kind` is "read", "write" or "update".
    """

    def __init__(
        self,
        at: tuple[int, str, Integers],
        task: Integers | None,
        place: _Place,
        shape: tuple[int, ...],
        statement: ir.Statement,
    ) -> None:
        self.buffer, self.kind, offsets = at
        self.statement, self.is_exact = statement, place.is_exact
        self._task, self._place, self._shape = task, place, shape
        mask = place.mask
        self._chosen = None if mask is None else np.broadcast_to(mask, shape).reshape(-1)
        self.offsets = self._flat(offsets)

    # Most reads are of operands, which no time and no task matters for.

    @cached_property
    def tasks(self) -> Integers:
        """The number of the task of each access; NO_TASK before all tasks."""
        return self._flat(np.full((), NO_TASK) if self._task is None else self._task)

    @cached_property
    def times(self) -> Order:
        """When each access happens."""
        place = self._place
        after = place.after + int(self.kind != "read")
        serial, lanes = place.serial + after, place.lanes + after * place.scale
        return Order(self._flat(serial), self._flat(lanes))

    def part(self, own: np.ndarray) -> Access:
        """The accesses of some elements, which flags choose."""
        found = copy(self)
        found.offsets, found.tasks = self.offsets[own], self.tasks[own]
        found.times = Order(*(now[own] for now in self.times))
        return found

    def _flat(self, array: Integers) -> Integers:
        found = np.empty(self._shape, np.int64)
        found[...] = array
        flat = found.reshape(-1)
        return flat if self._chosen is None else flat[self._chosen]


def survey(nest: ir.LoopNest) -> Survey:
    """The accesses of a nest to its parameters and its scratch memory; none if one is unbounded."""
    try:
        return _Surveyor(nest).run()
    except _FreeInteger:
        return Survey([], {}, False)


class _Surveyor:
    def __init__(self, nest: ir.LoopNest) -> None:
        self.nest = nest
        self.found: list[Access] = []
        self.scratch: dict[int, int] = {}
        total = _count(nest.body, nest)
        self.is_complete = total <= MOST_ACCESSES
        self.depth = 0
        self.task_axis = _task_axis(nest)

    def run(self) -> Survey:
        zero = np.zeros((), np.int64)
        start = _Place({}, {}, zero, zero, 1, None)
        self._body(self.nest.body, start)
        return Survey(self.found, self.scratch, self.is_complete)

    # --- integers -----------------------------------------------------------------------------

    def _integer(self, value: ir.Integer) -> int:
        return self.nest.arguments[value.position] if isinstance(value, ir.Argument) else value

    def _index(self, total: ir.Sum, place: _Place) -> Integers:
        """The values of an index, in all iterations."""
        result: Integers = np.asarray(self._integer(total.constant), np.int64)
        for factor, coefficient in total.terms:
            result = result + self._factor(factor, place) * self._integer(coefficient)
        return result

    def _factor(self, factor: ir.Factor, place: _Place) -> Integers:
        if isinstance(factor, ir.LoopIndex):
            return place.indices[factor.axis]
        if isinstance(factor, ir.ValueIndex):
            value = _integer_named(factor.name, place)
            return value if isinstance(value, np.ndarray) else value.at(place.tried)
        dividend = self._index(factor.dividend, place)
        divisor = self._integer(factor.divisor)
        if isinstance(factor, ir.QuotientIndex):
            return dividend // divisor
        return dividend % divisor

    def _depends_on_data(self, total: ir.Sum, place: _Place) -> bool:
        for factor, _ in total.terms:
            if isinstance(factor, (ir.QuotientIndex, ir.RemainderIndex)):
                if self._depends_on_data(factor.dividend, place):
                    return True
            elif isinstance(factor, ir.ValueIndex):
                if not isinstance(_integer_named(factor.name, place), np.ndarray):
                    return True
        return False

    def _within(self, conditions: Iterable[ir.Condition], place: _Place) -> _Place:
        """The place, restricted to the iterations in which conditions hold."""
        mask = place.mask
        for condition in conditions:
            index = self._index(condition.index, place)  # type: ignore[arg-type]
            if isinstance(condition, ir.InBounds):
                holds = (index >= 0) & (index < self._integer(condition.extent))
            else:
                holds = index % self._integer(condition.divisor) == 0
            mask = holds if mask is None else mask & holds
        return place._replace(mask=mask)

    # --- statements ---------------------------------------------------------------------------

    def _body(self, statements: Sequence[ir.Statement], place: _Place) -> None:
        names = dict(place.names)
        place = place._replace(names=names)
        elapsed = 0
        for group in _groups(statements):
            here = place._replace(after=elapsed)
            if isinstance(group[0], ir.For):
                self._loop(group[0], here)
            else:
                for statement in group:
                    self._statement(statement, here, names)
            elapsed += _span(group[0], self.nest)

    def _loop(self, loop: ir.For, place: _Place) -> None:
        mask, exact = place.mask, place.is_exact
        if isinstance(loop.extent, ir.ValueIndex):
            bound = _integer_named(loop.extent.name, place)
            if isinstance(bound, _Data):
                extent, exact, ends = max(bound.bound - 1, 0), False, None
            else:
                extent, ends = int(bound.max(initial=0)), bound
        else:
            extent, ends = self._integer(loop.extent), None
        steps = np.arange(extent, dtype=np.int64)
        if not self.is_complete and extent > _SAMPLED:
            steps = np.array([0, 1, extent - 2, extent - 1], np.int64)

        # One more axis, after those of the enclosing loops.
        def widened(array: Integers) -> Integers:
            return array[..., None] if array.ndim else array

        self.depth += 1
        index = steps.reshape((1,) * (self.depth - 1) + (-1,))
        if ends is not None:
            inside = index < widened(ends)
            mask = inside if mask is None else widened(mask) & inside
        elif mask is not None:
            mask = widened(mask)
        names = {
            name: value if isinstance(value, _Data) else widened(value)
            for name, value in place.names.items()
        }
        span = sum(_span(group[0], self.nest) for group in _groups(loop.body))
        serial = widened(place.serial) + (index * span + place.after)
        lanes, scale = widened(place.lanes) + place.after * place.scale, place.scale
        if loop.vector:
            lanes, scale = lanes + index, scale * max(extent, 1)
        else:
            lanes = lanes + index * (span * scale)
        indices = {axis: widened(value) for axis, value in place.indices.items()}
        indices[loop.axis] = index
        inner = _Place(indices, names, serial, lanes, scale, mask, exact, place.tried)
        self._body(loop.body, inner)
        self.depth -= 1

    def _statement(self, statement: ir.Statement, place: _Place, names: dict[str, Value]) -> None:
        if isinstance(statement, ir.Alloc):
            self.scratch[statement.buffer] = self._integer(statement.elements)
        elif isinstance(statement, ir.Let):
            if (value := self._value(statement.value, place)) is not None:
                names[statement.name] = value
            self._reads(statement.value, (), place, statement)
        elif isinstance(statement, ir.CheckedIndex):
            names[statement.name] = _Data(self._integer(statement.bound))
            self._reads(statement.value, statement.conditions, place, statement)
        elif isinstance(statement, (ir.Store, ir.Update)):
            self._reads(statement.value, statement.conditions, place, statement)
            kind = "update" if isinstance(statement, ir.Update) else "write"
            at = statement.buffer, kind, statement.offset
            self._touch(at, statement.conditions, place, statement)
        elif isinstance(statement, ir.Accumulate):
            self._reads(statement.value, (), place, statement)
        elif isinstance(statement, ir.MicroKernel):
            self._micro_kernel(statement, place)
        elif isinstance(statement, ir.WarpProduct):
            self._warp_product(statement, place)

    def _value(self, expr: ir.Expr, place: _Place) -> Value | None:
        """The values of an index, or of the least or the greatest of two that are known."""
        if isinstance(expr, ir.IndexValue):
            return self._bound(expr.index, place)
        if not isinstance(expr, ir.Apply) or expr.function not in ("minimum", "maximum"):
            return None
        first, second = (self._value(one, place) for one in expr.operands)
        if not isinstance(first, np.ndarray) or not isinstance(second, np.ndarray):
            return None
        found: Integers = (np.minimum if expr.function == "minimum" else np.maximum)(first, second)
        return found

    def _bound(self, index: ir.Sum, place: _Place) -> Value:
        if not self._depends_on_data(index, place):
            return self._index(index, place)
        ends = (self._index(index, place._replace(tried=end)) for end in (0.0, 1.0))
        return _Data(max(int(end.max(initial=0)) for end in ends) + 1)

    def _reads(
        self,
        expr: ir.Expr,
        conditions: tuple[ir.Condition, ...],
        place: _Place,
        statement: ir.Statement,
    ) -> None:
        for part in ir.parts_of(expr):
            if isinstance(part, ir.Load):
                at = part.buffer, "read", part.offset
                self._touch(at, (*conditions, *part.conditions), place, statement)

    def _touch(
        self,
        at: tuple[int, str, ir.Sum],
        conditions: Sequence[ir.Condition],
        place: _Place,
        statement: ir.Statement,
    ) -> None:
        """Records the accesses at an offset where conditions hold.

        A read that depends on data counts as a read.
        """
        buffer, kind, offset = at
        of_data = [one for one in conditions if self._depends_on_data(one.index, place)]  # type: ignore
        is_known = not self._depends_on_data(offset, place)
        if is_known and kind == "read":
            conditions = [one for one in conditions if one not in of_data]
        if is_known and (kind == "read" or not of_data):
            inside = self._within(conditions, place)
            self._note(buffer, kind, self._index(offset, place), inside, statement)
            return
        for tried in np.linspace(0.0, 1.0, _TRIED):
            inside = self._within(conditions, place._replace(tried=tried, is_exact=False))
            self._note(buffer, kind, self._index(offset, inside), inside, statement)

    def _note(
        self,
        buffer: int,
        kind: str,
        offsets: Integers,
        place: _Place,
        statement: ir.Statement,
    ) -> None:
        shape = np.broadcast(offsets, place.serial, place.lanes, *place.indices.values()).shape
        task = place.indices.get(self.task_axis)
        access = Access((buffer, kind, offsets), task, place, shape, statement)
        if access.offsets.size:
            self.found.append(access)

    def _micro_kernel(self, kernel: ir.MicroKernel, place: _Place) -> None:
        depth = self._index(kernel.depth, place)
        steps = int(depth.max(initial=0))
        stride = kernel.left_stride
        left = (
            (("k", steps, kernel.left_pitch), ("r", kernel.rows, 1))
            if stride is None
            else (("r", kernel.rows, self._integer(stride)), ("k", steps * kernel.step, 1))
        )
        right = (("k", steps * kernel.packed_steps, kernel.columns), ("c", kernel.columns, 1))
        target = (
            ("r", kernel.rows, self._integer(kernel.target_stride)),
            ("c", kernel.columns, 1),
        )
        before = self._index(kernel.accumulate, place) != 0
        added = place._replace(mask=before if place.mask is None else place.mask & before)
        depths = depth * kernel.step, depth * kernel.packed_steps
        if stride is None:
            depths = depth, depths[1]
        self._panel(kernel.left, "read", kernel.left_offset, left, place, kernel, depths[0])
        self._panel(kernel.right, "read", kernel.right_offset, right, place, kernel, depths[1])
        self._panel(kernel.target, "read", kernel.target_offset, target, added, kernel)
        self._panel(kernel.target, "write", kernel.target_offset, target, place, kernel)

    def _warp_product(self, product: ir.WarpProduct, place: _Place) -> None:
        for panel, side in ((product.left, product.rows), (product.right, product.columns)):
            # Whole lines: which of their chunks are read differs from line to line.
            lines = side if panel.along else ir.WARP_STEPS
            extents = (("l", lines, panel.length), ("e", panel.length, 1))
            self._panel(panel.buffer, "read", panel.offset, extents, place, product)
        sums = (("s", product.rows * product.columns // ir.WARP, 1),)
        for kind in ("read", "write"):
            self._panel(product.target, kind, ir.Sum((), 0), sums, place, product)

    def _panel(
        self,
        buffer: int,
        kind: str,
        offset: ir.Sum,
        extents: Sequence[tuple[str, int, int]],
        place: _Place,
        statement: ir.Statement,
        depth: Integers | None = None,
    ) -> None:
        """The elements of a panel whose axes have these names, extents and strides.

        Of the axis "k" it has as many as `depth` tells for each iteration.
        """
        inside = number = np.zeros((), np.int64)
        for name, extent, stride in extents:
            steps = np.arange(extent, dtype=np.int64)
            if not self.is_complete and extent > _SAMPLED:
                steps = np.array([0, extent - 1], np.int64)
            inside = inside[..., None] + steps * stride
            number = steps if name == "k" else number[..., None]
        if depth is not None and depth.ndim:
            taken = number < _behind(depth, inside)
            mask = taken if place.mask is None else taken & _behind(place.mask, inside)
        else:
            mask = place.mask if place.mask is None else _behind(place.mask, inside)
        start = self._index(offset, place)
        widened = place._replace(
            indices={axis: _behind(value, inside) for axis, value in place.indices.items()},
            serial=_behind(place.serial, inside),
            lanes=_behind(place.lanes, inside),
            mask=mask,
        )
        offsets = _behind(start, inside) + inside
        self._note(buffer, kind, offsets, widened, statement)


def _integer_named(name: str, place: _Place) -> Value:
    if name not in place.names:
        raise _FreeInteger(name)
    return place.names[name]


def _behind(array: Integers, inside: Integers) -> Integers:
    """An array over loops with axes of extent 1 for those of a panel behind them."""
    return array.reshape(array.shape + (1,) * inside.ndim) if array.ndim else array


def _groups(statements: Sequence[ir.Statement]) -> Iterator[list[ir.Statement]]:
    """Statements one by one; neighbouring stores together, whose values are all computed first."""
    group: list[ir.Statement] = []
    for statement in statements:
        if group and not (isinstance(statement, ir.Store) and isinstance(group[-1], ir.Store)):
            yield group
            group = []
        group.append(statement)
    if group:
        yield group


def _span(statement: ir.Statement, nest: ir.LoopNest) -> int:
    """The number of phases of a statement: to read and to write, in every iteration."""
    if not isinstance(statement, ir.For):
        return 2
    inside = sum(_span(group[0], nest) for group in _groups(statement.body))
    return max(_extent(statement, nest), 1) * inside


def _extent(loop: ir.For, nest: ir.LoopNest) -> int:
    extent = loop.extent
    if isinstance(extent, ir.Argument):
        return nest.arguments[extent.position]
    return extent if isinstance(extent, int) else 1 << 10


def _count(statements: Sequence[ir.Statement], nest: ir.LoopNest) -> int:
    """The approximate number of elements that the statements access."""
    total = 0
    for statement in statements:
        if isinstance(statement, ir.For):
            total += _extent(statement, nest) * _count(statement.body, nest)
        elif isinstance(statement, ir.MicroKernel):
            depth = statement.depth.constant
            depth = depth if isinstance(depth, int) else nest.arguments[depth.position]
            rows, columns = statement.rows, statement.columns
            total += (rows + columns) * depth * statement.step + 2 * rows * columns
        else:
            total += 2
    return total


def _task_axis(nest: ir.LoopNest) -> str:
    last = nest.body[-1] if nest.body else None
    return last.axis if isinstance(last, ir.For) and last.kind == "parallel" else ""
