"""From a relocatable object to callable addresses in executable memory."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable, Sequence

from metaop.codegen.llvm.code_memory import PAGE, take_pages
from metaop.codegen.llvm.object_code import llvm_binding
from metaop.codegen.llvm.object_file import ObjectFile, Relocation, Symbol
from metaop.errors import InternalError

# Homes of what a code generator may call: elementary functions, conversions of float16.
_SUPPORT_LIBRARIES = ("libm.so.6", "libgcc_s.so.1")
# What a place needs, as the ABI of x86-64 numbers it: an address, the distance to it, the distance
# to it or to a stub that jumps there, the distance to memory that holds it.
_ADDRESS, _DISTANCE, _CALL, _TABLE = 1, 2, 4, (9, 41, 42)
# jmp *2(%rip), two bytes to fill, and the address: what a library defines lies too far for a call.
_STUB = struct.Struct("<6s2xQ")
_JUMP, _ADDRESS_IN_STUB = b"\xff\x25\x02\0\0\0", 8


class Address(int):
    """The address of a function, which stays in memory while `owner` is held, as it is here.

    It is an integer for whoever calls it; numbers computed from it hold nothing.
    """

    owner: object

    def __new__(cls, value: int, owner: object) -> Address:
        address = super().__new__(cls, value)
        address.owner = owner
        return address


def load_object(
    content: bytes,
    symbols: Sequence[str],
    elsewhere: Callable[[str], int | None] = lambda name: None,
) -> dict[str, Address]:
    """The addresses of `symbols` after loading an object into the process.

    It is unloaded when nobody holds one of them any more. `elsewhere` is asked first for what the
    code calls; then the libraries of the process are. Raises `InternalError` when a symbol is
    missing, or one that the code calls; `MemoryError` and `DeviceError` as `take_pages`.
    """
    found = ObjectFile(content)
    defined = {symbol.name: symbol for symbol in found.symbols if symbol.section}
    absent = sorted(set(symbols) - defined.keys())
    if absent:
        raise InternalError(
            f"the compiled code lacks {absent}, it has {sorted(filter(None, defined))}"
        )
    image = _Image(found, elsewhere)
    pages = take_pages(image.size)
    pages.fill(image.linked(pages.address), image.writable_from)
    return {name: Address(pages.address + image.place(defined[name]), pages) for name in symbols}


class _Image:
    """An object as it will lie in memory: code and constants, stubs, then what is written."""

    def __init__(self, found: ObjectFile, elsewhere: Callable[[str], int | None]) -> None:
        self._object = found
        self._far = _far_addresses(found, elsewhere)
        self.size = 0
        self._starts: dict[int, int] = {}
        self._reserve_sections(writable=False)
        far = dict.fromkeys(one.symbol for one in found.relocations if _needs_stub(one))
        self._stubs = {symbol: self._reserve(_STUB.size, _STUB.size) for symbol in far}
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
        """Where in the image a symbol of the object lies."""
        return self._starts[symbol.section] + symbol.value

    def linked(self, address: int) -> bytearray:
        """The image for memory at an address."""
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
    """Whether a place needs a stub, or the address in it."""
    kind, symbol = relocation.kind, relocation.symbol
    return kind in _TABLE or (kind == _CALL and not symbol.section)


def _far_addresses(found: ObjectFile, elsewhere: Callable[[str], int | None]) -> dict[str, int]:
    """The addresses of what an object expects from elsewhere."""
    used = {
        relocation.symbol.name for relocation in found.relocations if not relocation.symbol.section
    }
    addresses = {name: elsewhere(name) or _address_in_libraries(name) for name in used}
    unknown = sorted(name for name, address in addresses.items() if not address)
    if unknown:
        raise InternalError(f"the compiled code calls {unknown}, which no library here defines")
    return addresses


def _address_in_libraries(name: str) -> int:
    """The address of a function of this process or of the support libraries; 0 for none."""
    binding = llvm_binding()
    address: int = binding.address_of_symbol(name) or 0
    for library in _SUPPORT_LIBRARIES:
        if not address:
            with contextlib.suppress(RuntimeError):
                binding.load_library_permanently(library)
                address = binding.address_of_symbol(name) or 0
    return address
