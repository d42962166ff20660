"""Documents generated from tables: settings and operators.

`./test tests/repository --update-golden` writes them to docs/; a test compares.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Sequence
from types import ModuleType

from metaop import settings
from metaop.elementwise import functions
from metaop.unified_graph.composite import Composite

_GENERATED = "<!-- Made from tables of the program: see metaop/inspect/documents.py. -->\n"


def settings_document() -> str:
    """docs/settings.md: every environment variable."""
    rows = [
        (
            f"`{setting.name}`",
            setting.type.__name__,
            f"`{setting.default}`" if setting.default else "none",
            setting.meaning,
        )
        for setting in settings.SETTINGS
    ]
    return (
        f"{_GENERATED}# Settings\n\n"
        "Environment variables, read when they are needed; `python -m metaop info` prints their "
        "current values.\n\n" + _table(("variable", "type", "default", "meaning"), rows)
    )


def operators_document() -> str:
    """docs/operators.md: the scalar functions, and the operators composed from the families."""
    parts = [
        f"{_GENERATED}# Operators\n",
        "## Scalar functions\n",
        "The rows of the elementwise table. Everything else that metaop knows about a function "
        "(reference, gradient, code) is in its row in `metaop/elementwise/tables/`.\n",
        _table(("function", "operands", "kinds", "gradient"), list(_function_rows())),
    ]
    for title, module in _operator_modules():
        rows = [(f"`{composite.name}`", _summary(composite.expansion)) for composite in module]
        parts.append(f"## {title}\n\n" + _table(("operator", "meaning"), rows))
    return "\n".join(parts)


def _function_rows() -> Iterator[tuple[str, ...]]:
    for name, row in functions.FUNCTIONS.items():
        kinds = ", ".join(row.accepts)
        yield f"`{name}`", str(row.arity), kinds, "none" if row.gradient is None else "yes"


def _operator_modules() -> Iterator[tuple[str, list[Composite]]]:
    """The title of each module of operators and the composites that it defines."""
    package = importlib.import_module("metaop.operators")
    for entry in sorted(pkgutil.walk_packages(package.__path__, "metaop.operators.")):
        module = importlib.import_module(entry.name)
        found = list(_composites(module))
        if found:
            yield _first_sentence(module.__doc__).rstrip("."), found


def _composites(module: ModuleType) -> Iterator[Composite]:
    for value in vars(module).values():
        if isinstance(value, Composite) and value.expansion.__module__ == module.__name__:
            if not value.name.startswith("_") and value.expansion.__doc__:
                yield value


def _summary(function: object) -> str:
    return _first_sentence(function.__doc__).replace("|", "\\|")


def _first_sentence(text: str | None) -> str:
    paragraph = " ".join((text or "").strip().split("\n\n")[0].split())
    end = paragraph.find(". ")
    return paragraph if end < 0 else paragraph[: end + 1]


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "".join("| " + " | ".join(cells) + " |\n" for cells in lines)
