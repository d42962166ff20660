"""Files of ranks that run one program: rank 0 writes them, the others write private copies."""

from __future__ import annotations

import builtins
import io
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

from metaop.dist.faults import call_at_exit

_WRITING = frozenset("wax+")
# Seconds to wait for rank 0 to create a folder, and between two checks.
_PATIENCE, _PAUSE = 10.0, 0.01


class _Written:
    """What this rank has written: maps each path to its copy, or to None for a file of rank 0."""

    def __init__(self) -> None:
        self.folder = ""
        self.copies: dict[str, str | None] = {}
        self.own_folders: list[str] = []
        self.together = False

    def is_shared(self, file: Any) -> bool:
        """Whether a path may be shared by all ranks; temporary folders belong to one rank."""
        if self.together or not isinstance(file, (str, bytes, os.PathLike)):
            return False
        path = _path(file)
        return path != os.devnull and not path.startswith(tuple(self.own_folders))

    def found(self, file: Any) -> Any:
        """The file to read for a path: its copy, if there is one."""
        return self.copies.get(_path(file)) or file

    def made(self, file: Any, keep: bool) -> str:
        """Makes the copy that is written instead of a file; `keep` copies the content first."""
        path = _path(file)
        copy = self.copies.get(path)
        if copy is None:
            copy = os.path.join(self.folder, str(len(os.listdir(self.folder))))
            if keep and os.path.exists(path):
                shutil.copyfile(path, copy)
            else:
                os.close(os.open(copy, os.O_CREAT))
            self.copies[path] = copy
        return copy


_written = _Written()


def leave_to_first(file: Any) -> None:
    """Notes that only rank 0 has written a file; renaming or removing it here affects that file."""
    if _written.folder:
        _written.copies[_path(file)] = None


@contextmanager
def written_together() -> Iterator[None]:
    """Suspends private copies: inside, each rank writes files of its own for all ranks to see."""
    before, _written.together = _written.together, True
    try:
        yield
    finally:
        _written.together = before


def keep_files_apart() -> None:
    """From now on, this process writes private copies of files, and reads them too.

    That applies to `open`, and to the names of such files in `os.replace`, `os.rename`,
    `os.remove` and `os.unlink`. For a folder, it waits until rank 0 has created it; temporary
    folders and files belong to this process alone.
    """
    if _written.folder:
        return
    _written.folder = tempfile.mkdtemp(prefix="metaop-rank-")
    call_at_exit(lambda: shutil.rmtree(_written.folder, ignore_errors=True))
    builtins.open = io.open = _opening(io.open)  # type: ignore[assignment]
    for name in ("replace", "rename"):
        setattr(os, name, _moving(getattr(os, name)))
    for name in ("remove", "unlink"):
        setattr(os, name, _removing(getattr(os, name)))
    os.mkdir = _making(os.mkdir)
    tempfile.mkdtemp = _owning(tempfile.mkdtemp)  # type: ignore[assignment]


def _path(file: Any) -> str:
    return os.path.abspath(os.fsdecode(file))


def _opening(opened: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(opened)
    def own(file: Any, mode: str = "r", *args: Any, **options: Any) -> Any:
        if options.get("opener") is not None or not _written.is_shared(file):
            return opened(file, mode, *args, **options)
        if not _WRITING & set(mode):
            return opened(_written.found(file), mode, *args, **options)
        if "x" in mode and _path(file) not in _written.copies:
            # Rank 0 may have created it by now.
            mode = mode.replace("x", "w")
        return opened(_written.made(file, "w" not in mode), mode, *args, **options)

    return own


def _moving(moved: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(moved)
    def own(source: Any, target: Any, **options: Any) -> None:
        if _path(source) in _written.copies:
            _written.copies[_path(target)] = _written.copies.pop(_path(source))
        else:
            moved(source, target, **options)

    return own


def _removing(removed: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(removed)
    def own(path: Any, **options: Any) -> None:
        if _path(path) not in _written.copies:
            removed(path, **options)
        elif (copy := _written.copies.pop(_path(path))) is not None:
            removed(copy)

    return own


def _making(made: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(made)
    def own(path: Any, *args: Any, **options: Any) -> None:
        """Creates folders on rank 0 for all ranks; raises an error if one already exists."""
        deadline = time.monotonic() + _PATIENCE
        while _written.is_shared(path) and time.monotonic() < deadline:
            if os.path.isdir(path):
                return
            time.sleep(_PAUSE)
        made(path, *args, **options)

    return own


def _owning(made: Callable[..., str]) -> Callable[..., str]:
    @wraps(made)
    def own(*args: Any, **options: Any) -> str:
        with written_together():
            folder = made(*args, **options)
        _written.own_folders.append(os.path.join(_path(folder), ""))
        return folder

    return own
