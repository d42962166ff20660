"""The matrix registers of AMX in NumPy, strict about their use, for processors without any.

Kernels are compiled as they are, but for the names of the seven instructions: these become calls of
functions that do what Intel's manual says. Every thread has registers of its own, which hold
nothing before they are configured; what hardware would refuse, or what would lose a register's
content unnoticed, is kept as a fault.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import llvmlite.binding as llvm
import numpy as np
import pytest

from metaop.codegen.llvm import kernels
from metaop.codegen.llvm.emission.emit import emit
from metaop.codegen.llvm.target import Target
from metaop.codegen.nest.ir import LoopNest

_BYTE, _ADDRESS, _STRIDE = ctypes.c_uint8, ctypes.c_void_p, ctypes.c_int64
_ROW_BYTES, _MOST_ROWS = 64, 16


class Fault(Exception):
    """What no program may do with matrix registers."""


@dataclass
class Registers:
    """The registers of a thread: their shapes as (rows, bytes of a row), and their content."""

    shapes: list[tuple[int, int]] | None = None
    content: dict[int, np.ndarray] = field(default_factory=dict)

    def shape(self, register: int) -> tuple[int, int]:
        if self.shapes is None:
            raise Fault("registers are used before they are configured")
        if 0 in self.shapes[register]:
            raise Fault(f"register {register} has no shape")
        return self.shapes[register]

    def read(self, register: int) -> np.ndarray:
        self.shape(register)
        if register not in self.content:
            raise Fault(f"register {register} is read before it is written")
        return self.content[register]

    def ldtilecfg(self, address: int) -> None:
        words = np.frombuffer(ctypes.string_at(address, 64), np.uint8)
        widths, rows = words[16:48].view(np.uint16), words[48:64]
        if words[0] != 1 or words[1:16].any() or widths[8:].any() or rows[8:].any():
            raise Fault("not a configuration of palette 1")
        if rows.max() > _MOST_ROWS or widths.max() > _ROW_BYTES:
            raise Fault("a register has at most 16 rows of 64 bytes")
        self.shapes = [(int(row), int(width)) for row, width in zip(rows[:8], widths[:8])]
        self.content.clear()

    def tilerelease(self) -> None:
        self.shapes = None
        self.content.clear()

    def tilezero(self, register: int) -> None:
        rows, width = self.shape(register)
        self.content[register] = np.zeros((rows, width), np.uint8)

    def tileloadd64(self, register: int, address: int, stride: int) -> None:
        rows, width = self.shape(register)
        lines = [ctypes.string_at(address + row * stride, width) for row in range(rows)]
        self.content[register] = np.frombuffer(b"".join(lines), np.uint8).reshape(rows, width)

    def tilestored64(self, register: int, address: int, stride: int) -> None:
        for row, line in enumerate(self.read(register)):
            ctypes.memmove(address + row * stride, line.tobytes(), line.size)

    def tdpbf16ps(self, sums: int, left: int, right: int) -> None:
        if len({sums, left, right}) < 3:
            raise Fault("the three registers of a product must differ")
        (rows, width), (own_rows, left_width) = self.shape(sums), self.shape(left)
        right_rows, right_width = self.shape(right)
        if (own_rows, right_width) != (rows, width) or left_width != 4 * right_rows:
            raise Fault("the shapes of a product do not fit")
        total = self.read(sums).view(np.float32).copy()
        a = _numbers(self.read(left)).reshape(rows, right_rows, 2)
        b = _numbers(self.read(right)).reshape(right_rows, width // 4, 2)
        for pair in range(right_rows):
            for k in range(2):
                total += a[:, pair, k, None] * b[None, pair, :, k]
        self.content[sums] = total.view(np.uint8)


def _numbers(content: np.ndarray) -> np.ndarray:
    """Bytes of bfloat16 as float32."""
    halves = np.ascontiguousarray(content).view(np.uint16).astype(np.uint32)
    return (halves << np.uint32(16)).view(np.float32)


_OPERATIONS: dict[str, tuple[type, ...]] = {
    "ldtilecfg": (_ADDRESS,),
    "tilerelease": (),
    "tilezero": (_BYTE,),
    "tileloadd64": (_BYTE, _ADDRESS, _STRIDE),
    "tilestored64": (_BYTE, _ADDRESS, _STRIDE),
    "tdpbf16ps": (_BYTE, _BYTE, _BYTE),
}
_PREFIX = "emulated_"


class Emulator:
    """All threads' registers, how often each instruction ran, and the faults.

    There is one, because compiled kernels keep the addresses of its functions.
    """

    def __init__(self) -> None:
        self.reset()
        self.callbacks = [self._install(name, types) for name, types in _OPERATIONS.items()]

    def reset(self) -> None:
        self.faults: list[str] = []
        self.ran = dict.fromkeys(_OPERATIONS, 0)
        self.registers: dict[int, Registers] = {}

    def _install(self, name: str, types: tuple[type, ...]) -> object:
        def run(*operands: int) -> None:
            own = self.registers.setdefault(threading.get_ident(), Registers())
            self.ran[name] += 1
            try:
                getattr(own, name)(*operands)
            except Fault as fault:
                self.faults.append(f"{name}: {fault}")

        callback = ctypes.CFUNCTYPE(None, *types)(run)
        llvm.add_symbol(_PREFIX + name, ctypes.cast(callback, ctypes.c_void_p).value)
        return callback

    def text(self, nest: LoopNest, target: Target, symbol: str) -> str:
        """The module of a kernel that calls the emulator."""
        found = emit(nest, target, symbol)
        for name in _OPERATIONS:
            found = found.replace(f"@llvm.x86.{name}(", f"@{_PREFIX}{name}(")
        return found

    def assert_well_used(self) -> None:
        """Instructions ran, none of them wrongly, and all threads gave their registers back."""
        assert not self.faults, self.faults
        assert self.ran["tdpbf16ps"] and self.ran["ldtilecfg"] == self.ran["tilerelease"]
        assert all(one.shapes is None for one in self.registers.values())


_emulator = functools.cache(Emulator)


@contextmanager
def emulated(monkeypatch: pytest.MonkeyPatch) -> Iterator[Emulator]:
    """Kernels with matrix registers that are compiled inside run in NumPy."""
    emulator = _emulator()
    emulator.reset()
    with monkeypatch.context() as patch:
        patch.setenv("METAOP_DISK_CACHE", "false")
        patch.setattr(kernels, "emit", emulator.text)
        kernels.kernel_cache.cache_clear()
        yield emulator
    kernels.kernel_cache.cache_clear()
