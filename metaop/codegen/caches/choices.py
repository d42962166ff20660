"""The fastest measured tactics, by the fingerprint of what they compute.

There is a folder per kind of machine, with one file per contraction. Processes that tune at the
same time lose nothing: whichever writes last, the entry is valid.
"""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Iterable
from dataclasses import replace
from hashlib import blake2b
from typing import Any

from metaop.codegen.caches.disk import DiskCache
from metaop.codegen.lowering.strategy import Tactic

_SIZES = ("rows", "columns", "depth", "block_rows", "block_columns")


class Choices:
    """The tactics found for one kind of machine; without a folder, only for this process."""

    def __init__(self, cache: DiskCache | None) -> None:
        self._cache = cache
        self._words: dict[str, str] = {}
        for key in cache.keys() if cache else ():
            content = cache.get(key) if cache else None
            with contextlib.suppress(UnicodeDecodeError):
                self._words |= {} if content is None else {key: content.decode()}

    def __len__(self) -> int:
        return len(self._words)

    @functools.cached_property
    def state(self) -> str:
        """A hash of all choices; "" when there are none."""
        text = "\n".join(f"{key} {words}" for key, words in sorted(self._words.items()))
        return blake2b(text.encode(), digest_size=16).hexdigest() if text else ""

    def __contains__(self, key: str) -> bool:
        return key in self._words

    def find(self, key: str, tactics: Iterable[Tactic]) -> Tactic | None:
        """The stored choice if it is one of these tactics, possibly with other sizes; else None."""
        words = self._words.get(key)
        return None if words is None else _read(words, tactics)

    def keep(self, key: str, tactic: Tactic) -> None:
        """Stores a choice, also for other processes."""
        words = self._words[key] = _written(tactic)
        self.__dict__.pop("state", None)
        if self._cache is not None:
            self._cache.put(key, words.encode())


def _written(tactic: Tactic) -> str:
    sizes = {name: getattr(tactic.tile, name) for name in _SIZES}
    return json.dumps({"tactic": tactic.name, **sizes})


def _read(words: str, tactics: Iterable[Tactic]) -> Tactic | None:
    """The stored tactic, or None if it is not one of these or is invalid."""
    try:
        entries = json.loads(words)
        sizes: dict[str, Any] = {name: int(entries[name]) for name in _SIZES}
        name = entries["tactic"]
    except (ValueError, TypeError, KeyError):
        return None
    for tactic in tactics:
        if tactic.name == name:
            tile = replace(tactic.tile, **sizes)
            return replace(tactic, tile=tile) if tile.is_possible else None
    return None
