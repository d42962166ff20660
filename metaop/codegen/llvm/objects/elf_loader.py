"""Links x86-64 ELF objects into shared executable memory."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

from metaop.codegen.llvm.objects.code_memory import PAGE, Pages, take_pages
from metaop.codegen.llvm.objects.object_file import ObjectFile, Relocation, Symbol
from metaop.errors import InternalError

# What a place needs, as the ABI of x86-64 numbers it: an address, the distance to it, the distance
# to it or to a stub that jumps there, the distance to memory that holds it.
_ADDRESS, _DISTANCE, _CALL, _TABLE = 1, 2, 4, (9, 41, 42)
# jmp *2(%rip), two bytes of padding, and the address: library functions are too far for a call.
_STUB = struct.Struct("<6s2xQ")
_JUMP, _ADDRESS_IN_STUB = b"\xff\x25\x02\0\0\0", 8


def load(
    found: ObjectFile, symbols: Sequence[str], far: Mapping[str, int]
) -> tuple[Pages, dict[str, int]]:
    """The memory that an object lies in, which holds it, and the addresses of `symbols`.

    `far` has the addresses of what the object expects from elsewhere. Raises `InternalError` for
    objects that it cannot link, `MemoryError` and `DeviceError` as `take_pages`.
    """
    image = _Image(found, far)
    pages = take_pages(image.size)
    pages.fill(image.linked(pages.address), image.writable_from)
    defined = {symbol.name: symbol for symbol in found.symbols if symbol.section}
    return pages, {name: pages.address + image.place(defined[name]) for name in symbols}


class _Image:
    """An object as it will lie in memory: code and constants, stubs, then what is written."""

    def __init__(self, found: ObjectFile, far: Mapping[str, int]) -> None:
        self._object, self._far = found, far
        self.size = 0
        self._starts: dict[int, int] = {}
        self._reserve_sections(writable=False)
        stubs = dict.fromkeys(one.symbol for one in found.relocations if _needs_stub(one))
        self._stubs = {symbol: self._reserve(_STUB.size, _STUB.size) for symbol in stubs}
        self.writable_from = self._reserve(0, PAGE)
        self._reserve_sections(writable=True)

    def _reserve_sections(self, writable: bool) -> None:
        for section in self._object.sections:
            if section.is_writable == writable:
                self._starts[section.number] = self._reserve(section.nbytes, section.alignment)

    def _reserve(self, nbytes: int, alignment: int) -> int:
        start = -(-self.size // alignment) * alignment
        self.size = start + nbytes
        return start

    def place(self, symbol: Symbol) -> int:
        """The offset of a symbol of the object in the image."""
        return self._starts[symbol.section] + symbol.value

    def linked(self, address: int) -> bytearray:
        """The image, relocated to an address."""
        image = bytearray(self.size)
        for section in self._object.sections:
            start = self._starts[section.number]
            image[start : start + len(section.content)] = section.content
        for symbol, start in self._stubs.items():
            _STUB.pack_into(image, start, _JUMP, self._address(symbol, address))
        for relocation in self._object.relocations:
            self._relocate(relocation, image, address)
        return image

    def _address(self, symbol: Symbol, address: int) -> int:
        return address + self.place(symbol) if symbol.section else self._far[symbol.name]

    def _relocate(self, relocation: Relocation, image: bytearray, address: int) -> None:
        section, offset, kind, symbol, addend = relocation
        at = self._starts[section] + offset
        if kind == _ADDRESS:
            struct.pack_into("<Q", image, at, self._address(symbol, address) + addend)
            return
        if kind in _TABLE:
            target = self._stubs[symbol] + _ADDRESS_IN_STUB
        elif kind == _CALL and symbol in self._stubs:
            target = self._stubs[symbol]
        elif kind in (_DISTANCE, _CALL) and symbol.section:
            target = self.place(symbol)
        else:
            raise InternalError(f"the compiled code needs {symbol.name} in the unknown form {kind}")
        struct.pack_into("<i", image, at, target + addend - at)


def _needs_stub(relocation: Relocation) -> bool:
    """Whether a relocation needs a stub, or the address in it."""
    kind, symbol = relocation.kind, relocation.symbol
    return kind in _TABLE or (kind == _CALL and not symbol.section)
