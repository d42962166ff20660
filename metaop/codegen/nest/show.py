"""Loop nests as stable, readable text."""

from __future__ import annotations

from metaop.codegen.nest.ir import (
    Accumulate,
    Alloc,
    CheckedIndex,
    For,
    Let,
    LoopNest,
    Prefetch,
    Statement,
    Store,
    Update,
)


def show_nest(nest: LoopNest) -> str:
    """The nest as stable, readable text."""
    roles = ", ".join(
        f"b{k}: {'streamed ' if p.streamed else ''}{p.role} {p.dtype.name}"
        for k, p in enumerate(nest.parameters)
    )
    lines = [f"kernel {nest.name}({roles}) arguments {list(nest.arguments)} grain {nest.grain}"]
    _show_body(nest.body, 1, lines)
    return "\n".join(lines) + "\n"


def _show_body(body: tuple[Statement, ...], depth: int, lines: list[str]) -> None:
    for statement in body:
        lines.append("  " * depth + show_statement(statement))
        if isinstance(statement, For):
            _show_body(statement.body, depth + 1, lines)


def show_statement(statement: Statement) -> str:
    """A statement as stable, readable text, without the body of a loop."""
    if isinstance(statement, For):
        vector = " vector" if statement.vector else ""
        carried = "".join(f" {a.name}={a.reducer}:{a.dtype.name}" for a in statement.accumulators)
        return f"{statement.kind}{vector} for {statement.axis} < {statement.extent}:{carried}"
    if isinstance(statement, Let):
        return f"{statement.name} = {statement.value!r}"
    if isinstance(statement, CheckedIndex):
        return f"{statement.name} = check({statement.value!r} < {statement.bound})"
    if isinstance(statement, Store):
        return f"b{statement.buffer}[{statement.offset!r}] = {statement.value!r}" + _when(statement)
    if isinstance(statement, Update):
        atomic = "atomic " if statement.atomic else ""
        target = f"b{statement.buffer}[{statement.offset!r}]"
        return f"{atomic}{target} {statement.reducer}= {statement.value!r}" + _when(statement)
    if isinstance(statement, Prefetch):
        return f"prefetch b{statement.buffer}[{statement.offset!r}]"
    if isinstance(statement, Accumulate):
        return f"{statement.name} <- {statement.value!r}"
    if isinstance(statement, Alloc):
        where = "" if statement.space == "scratch" else f" {statement.space}"
        elements = f"{statement.elements} x {statement.dtype.name}"
        return f"alloc{where} b{statement.buffer}: {elements}"
    return repr(statement)


def _when(statement: Store | Update) -> str:
    if not statement.conditions:
        return ""
    return " where " + " and ".join(map(repr, statement.conditions))
