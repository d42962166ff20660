"""A package that is converted into a folder with another name: renames its own modules."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass

import libcst as cst

from metaop.convert.resolution import dotted
from metaop.convert.source import Source

Span = Callable[[cst.CSTNode], tuple[int, int]]
_DOTTED = re.compile(r"[A-Za-z_]\w*(\.\w+)*\.?")


@dataclass(frozen=True)
class Renaming:
    """Renames the package `old` to `new`; `modules` are the dotted names of it and its modules."""

    old: str
    new: str
    modules: Collection[str]

    def covers(self, name: str) -> bool:
        """Whether a dotted name is in the package."""
        return name == self.old or name.startswith(f"{self.old}.")

    def renamed(self, name: str) -> str:
        """The new form of a dotted name in the package."""
        return self.new + name[len(self.old) :]

    def text(self, text: str) -> str:
        """The new form of a string that names a module of the package, or a name in one.

        The bare name of the package stays, because it may be that of its distribution or logger.
        """
        if not text.startswith(f"{self.old}.") or not _DOTTED.fullmatch(text):
            return text
        whole, parent = text.rstrip("."), text.rpartition(".")[0]
        known = whole in self.modules or (parent != self.old and parent in self.modules)
        return self.renamed(text) if known else text


def rename_import(source: Source, span: Span, node: cst.Import, renaming: Renaming) -> None:
    """`import package.part` → `import new as package, new.part`: the local name stays."""
    for alias in node.names:
        name = dotted(alias.name) or ""
        if not renaming.covers(name):
            continue
        text = renaming.renamed(name)
        if alias.asname is None:
            whole = f"{renaming.new} as {renaming.old}"
            text = whole if name == renaming.old else f"{whole}, {text}"
        source.replace(*span(alias.name), text)


def rename_from_import(source: Source, span: Span, node: cst.ImportFrom, new: Renaming) -> None:
    """`from package.part import name` → `from new.part import name`."""
    name = dotted(node.module) or ""
    if node.module is not None and not node.relative and new.covers(name):
        source.replace(*span(node.module), new.renamed(name))


def rename_string(source: Source, span: Span, node: cst.SimpleString, renaming: Renaming) -> bool:
    """Rewrites a string that names one of the package's modules; returns whether it does."""
    text = renaming.text(node.raw_value)
    if text == node.raw_value:
        return False
    start, end = span(node)
    quote = len(node.quote)
    source.replace(start + len(node.prefix) + quote, end - quote, text)
    return True


def rename_formatted(
    source: Source, span: Span, node: cst.FormattedString, renaming: Renaming
) -> None:
    """Rewrites `f"package.part.{name}"`, if it starts with the name of one of the modules."""
    first = node.parts[0] if node.parts else None
    if isinstance(first, cst.FormattedStringText) and first.value.endswith("."):
        text = renaming.text(first.value)
        if text != first.value:
            source.replace(*span(first), text)
