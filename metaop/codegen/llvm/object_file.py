"""Which symbols an ELF object defines and which it expects from elsewhere.

The loader of LLVM ends the process when a symbol is missing, so they are looked at before.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

_SYMBOL_TABLE = 2
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")


def symbols(object_bytes: bytes) -> tuple[frozenset[str], frozenset[str]]:
    """(defined, undefined) names of a little-endian 64-bit ELF object; both empty for others."""
    if object_bytes[:6] != b"\x7fELF\x02\x01":
        return frozenset(), frozenset()
    defined: set[str] = set()
    undefined: set[str] = set()
    for name, section in _named_symbols(object_bytes):
        (defined if section else undefined).add(name)
    return frozenset(defined), frozenset(undefined)


def _named_symbols(content: bytes) -> Iterator[tuple[str, int]]:
    """(name, number of the defining section or 0) for each symbol that has a name."""
    (table,) = struct.unpack_from("<Q", content, 0x28)
    entry_size, count = struct.unpack_from("<HH", content, 0x3A)
    sections = [_SECTION.unpack_from(content, table + k * entry_size) for k in range(count)]
    for _, kind, _, _, offset, size, link, _, _, _ in sections:
        if kind == _SYMBOL_TABLE:
            names = sections[link][4]
            entries = content[offset : offset + size]
            for name, _, _, section, _, _ in _SYMBOL.iter_unpack(entries):
                if name:
                    start = names + name
                    yield content[start : content.index(0, start)].decode(), section
