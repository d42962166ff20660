"""The models of a server: where their files are, and which versions are loaded."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from metaop.errors import ArgumentError, MetaopError
from metaop.export.program import load_program
from metaop.serving.model import Model
from metaop.serving.refusal import Refusal

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,99}\Z")
_SOURCE = re.compile(r"(?:(?P<name>[^:=/]+)(?::(?P<version>\d+))?=)?(?P<path>.+)\Z", re.DOTALL)


class State(NamedTuple):
    """The index entry of a version."""

    name: str
    version: str
    state: str
    reason: str


class Repository:
    """Models by name and version. A request that names no version gets the highest one.

    `sources` are files, `NAME=FILE`, `NAME:VERSION=FILE`, and folders with `NAME/VERSION/any.mo`.
    Nothing else is ever opened, whatever clients request.
    """

    def __init__(self, sources: Sequence[str], most_rows: int) -> None:
        self._most_rows = most_rows
        self._folders: list[Path] = []
        self._files: dict[str, dict[str, Path]] = {}
        self._loaded: dict[str, dict[str, Model]] = {}
        self._failed: dict[tuple[str, str], str] = {}
        for source in sources:
            self._add(source)

    def names(self) -> list[str]:
        """The models that have files, loaded or not."""
        found = dict.fromkeys(self._files)
        for folder in self._folders:
            inside = sorted(one.name for one in folder.iterdir() if one.is_dir())
            found.update(dict.fromkeys(inside))
        return [name for name in found if _NAME.match(name)]

    def load(self, name: str) -> None:
        """Reads all versions of a model again, and replaces the loaded ones once all are read.

        Raises Refusal (404) for an unknown name and (400) for files that cannot be read; then the
        previously loaded versions stay.
        """
        files = self._versions(name)
        if not files:
            raise Refusal(404, f"there is no model {name[:100]!r} to load")
        models = {}
        for version, path in files.items():
            try:
                models[version] = self._model(name, version, path)
            except (MetaopError, OSError) as error:
                reason = str(error).split("\n", 1)[0]
                self._failed[name, version] = reason
                raise Refusal(400, f"version {version} of {name!r}: {reason}") from None
            self._failed.pop((name, version), None)
        self._loaded[name] = models

    def unload(self, name: str) -> None:
        """Unloads a model; pending requests are still answered. Raises Refusal (404)."""
        if self._loaded.pop(name, None) is None:
            raise Refusal(404, f"no model {name[:100]!r} is loaded")

    def get(self, name: str, version: str | None = None) -> Model:
        """A loaded model. Raises Refusal (404) if there is none."""
        models = self._loaded.get(name)
        if not models:
            is_known = name in self.names()
            raise Refusal(
                404, f"the model {name[:100]!r} is {'not loaded' if is_known else 'unknown'}"
            )
        if version is None:
            return models[max(models, key=int)]
        if version not in models:
            raise Refusal(
                404, f"{name!r} has no version {version[:20]!r}; loaded are {', '.join(models)}"
            )
        return models[version]

    def versions(self, name: str) -> list[str]:
        """The loaded versions of a model, the lowest first."""
        return sorted(self._loaded.get(name, ()), key=int)

    def index(self) -> list[State]:
        """All versions that have files or are loaded."""
        found = []
        for name in dict.fromkeys([*self.names(), *self._loaded]):
            loaded = self._loaded.get(name, {})
            for version in sorted({*self._versions(name), *loaded}, key=int):
                reason = self._failed.get((name, version), "")
                state = "READY" if version in loaded else "UNAVAILABLE"
                found.append(State(name, version, state, reason))
        return found

    # --- files ----------------------------------------------------------------------------------

    def _model(self, name: str, version: str, path: Path) -> Model:
        model = Model(name, version, load_program(path))
        # A program may refuse zeros; then its first requests wait for compilation.
        with suppress(MetaopError):
            model.warm_up(self._most_rows)
        return model

    def _versions(self, name: str) -> dict[str, Path]:
        """The files of a model by version."""
        if not _NAME.match(name):
            return {}
        found = dict(self._files.get(name, {}))
        for folder in self._folders:
            for place in sorted((folder / name).glob("*/*.mo")):
                if re.fullmatch(r"[0-9]{1,9}", place.parent.name):
                    found.setdefault(place.parent.name, place)
        return found

    def _add(self, source: str) -> None:
        match = _SOURCE.match(source)
        path = Path(source if match is None else match["path"])
        if not path.exists():
            raise ArgumentError(f"there is no file {str(path)!r}", fix="pass files or folders")
        name = match and match["name"]
        if path.is_dir():
            if name:
                raise ArgumentError(
                    f"{str(path)!r} is a folder, whose models are named after its subfolders",
                    fix="pass the folder without a name",
                )
            self._folders.append(path)
            return
        name, version = name or path.stem, (match and match["version"]) or "1"
        if not _NAME.match(name):
            raise ArgumentError(
                f"{name!r} is not a valid name for a model",
                fix=f"pass a name: NAME={path}",
            )
        versions = self._files.setdefault(name, {})
        if version in versions:
            raise ArgumentError(
                f"version {version} of {name!r} is {str(versions[version])!r} and {str(path)!r}",
                fix="number the versions: NAME:VERSION=FILE",
            )
        versions[version] = path
