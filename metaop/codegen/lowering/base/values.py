"""Values inside a kernel: nodes at index expressions become loop-nest expressions.

Statements go to the outermost loop body in which all their axes are known, so loop invariants are
computed before their loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from metaop.codegen.lowering.base.checks import checked_index, refuse
from metaop.codegen.nest import ir
from metaop.codegen.nest.builder import Guards, NestBuilder
from metaop.elementwise.meta_op import Elementwise
from metaop.errors import InternalError
from metaop.fusion.inline import map_at, widened
from metaop.fusion.kernel import Indices
from metaop.reindex.meta_op import Reindex
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph import index_expr
from metaop.unified_graph.access import NEVER, Guard, Within
from metaop.unified_graph.index_expr import (
    Atom,
    Axis,
    IndexExpr,
    Quotient,
    Remainder,
    Symbol,
)
from metaop.unified_graph.node import Constant, Index, Node
from metaop.unified_graph.symbolic import is_symbolic, maximum, surely_less

# Deeper expressions are bound to a name.
_DEEPEST = 12
# Lanes at most this far apart are read in whole vectors.
_STRIDES = range(2, ir.LONGEST_STRIDE + 1)


class Buffers(Protocol):
    """The questions that `Values` has about buffers."""

    def is_read(self, node: Node) -> bool:
        """Whether the node is read from a buffer; it is inlined otherwise."""

    def number_of(self, node: Node) -> int | None:
        """The number of the buffer of a node; None if the node is inlined."""

    def offset_of(self, node: Node, at: Indices) -> IndexExpr:
        """The offset of an element of the node in that buffer."""


class Element(NamedTuple):
    """What is read of a buffer: a node at indices where guards hold, else `fill`."""

    node: Node
    at: Indices
    guards: Guards = ()
    fill: int | float | bool = 0


@dataclass
class Carried:
    """A value kept in scratch memory from one pass over a row to the next."""

    scratch: int
    at: Indices
    offset: IndexExpr
    is_stored: bool = False


class Values(NestBuilder):
    """Makes expressions of nodes, within a stack of open loop bodies.

    `buffers` numbers those of the kernel; `uses` counts the readers of every node.
    """

    def __init__(self, buffers: Buffers, uses: dict[Node, int]) -> None:
        super().__init__()
        self.buffers = buffers
        self.uses = uses
        # Results of reductions of this kernel, once their loops are closed, and the open body in
        # which each is bound: what is computed from one stays inside of that body.
        self.reduced: dict[Node, ir.Name] = {}
        self._depth_of_reduced: dict[Node, int] = {}
        self._floors: dict[Node, int] = {}
        # Expensive values that later passes over the row read from scratch memory.
        self.carried: dict[Node, Carried] = {}
        # The body in which a checked index was bound.
        self.depth_of_name: dict[str, int] = {}
        # Bodies outside these loops run once for many iterations, so they bind values.
        self.inner_loops: frozenset[str] = frozenset()
        self.offsets: list[IndexExpr] = []
        # The buffers that are read, and those of the offsets at which they are.
        self.reads: list[tuple[int, IndexExpr]] = []
        # The places of all elements that are read; those in scratch memory, and where there.
        self.elements: dict[Element, IndexExpr] = {}
        self.staged: dict[Element, tuple[int, IndexExpr]] = {}
        # Axes that are expressions of the indices of open loops.
        self.coordinates: dict[str, IndexExpr] = {}
        # The loads to which names are bound.
        self.loaded: dict[str, ir.Load] = {}
        # The offsets at which results are written.
        self.targets: list[IndexExpr] = []
        self._names = 0
        self._depths: dict[int, int] = {}
        self._sums: dict[IndexExpr, ir.Sum] = {}

    @property
    def places(self) -> list[IndexExpr]:
        """The offsets at which buffers are read."""
        return [place for _, place in self.reads]

    # --- names ------------------------------------------------------------------------------

    def bind_index(self, name: str, index: ir.Sum, high: int) -> IndexExpr:
        """An index between 0 and `high`, bound to a name in the innermost body."""
        self.emit(ir.Let(name, ir.IndexValue(index)))
        self.depth_of_name[name] = len(self.scopes) - 1
        return index_expr.symbol(name, 0, high)

    def bind_between(
        self,
        name: str,
        indices: Sequence[IndexExpr],
        ends: tuple[int, int],
        function: str = "minimum",
    ) -> IndexExpr:
        """The least or the greatest of some indices, kept between two ends, bound to a name."""

        def joined(function: str, first: ir.Expr, index: IndexExpr) -> ir.Expr:
            operands = first, ir.IndexValue(self.sum(index))
            return ir.Apply(function, operands, dtypes.int64, dtypes.int64)

        value: ir.Expr = ir.IndexValue(self.sum(indices[0]))
        for index in indices[1:]:
            value = joined(function, value, index)
        for bound, end in zip(("maximum", "minimum"), ends):
            value = joined(bound, value, index_expr.constant(end))
        self.emit(ir.Let(name, value))
        self.depth_of_name[name] = len(self.scopes) - 1
        return index_expr.symbol(name, *ends)

    def bind_reduced(self, node: Node, name: str) -> ir.Name:
        """Binds the result of a reduction to `name` in the innermost body, from now on."""
        self.reduced[node] = ir.Name(name, node.dtype)
        self._depth_of_reduced[node] = len(self.scopes) - 1
        self._floors.clear()
        return self.reduced[node]

    def fresh(self, prefix: str) -> str:
        """A new name."""
        self._names += 1
        return f"{prefix}{self._names}"

    # --- indices ----------------------------------------------------------------------------

    def sum(self, expr: IndexExpr) -> ir.Sum:
        """An index expression as an index of the loop-nest language."""
        expr = self._in_loops(expr)
        found = self._sums.get(expr)
        if found is None:
            self.offsets.append(expr)
            found = self._sums[expr] = self._convert(expr)
        return found

    def _in_loops(self, expr: IndexExpr) -> IndexExpr:
        """An index expression with coordinates replaced by the indices of loops."""
        if not self.coordinates:
            return expr
        return expr.substitute(
            lambda atom: self.coordinates.get(str(atom.name)) if isinstance(atom, Axis) else None
        )

    def _convert(self, expr: IndexExpr) -> ir.Sum:
        terms, constant = [], expr.constant
        for atom, value in expr.terms:
            factor, less = self._factor(atom)
            terms.append((factor, value))
            constant -= less * value
        return ir.Sum(tuple(terms), constant)

    def _factor(self, atom: Atom) -> tuple[ir.Factor, int]:
        """An atom as a factor, and by how much that factor is too large."""
        if isinstance(atom, Axis):
            return ir.LoopIndex(str(atom.name)), 0
        if isinstance(atom, Symbol):
            return ir.ValueIndex(atom.name), 0
        if isinstance(atom, (Quotient, Remainder)):
            # Dividends of the loop-nest language are never negative.
            raised = maximum([-(atom.dividend.low // atom.divisor), 0])
            dividend = self._convert(atom.dividend + raised * atom.divisor)
            if isinstance(atom, Quotient):
                return ir.QuotientIndex(dividend, atom.divisor), raised
            return ir.RemainderIndex(dividend, atom.divisor), 0
        raise InternalError(f"an index operand that was not resolved: {atom!r}")

    def conditions(self, guards: Iterable[Guard]) -> tuple[ir.Condition, ...]:
        """Guards as conditions of the loop-nest language."""
        return tuple(
            ir.InBounds(self.sum(guard.expr), guard.extent)
            if isinstance(guard, Within)
            else ir.MultipleOf(self.sum(guard.expr), guard.divisor)
            for guard in guards
        )

    def _depth(self, exprs: Iterable[IndexExpr]) -> int:
        """The innermost open body whose axis (or bound value) one of the expressions needs."""
        atoms = {atom for expr in exprs for atom in self._in_loops(expr).atoms()}
        names = {str(atom.name) for atom in atoms if isinstance(atom, Axis)}
        bound = [self.depth_of_name.get(x.name, 0) for x in atoms if isinstance(x, Symbol)]
        depth = len(self.scopes) - 1
        while depth and self.scopes[depth].axis not in names:
            depth -= 1
        return max([depth, *bound])

    def depth_of(self, node: Node, at: Indices, guards: Guards) -> int:
        """The number of the outermost open body in which a node can be computed."""
        depth = self._depth((*at, *(guard.expr for guard in guards)))
        return max(depth, self._floor(node))

    def _floor(self, node: Node) -> int:
        """The innermost open body that binds a reduction on which the node depends."""
        if node in self.reduced:
            return self._depth_of_reduced[node]
        if not self.reduced or self.buffers.is_read(node):
            return 0
        found = self._floors.get(node)
        if found is None:
            found = self._floors[node] = max(map(self._floor, node.inputs), default=0)
        return found

    # --- values -----------------------------------------------------------------------------

    def value(self, node: Node, at: Indices, guards: Guards = ()) -> ir.Expr:
        """The value of `node` at indices `at`; only needed and only safe where `guards` hold."""
        if node in self.reduced:
            return self.reduced[node]
        place = (node, at, guards)
        for scope in reversed(self.scopes):
            found = scope.known.get(place)
            if found is not None:
                return found
        depth = self.depth_of(node, at, guards)
        inner, self.scopes = self.scopes, self.scopes[: depth + 1]
        hoisted = len(inner) > len(self.scopes)
        result = self._compute(node, at, guards)
        if isinstance(node.op, Elementwise) and (
            hoisted
            or self._is_outer()
            or self.uses.get(node, 0) > 1
            or self._height(result) > _DEEPEST
        ):
            result = self._bind(result, node)
        self.scopes[-1].known[place] = result
        self.scopes = inner
        return result

    def _is_outer(self) -> bool:
        return bool(self.inner_loops) and self.scopes[-1].axis not in self.inner_loops

    def _bind(self, value: ir.Expr, node: Node) -> ir.Expr:
        if isinstance(value, (ir.Name, ir.Number)):
            return value
        name = self.fresh("v")
        if isinstance(value, ir.Load):
            self.loaded[name] = value
        self.emit(ir.Let(name, value))
        return ir.Name(name, node.dtype)

    def _height(self, expr: ir.Expr) -> int:
        if not isinstance(expr, (ir.Apply, ir.Choose)):
            return 0
        found = self._depths.get(id(expr))
        if found is None:
            parts = expr.operands if isinstance(expr, ir.Apply) else (expr.value, expr.otherwise)
            found = 1 + max((self._height(part) for part in parts), default=0)
            self._depths[id(expr)] = found
        return found

    def _compute(self, node: Node, at: Indices, guards: Guards) -> ir.Expr:
        carried = self.carried.get(node)
        if carried is None or at != carried.at or guards:
            return self._evaluate(node, at, guards)
        if not carried.is_stored:
            value = self._bind(self._evaluate(node, at, guards), node)
            self.emit(ir.Store(carried.scratch, self.sum(carried.offset), value))
            carried.is_stored = True
            return value
        return ir.Load(carried.scratch, self.sum(carried.offset), node.dtype)

    def _evaluate(self, node: Node, at: Indices, guards: Guards) -> ir.Expr:
        number = self.buffers.number_of(node)
        if number is not None:
            return self.load(Element(node, at, guards if _may_leave(node, at) else ()))
        op = node.op
        if isinstance(op, Constant):
            value = op.value(node.dtype)
            return ir.Number(value if op.is_symbolic else value.item(), node.dtype)
        if isinstance(op, Index):
            place = _at(op.expr, at)
            if place.is_constant and not is_symbolic(place.constant):
                return ir.Number(place.constant, node.dtype)
            return ir.IndexValue(self.sum(place))
        if isinstance(op, Elementwise):
            operands = tuple(self.value(source, at, guards) for source in node.inputs)
            refusal = op.refusal(node.inputs)
            if refusal is not None and node.size:
                refuse(self, node.inputs[refusal.position], refusal, at, guards)
            operand_dtype = node.inputs[-1].dtype if node.inputs else node.dtype
            first = operands[0] if operands else None
            if op.function.name == "cast" and isinstance(first, ir.Number):
                if first.dtype.kind == node.dtype.kind == "int":
                    return first._replace(dtype=node.dtype)
            return ir.Apply(op.function.name, operands, node.dtype, operand_dtype)
        if isinstance(op, Reindex):
            return self._reindexed(op, node, at, guards)
        raise InternalError(f"{node!r} cannot be computed inside a kernel")

    def _reindexed(self, op: Reindex, node: Node, at: Indices, guards: Guards) -> ir.Expr:
        source = node.inputs[0]
        targets, own = map_at(
            op.map,
            at,
            lambda atom, inside, own: checked_index(
                self, node.inputs[atom.operand], atom, inside, _together(guards, own)
            ),
        )
        if not source.size:
            # Every index is out of range, so there is nothing to read.
            return ir.Number(op.fill, node.dtype)
        if not own:
            return self.value(source, targets, guards)
        every = _together(guards, own)
        if any(guard.never for guard in (*own, *every)):
            return ir.Number(op.fill, node.dtype)
        number = self.buffers.number_of(source)
        if number is not None and source not in self.reduced:
            return self.load(Element(source, targets, every, op.fill))
        inner = self.value(source, targets, every)
        return ir.Choose(self.conditions(own), inner, ir.Number(op.fill, node.dtype), node.dtype)

    def load(self, element: Element) -> ir.Load:
        """An element of a node that has a buffer."""
        node, at, guards, fill = element
        if element in self.staged:
            scratch, at_scratch = self.staged[element]
            return ir.Load(scratch, self.sum(at_scratch), node.dtype)
        number = self.buffers.number_of(node)
        assert number is not None
        place = self.buffers.offset_of(node, at)
        self.reads.append((number, place))
        self.elements[element] = place
        offset = self.sum(place)
        around = _around(node, at) if _has_strides(place) else (0, 0)
        return ir.Load(number, offset, node.dtype, self.conditions(guards), fill, around)

    def prefetch(
        self,
        reads: Iterable[tuple[int, IndexExpr]],
        loop: str,
        ahead: int = 0,
        steps: int = 1,
        nearest: bool = False,
    ) -> None:
        """Prefetches what some reads will need some steps of a loop, or some elements, later.

        Otherwise memory would be idle during long computations.
        """

        def move(atom: Atom) -> IndexExpr | None:
            is_loop = isinstance(atom, Axis) and atom.name == loop
            return index_expr.of(atom) + steps if is_loop else None

        axes = [scope.axis for scope in self.scopes]
        if loop not in axes:
            return
        level = axes.index(loop)
        for number, place in reads:
            following = place.substitute(move)
            symbols = (atom.name for atom in place.atoms() if isinstance(atom, Symbol))
            is_known = all(self.depth_of_name.get(name, 0) < level for name in symbols)
            if following != place and is_known:
                self.emit(ir.Prefetch(number, self.sum(following + ahead), nearest))

    def element(self, node: Node, at: Indices) -> ir.Load | None:
        """The load that gives `node` at indices `at`; None if it is computed, or read under guards.

        It may have a narrower dtype than the node, with the same values.
        """
        number = self.buffers.number_of(node)
        if number is not None:
            return self.load(Element(node, at))
        source = widened(node)
        if source is not None:
            return self.element(source, at)
        if not isinstance(node.op, Reindex) or len(node.inputs) > 1:
            return None
        targets, guards = map_at(node.op.map, at, lambda atom, inside, own: index_expr.of(atom))
        return None if guards else self.element(node.inputs[0], targets)


def _together(outer: Guards, inner: Guards) -> Guards:
    """Guards that all hold; of several ranges of one expression, only where they meet."""
    found: dict[object, Guard] = {}
    for guard in (*outer, *inner):
        key = guard.expr.terms if _is_plain_range(guard) else guard
        found[key] = _meeting(found[key], guard) if key in found else guard
    return tuple(found.values())


def _is_plain_range(guard: Guard) -> bool:
    if not isinstance(guard, Within):
        return False
    return not is_symbolic(guard.extent) and not is_symbolic(guard.expr.constant)


def _meeting(one: Guard, other: Guard) -> Guard:
    """Where two ranges meet of expressions that differ in their constants."""
    if one == other or not isinstance(one, Within) or not isinstance(other, Within):
        return one
    first = max(-one.expr.constant, -other.expr.constant)
    end = min(one.extent - one.expr.constant, other.extent - other.expr.constant)
    if end <= first:
        return NEVER
    return Within(one.expr - one.expr.constant - first, end - first)


def _at(expr: IndexExpr, at: Indices) -> IndexExpr:
    return expr.substitute(lambda atom: at[atom.name] if isinstance(atom, Axis) else None)  # type: ignore


def _has_strides(place: IndexExpr) -> bool:
    """Whether neighbours may have a stride that whole vectors read."""
    return any(type(c) is int and c in _STRIDES for _, c in place.terms)


def _around(node: Node, at: Indices) -> tuple[int, int]:
    """How many elements of the node precede and follow all those that are read at `at`.

    Nothing outside the node is read. As many as separate neighbouring lanes suffice.
    """
    first = [index_expr.constant(maximum([index.low, 0])) for index in at]
    last = [index_expr.constant(-maximum([-x.high, 1 - n])) for x, n in zip(at, node.shape)]
    before = index_expr.linear_offset(first, node.shape).constant
    behind = node.size - 1 - index_expr.linear_offset(last, node.shape).constant
    return _surely(before), _surely(behind)


def _surely(count: int) -> int:
    """How many of the elements that could matter provably exist."""
    if not is_symbolic(count):
        return min(count, ir.LONGEST_STRIDE - 1)
    return next((n for n in range(ir.LONGEST_STRIDE - 1, 0, -1) if surely_less(n - 1, count)), 0)


def _may_leave(node: Node, at: Indices) -> bool:
    return any(not index.is_within(extent) for index, extent in zip(at, node.shape))
