"""The modules around a file or a folder that is converted alone, which it may import."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from metaop.convert.project import Neighbours, scan_project

_PROJECT_FILES = ("pyproject.toml", "setup.py", "setup.cfg", ".git")
# Folders of installed packages, which belong to no project.
_INSTALLED = ("site-packages", "dist-packages")


def names_around(path: Path) -> list[str]:
    """The top-level names by which a file or a folder can import the modules around it.

    These are the modules beside it, beside the package that it belongs to, and in the folder of
    its project (the nearest with a `pyproject.toml`, `setup.py`, `setup.cfg` or `.git`) or `src`.
    """
    path = path.resolve()
    folders = [path.parent, import_root(path)]
    project = next((one for one in path.parents if _is_project(one)), None)
    if project is not None:
        folders += [project, project / "src"]
    return sorted({name for folder in dict.fromkeys(folders) for name in _modules_in(folder)})


def import_root(path: Path) -> Path:
    """The folder that holds the package of a file, or the file itself if it is in none."""
    folder = path.parent
    while (folder / "__init__.py").is_file() and folder.parent != folder:
        folder = folder.parent
    return folder


def neighbours_of(file: Path, text: str) -> Neighbours:
    """The foreign names that a file can import from the modules around it."""
    file = file.resolve()
    root = import_root(file)
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        tree = ast.Module([], [])
    package = file.parent.relative_to(root).parts
    modules = {module for module in _imported_modules(tree, package) if module}
    places = (root.joinpath(*module) for module in sorted(modules))
    files = (file for place in places for file in (place / "__init__.py", Path(f"{place}.py")))
    paths = [path for path in files if path.is_file()]
    return Neighbours(root, file, scan_project(root, paths))


def _imported_modules(tree: ast.Module, package: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """The modules that a program may import, by their names below the root."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (tuple(alias.name.split(".")) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            named = tuple(node.module.split(".")) if node.module else ()
            base = package[: len(package) - node.level + 1] if node.level else ()
            yield (*base, *named)
            yield from ((*base, *named, alias.name) for alias in node.names)


def _is_project(folder: Path) -> bool:
    return any((folder / name).exists() for name in _PROJECT_FILES)


def _modules_in(folder: Path) -> Iterable[str]:
    if folder.name in _INSTALLED or not folder.is_dir():
        return
    with os.scandir(folder) as entries:
        for entry in entries:
            name, end = os.path.splitext(entry.name)
            if end == ".py" or (name == entry.name and entry.is_dir() and _has_modules(entry.path)):
                yield name


def _has_modules(folder: str) -> bool:
    try:
        with os.scandir(folder) as entries:
            return any(entry.name.endswith(".py") for entry in entries)
    except OSError:
        return False
