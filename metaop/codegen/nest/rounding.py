"""Which values of a nest round by themselves, rather than together with what is added to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from metaop.codegen.nest.ir import (
    Accumulate,
    Apply,
    CheckedIndex,
    Choose,
    Expr,
    Let,
    Name,
    Statement,
    Store,
    Update,
    parts_of,
    simple_statements,
)


def rounded_values(body: Iterable[Statement]) -> set[int]:
    """The identities of the applications that round by themselves.

    Those that are used more than once, by name or as they are: all their uses have to see the same
    number. `x - x.detach()` is 0, and what a program reads of a result that it keeps is what its
    other results were computed from. So of a product that is added to something only one that has
    no other use may be a part of a fused multiply-add.

    And two products of which a sum or difference is taken: `x * y - y * x` is 0, whichever way the
    products came about.
    """
    uses: Counter[int | str] = Counter()
    named: dict[str, Expr] = {}
    sums: list[Apply] = []
    seen: set[int] = set()
    for statement in simple_statements(body):
        if isinstance(statement, Let):
            named[statement.name] = statement.value
        if isinstance(statement, (Store, Update, Accumulate, Let, CheckedIndex)):
            uses.update(_referred((statement.value,)))
            for part in parts_of(statement.value, seen):
                uses.update(_referred(_operands(part)))
                if isinstance(part, Apply) and part.function in ("add", "sub"):
                    sums.append(part)
    shared = {value for value, count in uses.items() if count > 1}
    rounded = {value for value in shared if isinstance(value, int)}
    rounded.update(id(value) for name, value in named.items() if name in shared)
    for one in sums:
        products = [_product(operand, named) for operand in one.operands]
        if None not in products:
            rounded.update(map(id, products))
    return rounded


def _product(value: Expr, named: Mapping[str, Expr]) -> Apply | None:
    """The product that a value is, by any name and sign."""
    if isinstance(value, Name) and value.name in named:
        return _product(named[value.name], named)
    if not isinstance(value, Apply):
        return None
    if value.function == "neg":
        return _product(value.operands[0], named)
    return value if value.function in ("mul", "square") else None


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
