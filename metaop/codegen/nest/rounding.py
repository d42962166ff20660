"""Which values of a nest round by themselves, rather than together with what is added to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from metaop.codegen.nest.ir import (
    Accumulate,
    Apply,
    CheckedIndex,
    Choose,
    Expr,
    For,
    Let,
    Name,
    Statement,
    Store,
    Update,
    parts_of,
)


def rounded_values(body: Iterable[Statement]) -> set[int]:
    """The identities of the applications that are used more than once, by name or as they are.

    All their uses have to see the same number: `x - x.detach()` is 0, and what a program reads of a
    result that it keeps is what its other results were computed from. So of a product that is added
    to something only one that has no other use may be a part of a fused multiply-add.
    """
    uses: Counter[int | str] = Counter()
    lets: list[Let] = []
    seen: set[int] = set()
    for statement in _simple(body):
        if isinstance(statement, Let):
            lets.append(statement)
        if isinstance(statement, (Store, Update, Accumulate, Let, CheckedIndex)):
            uses.update(_referred((statement.value,)))
            for part in parts_of(statement.value, seen):
                uses.update(_referred(_operands(part)))
    shared = {value for value, count in uses.items() if count > 1}
    named = {id(let.value) for let in lets if let.name in shared}
    return named | {value for value in shared if isinstance(value, int)}


def _referred(values: Iterable[Expr]) -> Iterator[int | str]:
    for value in values:
        if isinstance(value, Apply):
            yield id(value)
        elif isinstance(value, Name):
            yield value.name


def _operands(expr: Expr) -> tuple[Expr, ...]:
    if isinstance(expr, Apply):
        return expr.operands
    return (expr.value, expr.otherwise) if isinstance(expr, Choose) else ()


def _simple(body: Iterable[Statement]) -> Iterator[Statement]:
    for statement in body:
        if isinstance(statement, For):
            yield from _simple(statement.body)
        else:
            yield statement
