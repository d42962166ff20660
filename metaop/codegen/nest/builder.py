"""A builder of loop nests: a loop is a `with` block, its body is what the block emits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from metaop.codegen.nest import ir
from metaop.fusion.kernel import Indices
from metaop.unified_graph import index_expr
from metaop.unified_graph.access import Guard
from metaop.unified_graph.index_expr import Axis, IndexExpr
from metaop.unified_graph.node import Node

Guards = tuple[Guard, ...]
Place = tuple[Node, Indices, Guards]


class RuntimeExtent(NamedTuple):
    """An extent known only at run time, and its largest value."""

    value: ir.ValueIndex
    most: int


Extent = int | RuntimeExtent


@dataclass
class Scope:
    """One loop body under construction: its statements and the values known in it."""

    axis: str | None
    statements: list[ir.Statement] = field(default_factory=list)
    known: dict[Place, ir.Expr] = field(default_factory=dict)


class NestBuilder:
    """Builds a loop nest from the outside to the inside, with a stack of open bodies.

    An exception inside a loop leaves the nest unusable.
    """

    def __init__(self) -> None:
        self.scopes: list[Scope] = [Scope(None)]

    @contextmanager
    def loop(
        self,
        axis: str,
        extent: Extent,
        kind: str = "serial",
        *,
        accumulators: Iterable[ir.Accumulator] = (),
        vector: bool = False,
        literal: bool = False,
        counted: bool = False,
    ) -> Iterator[IndexExpr]:
        """A loop around what the block emits; yields its index.

        `accumulators` may be a list that the block fills. The index is 0 if the extent is 1; of a
        loop that is `counted`, it has a place in every sum even then, so that symbolic sizes get no
        guard that tells a single iteration from several. The other arguments are those of `For`.
        """
        count, most = extent if isinstance(extent, RuntimeExtent) else (extent, extent)
        index = index_expr.of(Axis(axis, most)) if counted else index_expr.axis(axis, most)
        self.scopes.append(Scope(axis))
        yield index
        body, sums = tuple(self.scopes.pop().statements), tuple(accumulators)
        self.emit(ir.For(axis, count, kind, body, sums, vector, literal))

    @contextmanager
    def before_loop(self) -> Iterator[None]:
        """A scope that emits into the body around the innermost loop, before that loop."""
        inner = self.scopes.pop()
        yield
        self.scopes.append(inner)

    @property
    def body(self) -> tuple[ir.Statement, ...]:
        """The statements of the nest, once all loops are complete."""
        (scope,) = self.scopes
        return tuple(scope.statements)

    def emit(self, statement: ir.Statement) -> None:
        """Appends a statement to the innermost body."""
        self.scopes[-1].statements.append(statement)
