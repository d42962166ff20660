"""Loads and stores: plain, masked, and by a vector of addresses."""

from __future__ import annotations

from metaop.codegen.llvm.instructions.conversion import Conversion
from metaop.codegen.llvm.instructions.value import (
    Operand,
    Value,
    bits_of,
    intrinsic_suffix,
    vector_type,
)


class MemoryAccess(Conversion):
    """The part of `Builder` that reads and writes memory.

    Alignments are in bytes and default to the size of one element.
    """

    def offset(self, base: Value, index: Operand, type: str) -> Value:
        """The address of element `index` of an array of `type` at `base`; many for a vector."""
        index = self.coerce(index, "i64")
        lanes = max(index.lanes, base.lanes)
        text = self.emit(f"getelementptr inbounds {type}, {base.typed}, {index.typed}")
        return Value(self, text, "ptr", lanes)

    def load(
        self,
        address: Value,
        type: str,
        lanes: int = 1,
        align: int | None = None,
        signed: bool = True,
    ) -> Value:
        full = vector_type(type, lanes)
        text = self.emit(f"load {full}, {address.typed}, align {align or _size(type)}")
        return Value(self, text, type, lanes, signed)

    def store(
        self,
        x: Value,
        address: Value,
        align: int | None = None,
        nontemporal: bool = False,
    ) -> None:
        """`nontemporal` writes around the caches and needs full alignment."""
        hint = ", !nontemporal !0" if nontemporal else ""
        self.line(f"store {x.typed}, {address.typed}, align {align or _size(x.type)}{hint}")

    def masked_load(
        self,
        address: Value,
        mask: Value,
        type: str,
        fill: Operand = 0,
        signed: bool = True,
    ) -> Value:
        """Consecutive elements where the mask holds, `fill` elsewhere; the rest is not touched."""
        if mask.lanes == 1:
            return self._guarded_load(address, mask, type, fill, signed)
        return self._masked_read("llvm.masked.load", address, mask, type, fill, signed)

    def masked_store(self, x: Value, address: Value, mask: Value) -> None:
        """Consecutive elements written where the mask holds."""
        if mask.lanes == 1:
            self.when(mask, lambda: self.store(x, address))
            return
        self._masked_write("llvm.masked.store", x, address, mask)

    def gather(
        self,
        addresses: Value,
        mask: Value,
        type: str,
        fill: Operand = 0,
        signed: bool = True,
    ) -> Value:
        """The elements at a vector of addresses where the mask holds, `fill` elsewhere."""
        if mask.lanes == 1:
            return self._guarded_load(addresses, mask, type, fill, signed)
        return self._masked_read("llvm.masked.gather", addresses, mask, type, fill, signed)

    def scatter(self, x: Value, addresses: Value, mask: Value) -> None:
        """Elements written to a vector of addresses where the mask holds, in lane order."""
        if mask.lanes == 1:
            self.when(mask, lambda: self.store(x, addresses))
            return
        self._masked_write("llvm.masked.scatter", x, addresses, mask)

    def _masked_read(
        self,
        name: str,
        address: Value,
        mask: Value,
        type: str,
        fill: Operand,
        signed: bool,
    ) -> Value:
        full, where = vector_type(type, mask.lanes), address.full_type
        filling = self.splat(self.coerce(fill, type), mask.lanes)
        symbol = _symbol(name, type, mask.lanes, address.lanes)
        self.declare(f"declare {full} @{symbol}({where}, {mask.full_type}, {full})")
        text = self.emit(
            f"call {full} @{symbol}({where} align {_size(type)} {address.text}, "
            f"{mask.typed}, {filling.typed})"
        )
        return Value(self, text, type, mask.lanes, signed)

    def _masked_write(self, name: str, x: Value, address: Value, mask: Value) -> None:
        where = address.full_type
        symbol = _symbol(name, x.type, x.lanes, address.lanes)
        self.declare(f"declare void @{symbol}({x.full_type}, {where}, {mask.full_type})")
        self.line(
            f"call void @{symbol}({x.typed}, "
            f"{where} align {_size(x.type)} {address.text}, {mask.typed})"
        )

    def _guarded_load(
        self, address: Value, condition: Value, type: str, fill: Operand, signed: bool
    ) -> Value:
        filling = self.coerce(fill, type)
        return self.if_else(
            condition, lambda: self.load(address, type, signed=signed), lambda: filling
        )


def _size(type: str) -> int:
    return max(1, bits_of(type) // 8)


def _symbol(name: str, type: str, lanes: int, addresses: int) -> str:
    return f"{name}.{intrinsic_suffix(type, lanes)}.{intrinsic_suffix('ptr', addresses)}"
