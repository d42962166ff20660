"""From a relocatable object to callable addresses in executable memory."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from metaop.codegen.llvm.objects.object_code import llvm_binding, new_machine
from metaop.codegen.llvm.objects.object_file import ObjectFile, object_file
from metaop.codegen.llvm.system import address_in_libraries, code_is_forbidden, host_system
from metaop.codegen.llvm.target import host_target
from metaop.errors import InternalError

# The libraries of what generated code may call: elementary functions, conversions of float16.
_SUPPORT_LIBRARIES = ("libm.so.6", "libgcc_s.so.1")


class Address(int):
    """The address of a function, which stays in memory while this object holds `owner`.

    It is an integer for callers; integers computed from it hold nothing.
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

    It is unloaded with the last reference to one of them. Functions that the code calls are looked
    up by `elsewhere`, then in the libraries of the process. Raises `InternalError` if a symbol or
    a called function is missing; `MemoryError` and `DeviceError` if the system gives no memory for
    code.
    """
    found = object_file(content)
    absent = sorted(set(symbols) - found.defined)
    if absent:
        raise InternalError(f"the compiled code lacks {absent}, it has {sorted(found.defined)}")
    far = {name: elsewhere(name) or _address_in_libraries(name) for name in found.imported}
    unknown = sorted(name for name, address in far.items() if not address)
    if unknown:
        raise InternalError(f"the compiled code calls {unknown}, which no library here defines")
    owner: object
    if host_system().has_own_loader and isinstance(found, ObjectFile):
        from metaop.codegen.llvm.objects.elf_loader import load  # its memory is that of Linux

        owner, addresses = load(found, symbols, far)
    else:
        owner, addresses = _loaded_by_llvm(content, symbols, far)
    return {name: Address(address, owner) for name, address in addresses.items()}


def _loaded_by_llvm(
    content: bytes, symbols: Sequence[str], far: Mapping[str, int]
) -> tuple[Any, dict[str, int]]:
    """An LLVM engine that holds an object, and the addresses of `symbols`.

    LLVM aborts the process if a symbol is missing or memory runs out.
    """
    _check_permission()
    binding = llvm_binding()
    for name, address in far.items():
        binding.add_symbol(name, address)
    machine = new_machine(host_target())
    nothing = binding.parse_assembly("")
    nothing.triple = machine.triple
    nothing.data_layout = str(machine.target_data)
    engine = binding.create_mcjit_compiler(nothing, machine)
    engine.add_object_file(binding.ObjectFileRef.from_data(content))
    engine.finalize_object()
    return engine, {name: engine.get_function_address(name) for name in symbols}


@functools.cache
def _check_permission() -> None:
    """Raises `DeviceError` if the system permits no new machine code."""
    try:
        llvm_binding().check_jit_execution()
    except OSError as error:
        raise code_is_forbidden(os.strerror(error.errno or 0)) from None


def _address_in_libraries(name: str) -> int:
    """The address of a function of this process or of the support libraries; 0 for none."""
    binding = llvm_binding()
    address: int = address_in_libraries(name) or binding.address_of_symbol(name) or 0
    for library in _SUPPORT_LIBRARIES:
        if not address:
            with contextlib.suppress(RuntimeError):
                binding.load_library_permanently(library)
                address = binding.address_of_symbol(name) or 0
    return address
