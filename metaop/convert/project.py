"""Foreign names that the modules of a project import from each other (`from layers import *`)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from metaop.convert.catalogue import is_foreign
from metaop.convert.tables import ROOTS

Exports = dict[str, dict[str, str]]


def local_packages(root: Path, programs: Iterable[Path]) -> list[str]:
    """The top-level names under which a project imports its own modules."""
    names = {root.resolve().name}
    for program in programs:
        names.add(program.stem)
        names.update(program.relative_to(root).parts[:-1])
    return sorted(names)


def scan_project(root: Path, programs: Iterable[Path]) -> Exports:
    """The foreign names that each module imports: {"layers": {"nn": "torch.nn"}}."""
    exports: Exports = {}
    for program in programs:
        try:
            tree = ast.parse(program.read_bytes())
        except (SyntaxError, ValueError):
            continue
        names: dict[str, str] = {}
        for statement in tree.body:
            names.update(_imported(statement))
        exports[_module_of(root, program)] = names
    return exports


def asks_for_packages(programs: Iterable[Path]) -> bool:
    """Whether a module looks PyTorch up by a string: `is_installed("torch")`."""
    texts = [re.compile(rf"""\(\s*["']{re.escape(root)}["']""") for root in ROOTS]
    for program in programs:
        text = program.read_text(errors="replace")
        if any(one.search(text) for one in texts):
            return True
    return False


def passed_on(programs: Iterable[Path]) -> set[str]:
    """The packages that modules import from other modules: `from layers import torch`."""
    names: set[str] = set()
    for program in programs:
        try:
            tree = ast.parse(program.read_bytes())
        except (SyntaxError, ValueError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute):
                names.add(node.attr)
            elif isinstance(node, ast.ImportFrom) and not is_foreign(node.module or ""):
                names.update(alias.name for alias in node.names)
    return names.intersection(ROOTS)


def module_names(root: Path, programs: Iterable[Path]) -> set[str]:
    """The dotted names of the modules of a package, and of their folders."""
    names = {root.name}
    for program in programs:
        parts = [part for part in _module_of(root, program).split(".") if part]
        names.update(".".join([root.name, *parts[:count]]) for count in range(len(parts) + 1))
    return names


def _imported(statement: ast.stmt) -> dict[str, str]:
    if isinstance(statement, ast.Import):
        pairs = {
            alias.asname or alias.name.partition(".")[0]: alias.name
            if alias.asname
            else alias.name.partition(".")[0]
            for alias in statement.names
        }
    elif isinstance(statement, ast.ImportFrom) and not statement.level and statement.module:
        module = statement.module
        pairs = {alias.asname or alias.name: f"{module}.{alias.name}" for alias in statement.names}
    else:
        return {}
    return {local: name for local, name in pairs.items() if is_foreign(name) and local != "*"}


def _module_of(root: Path, program: Path) -> str:
    parts = list(program.relative_to(root).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


class Neighbours(Mapping[str, str]):
    """The foreign names that a file can import from its project: {".layers.nn": "torch.nn"}.

    Module names are absolute or relative, as the file may write them.
    """

    def __init__(self, root: Path, file: Path, exports: Exports) -> None:
        self._root = root.resolve().name
        self._package = list(file.relative_to(root).parts[:-1])
        self._itself = ".".join([*self._package, file.stem])
        self.exports = exports

    def __getitem__(self, name: str) -> str:
        module, _, local = name.rpartition(".")
        for known in self._meant(module):
            if local in self.exports.get(known, {}):
                return self.exports[known][local]
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        for module, exported in self.exports.items():
            yield from (f"{module}.{local}" if module else local for local in exported)

    def __len__(self) -> int:
        return sum(map(len, self.exports.values()))

    def _meant(self, module: str) -> list[str]:
        """The modules of the project that a module name may refer to in this file."""
        inner = module.lstrip(".")
        level = len(module) - len(inner)
        if level:
            if level > len(self._package) + 1:
                return []
            base = self._package[: len(self._package) - level + 1]
            return [".".join([*base, inner] if inner else base)]
        # A file that imports its own name means another package, which it may be about.
        beside = ".".join([*self._package, inner])
        names = [inner] if beside == self._itself else [inner, beside]
        if inner == self._root or inner.startswith(f"{self._root}."):
            names.append(inner[len(self._root) + 1 :])
        return names
