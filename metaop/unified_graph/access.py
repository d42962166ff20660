"""Index maps with guards, and the access record from which every rule of the compiler is derived.

An `IndexMap` maps a point of an iteration box to an element of a tensor, where its guards hold.
`Access` collects the maps of one meta-operator: loop extents, one map per read, one for the write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, TypeGuard

from metaop.unified_graph import index_expr
from metaop.unified_graph.index_expr import Atom, Axis, IndexExpr, Lookup, Remainder
from metaop.unified_graph.interning import InternTable, never_equal_to_others
from metaop.unified_graph.symbolic import divides, surely_less

if TYPE_CHECKING:
    from metaop.unified_graph.node import Node


@never_equal_to_others
class Within(NamedTuple):
    """The condition `0 <= expr < extent`."""

    expr: IndexExpr
    extent: int

    @property
    def always(self) -> bool:
        return self.expr.is_within(self.extent)

    @property
    def never(self) -> bool:
        is_behind = surely_less(self.extent - 1, self.expr.low)
        return surely_less(self.expr.high, 0) or is_behind

    def __repr__(self) -> str:
        return f"0 <= {self.expr} < {self.extent}"


@never_equal_to_others
class Divisible(NamedTuple):
    """The condition `expr % divisor == 0`."""

    expr: IndexExpr
    divisor: int

    @property
    def always(self) -> bool:
        return (self.expr % self.divisor) is index_expr.constant(0)

    @property
    def never(self) -> bool:
        rest = self.expr % self.divisor
        return surely_less(0, rest.low)

    @property
    def reduced(self) -> Divisible:
        """The same condition without terms that are multiples of the divisor."""
        terms = [(a, c) for a, c in self.expr.terms if not divides(self.divisor, c)]
        return Divisible(IndexExpr(tuple(terms), self.expr.constant % self.divisor), self.divisor)

    def __repr__(self) -> str:
        return f"{self.expr} % {self.divisor} == 0"


Guard = Within | Divisible


def axis_range(guard: Guard) -> tuple[Axis, int, int] | None:
    """The axis that a guard restricts to a range, with start and stop; None for other guards."""
    terms = guard.expr.terms
    if not isinstance(guard, Within) or len(terms) != 1:
        return None
    (axis, sign) = terms[0]
    if not isinstance(axis, Axis) or abs(sign) != 1:
        return None
    offset = guard.expr.constant
    start = -offset if sign == 1 else offset - guard.extent + 1
    return axis, max(start, 0), min(start + guard.extent, axis.extent)


def _follows(atom: Atom, known: Set[Atom]) -> bool:
    """Whether a value is known, or all axes from which it is computed are."""
    if atom in known or isinstance(atom, Axis):
        return atom in known
    return all(x in known for x in index_expr.of(atom).atoms() if isinstance(x, Axis))


def _is_rotation(atom: Atom) -> TypeGuard[Remainder]:
    """Whether a remainder determines its dividend."""
    if not isinstance(atom, Remainder):
        return False
    return surely_less(atom.dividend.high - atom.dividend.low, atom.divisor)


@lru_cache(maxsize=1024)
def _axes(domain: tuple[int, ...]) -> tuple[IndexExpr, ...]:
    return tuple([index_expr.axis(k, extent) for k, extent in enumerate(domain)])


class IndexMap:
    """An interned map from the points of a box to the elements of a tensor, under guards.

    `domain` holds the extents of the box; axis k of the box is the atom `Axis(k, domain[k])`.
    `indices` has one expression per dimension of the tensor. All `guards` must hold for the map
    to be defined at a point; a map that is defined nowhere has `never` set.
    """

    __slots__ = ("domain", "indices", "guards", "never", "__weakref__")
    _table: InternTable[IndexMap] = InternTable()
    domain: tuple[int, ...]
    indices: tuple[IndexExpr, ...]
    guards: tuple[Guard, ...]
    never: bool

    def __new__(
        cls,
        domain: Iterable[int],
        indices: Iterable[IndexExpr],
        guards: Iterable[Guard] = (),
    ) -> IndexMap:
        kept: dict[Guard, None] = {}
        never = False
        for guard in guards:
            never = never or guard.never
            if isinstance(guard, Divisible):
                guard = guard.reduced
            if not guard.always:
                kept[guard] = None
        key = (tuple(domain), tuple(indices), tuple(kept), never)
        found = cls._table.get(key) or cls._table.revive(key)
        if found is None:
            new = object.__new__(cls)
            new.domain, new.indices, new.guards, new.never = key
            found = cls._table.add(key, new)
        return found

    def __reduce__(self) -> tuple:
        raise TypeError("index maps are interned; pickle the program, not its maps")

    @staticmethod
    def axes(domain: Sequence[int]) -> tuple[IndexExpr, ...]:
        """The axes of a box as expressions."""
        return _axes(tuple(domain))

    @staticmethod
    def identity(shape: Sequence[int]) -> IndexMap:
        """The map from a box onto a tensor of the same shape."""
        return IndexMap(shape, IndexMap.axes(shape))

    @property
    def is_injective(self) -> bool:
        """Whether it is certain that no two points map to one element, where the guards hold.

        An index whose terms are digits of a number determines them; a digit may contain others.
        """
        known: set[Atom] = set()
        indices = list(self.indices)
        count = -1
        while count < len(known):
            count = len(known)
            for index in tuple(indices):
                terms = [term for term in index.terms if not _follows(term[0], known)]
                if index_expr.are_digits(terms):
                    known.update(atom for atom, _ in terms)
                    indices += [atom.dividend for atom, _ in terms if _is_rotation(atom)]
        return all(extent == 1 or Axis(k, extent) in known for k, extent in enumerate(self.domain))

    @property
    def is_identity(self) -> bool:
        return not self.guards and not self.never and self.indices == self.axes(self.domain)

    @property
    def is_guarded(self) -> bool:
        return bool(self.guards) or self.never

    def lookups(self) -> list[Lookup]:
        """Every index-operand element that the map reads, each once, in order of appearance."""
        found: dict[Lookup, None] = {}
        for expr in (*self.indices, *(guard.expr for guard in self.guards)):
            for atom in expr.atoms():
                if isinstance(atom, Lookup):
                    found[atom] = None
        return list(found)

    def after(self, first: IndexMap, operand_offset: int = 0) -> IndexMap:
        """This map applied to the target of `first`: `x -> self(first(x))`.

        Index operands of this map are renumbered by `operand_offset`, because they follow those of
        `first` in the inputs of the composed node.
        """
        memo: dict[Atom, IndexExpr] = {}

        def replace(atom: Atom) -> IndexExpr | None:
            if isinstance(atom, Axis):
                return first.indices[atom.name]  # type: ignore[index]
            if isinstance(atom, Lookup):
                inside = [index_expr.substitute(e, replace, memo) for e in atom.indices]
                return index_expr.lookup(atom.operand + operand_offset, inside, atom.bound)
            return None

        indices, guards = self.substituted(replace, memo)
        return IndexMap(first.domain, indices, [*first.guards, *guards])

    def substituted(
        self, replace: Callable[[Atom], IndexExpr | None], memo: dict[Atom, IndexExpr] | None = None
    ) -> tuple[list[IndexExpr], list[Guard]]:
        """The indices and the guards with atoms replaced, as by `index_expr.substitute`.

        Those of a map that is defined nowhere include a guard that never holds.
        """
        memo = {} if memo is None else memo
        indices = [index_expr.substitute(expr, replace, memo) for expr in self.indices]
        guards: list[Guard] = [
            guard._replace(expr=index_expr.substitute(guard.expr, replace, memo))
            for guard in self.guards
        ]
        if self.never and not any(guard.never for guard in guards):
            guards.append(NEVER)
        return indices, guards

    def __repr__(self) -> str:
        axes = ", ".join(f"i{k}<{extent}" for k, extent in enumerate(self.domain))
        text = f"({axes}) -> ({', '.join(map(repr, self.indices))})"
        if self.never:
            return text + " never"
        if self.guards:
            text += " where " + " and ".join(map(repr, self.guards))
        return text


NEVER = Within(index_expr.constant(-1), 1)


@dataclass(frozen=True)
class Access:
    """How one meta-operator touches memory: the record behind gradients, fusion and sharding.

    `extents` is the iteration box, `reads` one map per data input, `write` the map of the result
    and `reducer` the name of the operation that combines writes to one element (None: no two
    points write the same element).
    """

    extents: tuple[int, ...]
    reads: tuple[IndexMap, ...]
    write: IndexMap
    reducer: str | None = None

    def __repr__(self) -> str:
        reads = "; ".join(map(repr, self.reads))
        combine = f" {self.reducer}" if self.reducer else ""
        return f"box {self.extents} reads [{reads}] writes{combine} [{self.write!r}]"


def access(node: Node) -> Access:
    """The access record of a meta-operator node."""
    return node.op.access(node)
