"""Objects on disk: code for speed, or quick code and the text of which better code is made.

The text is there first: processes that start together, such as ranks, share the compilation of what
one of them has printed.
"""

from __future__ import annotations

import zlib
from typing import NamedTuple

from metaop.codegen.caches.disk import DiskCache

_BYTES_OF_A_LENGTH = 8


class Stored(NamedTuple):
    """The object of a module; quick code has its `packed` text, and is empty until it is made."""

    content: bytes
    packed: bytes | None = None


def stored_object(key: str, quick: bool, cache: DiskCache | None) -> Stored | None:
    """The object of a key, code for speed if there is any; quick code only if it will do."""
    found = stored(key, cache)
    return found if found and found.content and (quick or found.packed is None) else None


def stored(key: str, cache: DiskCache | None) -> Stored | None:
    """What is stored under a key, code for speed if there is any."""
    if cache is None:
        return None
    if content := cache.get(key):
        return Stored(content)
    joined = cache.get(_quick(key))
    if joined is None:
        return None
    end = _BYTES_OF_A_LENGTH + int.from_bytes(joined[:_BYTES_OF_A_LENGTH], "little")
    return Stored(joined[_BYTES_OF_A_LENGTH:end], joined[end:])


def store_object(key: str, content: bytes, packed: bytes | None, cache: DiskCache | None) -> None:
    """Stores an object, in the place of quick code; quick code with its packed text."""
    if cache is None:
        return
    if packed is None:
        if cache.put(key, content):
            cache.remove(_quick(key))
    else:
        length = len(content).to_bytes(_BYTES_OF_A_LENGTH, "little")
        cache.put(_quick(key), length + content + packed)


def packed_text(text: str) -> bytes:
    """LLVM IR text in a tenth of the bytes."""
    return zlib.compress(text.encode(), 1)


def unpacked_text(packed: bytes) -> str:
    """The inverse of `packed_text`."""
    return zlib.decompress(packed).decode()


def _quick(key: str) -> str:
    return f"{key}-quick"
