"""Jinja templates of Python code: converts the Python and keeps the tags."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable

from metaop.convert.converter import Conversion
from metaop.convert.tables import ROOTS

SUFFIXES = (".jinja", ".jinja2", ".j2")
# Whole lines of tags and comments, then those within a line, then expressions.
_LINES = re.compile(r"^[ \t]*(?:\{%.*?%\}|\{#.*?#\})[ \t]*$", re.DOTALL | re.MULTILINE)
_INNER = re.compile(r"\{\{.*?\}\}", re.DOTALL)


def is_of_code(text: str, packages: Iterable[str] = ()) -> bool:
    """Whether a template makes programs that import a converted package, or one of `packages`."""
    names = "|".join(map(re.escape, sorted({*ROOTS, *packages})))
    return re.search(rf"^\s*(?:import|from)\s+(?:{names})\b", text, re.MULTILINE) is not None


def convert_template(text: str, convert: Callable[[str], Conversion]) -> Conversion:
    """Converts the text of a template.

    For parsing, names replace its expressions and comments its tags. Raises `SyntaxError` if the
    rest is not Python.
    """
    kept: list[str] = []

    def name(match: re.Match[str]) -> str:
        kept.append(match[0])
        return f"_kept_{len(kept) - 1}_"

    def comment(match: re.Match[str]) -> str:
        kept.append(match[0])
        more = match[0].count("\n")
        return f"# _kept_{len(kept) - 1}_" + "\n# ." * more

    masked = _INNER.sub(name, _LINES.sub(comment, text))
    ast.parse(masked)
    conversion = convert(masked)
    result = conversion.text
    for number in reversed(range(len(kept))):
        whole = kept[number]
        lines = "\n# ." * whole.count("\n")
        result = result.replace(f"# _kept_{number}_{lines}", whole)
        result = result.replace(f"_kept_{number}_", whole)
    # `from {{module}} import *` names no package.
    findings = [one for one in conversion.findings if not re.match(r"_kept_\d+_", one.name)]
    return Conversion(result, findings)
