"""What the modules of a project pass on to each other, as in `from layers import *`."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
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


def passed_on(programs: Iterable[Path]) -> set[str]:
    """The packages whose name modules take from other modules: `from layers import torch`."""
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


def neighbours_of(root: Path, file: Path, exports: Exports) -> Mapping[str, str]:
    """What a file can import from its project, under absolute and relative module names."""
    package = list(file.relative_to(root).parts[:-1])
    names: dict[str, str] = {}
    for module, exported in exports.items():
        for spelled in _spellings(module, package, root.resolve().name):
            names.update({f"{spelled}.{local}": name for local, name in exported.items()})
    return names


def _spellings(module: str, package: list[str], root: str) -> list[str]:
    """How a file in `package` may write the name of a module of its project."""
    spelled = [module, f"{root}.{module}" if module else root]
    parts = module.split(".") if module else []
    for level in range(1, len(package) + 2):
        base = package[: len(package) - level + 1]
        if parts[: len(base)] == base:
            spelled.append("." * level + ".".join(parts[len(base) :]))
    if package and parts[: len(package)] == package:
        spelled.append(".".join(parts[len(package) :]))
    return [name for name in spelled if name]
