"""Downloads weights into a cache and checks them against the hash in their names."""

from __future__ import annotations

import hashlib
import os
import re
import sys
import tempfile
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from metaop.errors import CheckpointError
from metaop.serialization import load

__all__ = ["download_url_to_file", "get_dir", "load_state_dict_from_url", "set_dir"]

HASH_REGEX = re.compile(r"-([a-f0-9]*)\.")
_chosen: list[str] = []


def _get_torch_home() -> str:
    base = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    return os.path.expanduser(os.environ.get("METAOP_HOME", os.path.join(base, "metaop")))


def get_dir() -> str:
    """The download folder: that of `set_dir`, or `hub` in `$METAOP_HOME` (~/.cache/metaop)."""
    return _chosen[-1] if _chosen else os.path.join(_get_torch_home(), "hub")


def set_dir(d: str | os.PathLike[str]) -> None:
    """Sets the download folder."""
    _chosen[:] = [os.path.expanduser(d)]


def download_url_to_file(
    url: str, dst: str, hash_prefix: str | None = None, progress: bool = True
) -> None:
    """Downloads a file to `dst`; its SHA-256 must start with `hash_prefix`, if given.

    The file appears under its name only once it is complete and verified.
    """
    target = Path(dst).expanduser()
    digest = hashlib.sha256()
    request = urllib.request.Request(url, headers={"User-Agent": "metaop.hub"})
    descriptor, partial = tempfile.mkstemp(dir=target.parent)
    try:
        with os.fdopen(descriptor, "wb") as file, urllib.request.urlopen(request) as answer:
            while block := answer.read(1 << 16):
                file.write(block)
                digest.update(block)
        if hash_prefix is not None and not digest.hexdigest().startswith(hash_prefix):
            raise CheckpointError(
                f'invalid hash value (expected "{hash_prefix}", got "{digest.hexdigest()}")',
                fix="download again; the file may have been changed",
            )
        os.replace(partial, target)
    finally:
        if os.path.exists(partial):
            os.remove(partial)


def load_state_dict_from_url(
    url: str,
    model_dir: str | None = None,
    map_location: Any = None,
    progress: bool = True,
    check_hash: bool = False,
    file_name: str | None = None,
    weights_only: bool | None = None,
) -> Any:
    """The state in a file that is downloaded once; `check_hash` takes the hash from its name.

    It is read as by `metaop.load`: objects that are not plain need `weights_only=False`.
    """
    folder = Path(model_dir or os.path.join(get_dir(), "checkpoints"))
    folder.mkdir(parents=True, exist_ok=True)
    name = file_name or os.path.basename(urlparse(url).path)
    target = folder / name
    if not target.exists():
        if progress:
            sys.stderr.write(f'Downloading: "{url}" to {target}\n')
        found = HASH_REGEX.search(name) if check_hash else None
        download_url_to_file(url, str(target), found.group(1) if found else None, progress)
    return load(str(target), map_location=map_location, weights_only=weights_only)
