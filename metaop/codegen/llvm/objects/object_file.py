"""The contents of objects: sections, symbols and relocations of ELF, names of Mach-O."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from metaop.errors import InternalError

_ELF = b"\x7fELF\x02\x01"
# Of x86-64 and of AArch64.
_RELOCATABLE = (b"\x01\0\x3e\0", b"\x01\0\xb7\0")
_MACH_O, _MACH_O_SYMBOLS, _EXTERNAL, _DEFINED = b"\xcf\xfa\xed\xfe", 2, 1, 0x0E
_SYMBOL_TABLE, _RELOCATIONS, _EMPTY, _UNWINDING = 2, 4, 8, 0x70000001
_WRITABLE, _IN_MEMORY = 1, 2
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QIIq")


class Section(NamedTuple):
    """A section of an object; symbols refer to its `number`; `content` is empty if all is zero."""

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
    """A relocatable ELF object, without unwind tables, because no code here throws."""

    def __init__(self, content: bytes) -> None:
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

    @property
    def defined(self) -> set[str]:
        """The names of what it defines."""
        return {symbol.name for symbol in self.symbols if symbol.section and symbol.name}

    @property
    def imported(self) -> set[str]:
        """The names of what its code needs from elsewhere."""
        used = {relocation.symbol for relocation in self.relocations}
        return {symbol.name for symbol in used if not symbol.section}


class MachObject(NamedTuple):
    """The names of what a Mach-O object defines, and of what it needs from elsewhere."""

    defined: set[str]
    imported: set[str]


def object_file(content: bytes) -> ObjectFile | MachObject:
    """The contents of an object; raises `InternalError` for data that is not an object."""
    if content[:6] == _ELF and content[16:20] in _RELOCATABLE:
        return ObjectFile(content)
    if content[:4] == _MACH_O and len(content) >= 32:
        return _mach_object(content)
    raise InternalError("the compiled code is not an ELF object, nor one of macOS")


def _mach_object(content: bytes) -> MachObject:
    found = MachObject(set(), set())
    (commands,) = struct.unpack_from("<I", content, 16)
    at = 32
    for _ in range(commands):
        kind, size = struct.unpack_from("<II", content, at)
        if kind == _MACH_O_SYMBOLS:
            symbols, count, names, _ = struct.unpack_from("<4I", content, at + 8)
            for k in range(count):
                name_at, flags = struct.unpack_from("<IB", content, symbols + 16 * k)
                start = names + name_at
                # Names of C begin with an underscore there.
                name = content[start + 1 : content.index(0, start)].decode()
                if flags & _EXTERNAL:
                    (found.defined if flags & _DEFINED else found.imported).add(name)
        at += size
    return found


def _symbols(table: bytes, names: bytes) -> Iterator[Symbol]:
    for name, _, _, section, value, _ in _SYMBOL.iter_unpack(table):
        yield Symbol(names[name : names.index(0, name)].decode(), section, value)
