"""What an ELF object of x86-64 holds: sections, symbols and the places that need addresses."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from metaop.errors import InternalError

_HEADER, _RELOCATABLE_X86_64 = b"\x7fELF\x02\x01", b"\x01\0\x3e\0"
_SYMBOL_TABLE, _RELOCATIONS, _EMPTY, _UNWINDING = 2, 4, 8, 0x70000001
_WRITABLE, _IN_MEMORY = 1, 2
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QIIq")


class Section(NamedTuple):
    """A part of an object; `number` is what symbols call it, `content` is empty if all is zero."""

    number: int
    is_writable: bool
    nbytes: int
    alignment: int
    content: bytes


class Symbol(NamedTuple):
    """A place in a section; `section` is 0 if the symbol is defined elsewhere."""

    name: str
    section: int
    value: int


class Relocation(NamedTuple):
    """A place in a section that needs the address of a symbol, in the form of its `kind`."""

    section: int
    offset: int
    kind: int
    symbol: Symbol
    addend: int


class ObjectFile:
    """A relocatable object; tables of unwinding are left out, for no code here throws."""

    def __init__(self, content: bytes) -> None:
        if content[:6] != _HEADER or content[16:20] != _RELOCATABLE_X86_64:
            raise InternalError("the compiled code is not an ELF object for x86-64")
        (table,) = struct.unpack_from("<Q", content, 0x28)
        entry_size, count = struct.unpack_from("<HH", content, 0x3A)
        headers = [_SECTION.unpack_from(content, table + k * entry_size) for k in range(count)]
        self.sections: list[Section] = []
        self.symbols: list[Symbol] = []
        tables = []
        for number, header in enumerate(headers):
            _, kind, flags, _, offset, size, link, target, alignment, _ = header
            held = content[offset : offset + size]
            if kind == _SYMBOL_TABLE:
                self.symbols = list(_symbols(held, content[headers[link][4] :]))
            elif kind == _RELOCATIONS:
                tables.append((target, held))
            elif flags & _IN_MEMORY and kind != _UNWINDING:
                filled = b"" if kind == _EMPTY else held
                writable = bool(flags & _WRITABLE)
                self.sections.append(Section(number, writable, size, max(alignment, 1), filled))
        loaded = {section.number for section in self.sections}
        self.relocations = [
            Relocation(target, offset, kind, self.symbols[symbol], addend)
            for target, held in tables
            if target in loaded
            for offset, kind, symbol, addend in _RELOCATION.iter_unpack(held)
        ]


def _symbols(table: bytes, names: bytes) -> Iterator[Symbol]:
    for name, _, _, section, value, _ in _SYMBOL.iter_unpack(table):
        yield Symbol(names[name : names.index(0, name)].decode(), section, value)
