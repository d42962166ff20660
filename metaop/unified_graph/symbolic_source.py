"""Python functions that compute numbers from the values of symbols."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from metaop.unified_graph.shape_env import ShapeEnv
from metaop.unified_graph.symbolic import SymFloat, SymInt, atom_text, bits_of, text_of


def value_at(value: SymInt, symbols: Sequence[float]) -> int:
    """The value of a number for values of the symbols."""
    found: int = function_of(source_of(value.env, [value], False))(*symbols)[0]
    return found


def source_of(env: ShapeEnv, values: Sequence[SymInt | int], guarded: bool = True) -> str:
    """A Python function that computes values from those of the symbols.

    If it is `guarded`, it returns None for symbols that the guards do not admit.
    """
    if any(type(value) is SymInt and value.env is not env for value in values):
        raise AssertionError("a number belongs to another program")
    names: dict[int, str] = {}
    lines: list[str] = []
    needed = _atoms_in([*values, *(guard.value for guard in env.guards if guarded)])
    for number, atom in enumerate(env.atoms):
        if number in needed and atom.operands and number not in env.running:
            lines.append(f"    a{number} = {atom_text(env, number, names)}")
            names[number] = f"a{number}"
    if guarded:
        lines += [f"    if not {guard.text(names)}: return None" for guard in env.guards]
    results = "".join(f"{text_of(value, names)}, " for value in values)
    arguments = ", ".join(str(symbol) for symbol in env.symbols)
    return "\n".join([f"def compute({arguments}):", *lines, f"    return ({results})"])


def _atoms_in(values: Sequence[Any]) -> set[int]:
    """The atoms that values depend on."""
    found: set[int] = set()
    stack = list(values)
    while stack:
        value = stack.pop()
        if isinstance(value, SymFloat):
            stack += value.operands
        elif isinstance(value, SymInt):
            fresh = {number for monomial, _ in value.terms for number in monomial} - found
            found |= fresh
            stack += (one for number in fresh for one in value.env.atoms[number].operands)
    return found


def function_of(source: str) -> Callable[..., Any]:
    """The function that `source_of` wrote."""
    scope: dict[str, Any] = {"ceil": math.ceil, "floor": math.floor, "max": max, "bits": bits_of}
    exec(compile(source, "<sizes>", "exec"), scope)
    return scope["compute"]  # type: ignore[no-any-return]
