"""Rewriting import statements."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import libcst as cst

from metaop.convert.catalogue import is_foreign, lookup
from metaop.convert.resolution import absent_path, bound_path, dotted, module_name, natural_path
from metaop.convert.source import Source

Span = Callable[[cst.CSTNode], tuple[int, int]]


@dataclass(frozen=True)
class ImportedName:
    """One name of a from-import: its new module, and its new name."""

    alias: cst.ImportAlias
    parent: str
    name: str


def convert_import(
    source: Source, span: Span, node: cst.Import, renames: Callable[[str], bool], guarded: bool
) -> list[tuple[cst.CSTNode, str]]:
    """Rewrites `import a.b as c`; returns the foreign names with their positions."""
    found: list[tuple[cst.CSTNode, str]] = []
    for alias in node.names:
        name = dotted(alias.name) or ""
        if not is_foreign(name):
            continue
        found.append((alias.name, name))
        if name.startswith("metaop"):
            continue
        path = natural_path(name) if guarded else bound_path(name)
        root = name.partition(".")[0]
        if alias.asname is None and not renames(root):
            path = f"{bound_path(root)} as {root}"
        source.replace(*span(alias.name), path)
    return found


def convert_from_import(
    source: Source, span: Span, node: cst.ImportFrom, guarded: bool
) -> list[tuple[cst.CSTNode, str]]:
    """Rewrites `from a import b as c, d`; returns the foreign names with their positions.

    Names that are in different modules now are imported by several statements on the same line.
    """
    module = module_name(node)
    if node.module is None or node.relative or not is_foreign(module):
        return []
    if isinstance(node.names, cst.ImportStar):
        path = natural_path(module) if guarded else bound_path(module)
        source.replace(*span(node.module), path)
        return [(node.module, module)]
    names = [_placed(alias, module, guarded) for alias in node.names]
    found: list[tuple[cst.CSTNode, str]] = [
        (alias.name, f"{module}.{dotted(alias.name)}") for alias in node.names
    ]
    if module.startswith("metaop"):
        return found
    parents = [name.parent for name in names]
    main = max(parents, key=parents.count)
    source.replace(*span(node.module), main)
    for name in names:
        if name.parent == main and dotted(name.alias.name) != name.name:
            source.replace(*span(name.alias), _import_text(name))
    others = [name for name in names if name.parent != main]
    if others:
        _move(source, span, node, names, others)
    return found


def _placed(alias: cst.ImportAlias, module: str, guarded: bool) -> ImportedName:
    name = dotted(alias.name) or ""
    target = lookup(f"{module}.{name}")
    path = target.path
    if path is None:
        # A missing name must not separate the names that exist from their import statement.
        path = natural_path(target.name) if guarded else absent_path(target.name)
    parent, _, last = path.rpartition(".")
    return ImportedName(alias, parent, last)


def _import_text(name: ImportedName) -> str:
    alias = name.alias
    bound = dotted(alias.name if alias.asname is None else alias.asname.name)
    return name.name if name.name == bound else f"{name.name} as {bound}"


def _move(
    source: Source,
    span: Span,
    node: cst.ImportFrom,
    names: list[ImportedName],
    others: list[ImportedName],
) -> None:
    """Removes names from the list and imports them in statements after it."""
    if node.lpar is None:
        start, end = span(names[0].alias)[0], span(names[-1].alias)[1]
        stretch = source.text[start:end]
        for edit in [edit for edit in source.edits if start <= edit.start < end]:
            source.edits.remove(edit)
        kept = ", ".join(_import_text(name) for name in names if name not in others)
        source.replace(start, end, kept + " \\\n" * stretch.count("\n"))
    else:
        for name in others:
            start, end = span(name.alias)
            comma = source.text.find(",", end)
            between = source.text[end:comma]
            source.replace(start, comma + 1 if comma > 0 and not between.strip() else end, "")
    groups: dict[str, list[str]] = {}
    for name in others:
        groups.setdefault(name.parent, []).append(_import_text(name))
    statements = [f"; from {parent} import {', '.join(texts)}" for parent, texts in groups.items()]
    end = span(node)[1]
    source.replace(end, end, "".join(statements))
