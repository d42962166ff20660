"""Files, folders and notebooks: reads, converts and writes them atomically."""

from __future__ import annotations

import io
import os
import shutil
import tempfile
import tokenize
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from tqdm import tqdm

from metaop.convert import template
from metaop.convert.converter import Conversion, convert_source
from metaop.convert.findings import FileReport
from metaop.convert.notebook import convert_notebook
from metaop.convert.project import (
    Neighbours,
    asks_for_packages,
    local_packages,
    module_names,
    passed_on,
    scan_project,
)
from metaop.convert.renaming import Renaming
from metaop.convert.surroundings import names_around, neighbours_of

_SUFFIXES = (".py", ".pyi", ".ipynb")
_SKIPPED = frozenset((".git", ".hg", ".svn", "__pycache__", "node_modules", ".ipynb_checkpoints"))
# A process more takes a second to start, and converts about three files in it.
_FILES_PER_PROCESS = 6


def convert_path(
    path: Path, out: Path | None = None, *, write: bool = True, processes: int = 1
) -> list[FileReport]:
    """Converts a file or a folder; without `out` the files are replaced.

    With `out`, a folder is copied whole, other files included. If a package (a folder with an
    `__init__.py`) gets another name there, it imports itself by the new name, so both can be used
    side by side. `write=False` only reports. `processes` share a large folder; they start anew, so
    a script that asks for several must guard its main part. Raises `FileNotFoundError` if the path
    does not exist.
    """
    if not path.exists():
        raise FileNotFoundError(f"no such file or folder: {path}")
    if path.is_file():
        target = path if out is None else (out / path.name if out.is_dir() else out)
        return [convert_file(path, target, _file_converter(path), write=write)]
    files = sorted(_files_below(path, out))
    project = _Project(path, out, write, [file for file in files if file.suffix in _SUFFIXES])
    # The largest first, so that no process is left with one at the end.
    order = sorted(files, key=lambda file: -file.stat().st_size)
    with _mapping(min(processes, len(files) // _FILES_PER_PROCESS)) as run:
        done = run(project.convert, order)
        shown = tqdm(done, "convert", len(order), unit="file", leave=False, disable=None)
        reports = dict(zip(order, shown))
    return [reports[file] for file in files if reports[file] is not None]


@contextmanager
def _mapping(processes: int) -> Iterator[Callable[..., Iterable[Any]]]:
    """`map`, or one that shares the work out among processes."""
    if processes < 2:
        yield map
        return
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        yield partial(pool.map, chunksize=2)


def _file_converter(path: Path) -> Callable[[str], Conversion]:
    """The conversion for a single file."""
    known = sorted({path.stem, *names_around(path)})

    def convert(text: str) -> Conversion:
        return convert_source(text, local_packages=known, neighbours=neighbours_of(path, text))

    return convert


class _Project:
    """A folder, where it is written, and what the conversion of a file must know of the others."""

    def __init__(self, path: Path, out: Path | None, write: bool, programs: list[Path]) -> None:
        self._path, self._out, self._write = path, out, write
        modules = [file for file in programs if file.suffix == ".py"]
        self._exports = scan_project(path, modules)
        self._converted = partial(
            convert_source,
            local_packages=[*local_packages(path, programs), *names_around(path)],
            kept=passed_on(modules),
            renaming=_renaming(path, out, modules),
            asks=asks_for_packages(modules),
        )

    def convert(self, file: Path) -> FileReport | None:
        """Converts a program, and copies any other file; None for a file that is no program."""
        target = file if self._out is None else self._out / file.relative_to(self._path)
        if file.suffix in _SUFFIXES or _is_template(file, self._path):
            neighbours = Neighbours(self._path, file, self._exports)
            converted = partial(self._converted, neighbours=neighbours)
            return convert_file(file, target, converted, write=self._write)
        if self._write and target != file:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file, target)
        return None


def _renaming(path: Path, out: Path | None, modules: list[Path]) -> Renaming | None:
    """The new name of a package whose folder gets another name, if it does."""
    old = path.resolve().name
    if out is None or not (path / "__init__.py").is_file():
        return None
    new = out.resolve().name
    if new == old or not new.isidentifier():
        return None
    return Renaming(old, new, module_names(path.resolve(), [file.resolve() for file in modules]))


def convert_stream(content: bytes, name: str = "<stdin>") -> tuple[bytes, FileReport]:
    """Converts the content of a stream; content that cannot be parsed stays as it is."""
    report = FileReport(name)
    try:
        text, encoding = decode(content)
        conversion = convert_source(text)
    except (SyntaxError, UnicodeError) as error:
        report.error = str(error)
        return content, report
    report.findings = conversion.findings
    result = conversion.text.encode(encoding)
    report.changed = result != content
    report.texts = (text, conversion.text)
    return result, report


def _files_below(path: Path, out: Path | None) -> Iterator[Path]:
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(
            name
            for name in folders
            if name not in _SKIPPED and (out is None or (Path(folder) / name) != out)
        )
        for name in names:
            file = Path(folder) / name
            if file.is_file():
                yield file


def convert_file(
    path: Path,
    target: Path,
    convert: Callable[[str], Conversion],
    *,
    write: bool = True,
) -> FileReport:
    """Converts one file; a file that cannot be parsed is left alone and reported."""
    report = FileReport(str(path))
    try:
        content = path.read_bytes()
        text, encoding = decode(content)
        conversion = _convert_text(path, text, convert, report)
        result = conversion.text.encode(encoding)
    except (SyntaxError, UnicodeError, OSError) as error:
        report.error = str(error)
        result = content if path.is_file() and "content" in locals() else b""
    report.changed = result != content
    if report.changed and not write:
        report.texts = (text, conversion.text)
    if write and (report.changed or target != path):
        write_atomically(target, result, path)
    return report


def _is_template(file: Path, project: Path) -> bool:
    """Whether a file is a template of programs that use PyTorch or the project."""
    if file.suffix not in template.SUFFIXES:
        return False
    text = file.read_text(errors="replace")
    return template.is_of_code(text, [project.resolve().name])


def _convert_text(
    path: Path, text: str, convert: Callable[[str], Conversion], report: FileReport
) -> Conversion:
    if path.suffix in template.SUFFIXES:
        conversion = template.convert_template(text, convert)
        report.findings = conversion.findings
        return conversion
    if path.suffix != ".ipynb":
        conversion = convert(text)
        report.findings = conversion.findings
        return conversion
    conversion, cells = convert_notebook(text, convert)
    report.findings = [
        replace(finding, name=f"{finding.name} (cell {cell})")
        for finding, cell in zip(conversion.findings, cells)
    ]
    return conversion


def decode(content: bytes) -> tuple[str, str]:
    """The text of a program with unchanged line ends, and its declared encoding."""
    encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
    return content.decode(encoding), encoding


def write_atomically(target: Path, content: bytes, like: Path) -> None:
    """Writes a file beside the target and renames it; it gets the permissions of `like`."""
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        shutil.copymode(like, name)
        os.replace(name, target)
    except BaseException:
        os.unlink(name)
        raise
