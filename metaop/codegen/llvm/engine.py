"""From LLVM IR text to a callable address: compiled, loaded, and remembered on disk."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from metaop.codegen.disk_cache import shared_cache
from metaop.codegen.llvm import object_file
from metaop.codegen.llvm.compile_queue import CompileQueue, Job
from metaop.codegen.llvm.object_code import VERSION, llvm_binding, new_machine
from metaop.codegen.llvm.target import host_target
from metaop.errors import InternalError

if TYPE_CHECKING:
    import llvmlite.binding as llvm

# Homes of what a code generator may call: elementary functions, conversions of float16.
_SUPPORT_LIBRARIES = ("libm.so.6", "libgcc_s.so.1")
# Code, constants and data of a loaded object have different rights; Linux bounds the maps of a
# process, of which the rest of it needs some.
_MAPS_OF_AN_OBJECT, _OTHER_MAPS = 3, 4096


@dataclass
class Statistics:
    """What the engine did since the process started; times in seconds.

    `compile_seconds` were spent here, by waiting for other processes included.
    """

    compiled: int = 0
    loaded_from_disk: int = 0
    loaded_from_memory: int = 0
    compile_seconds: float = 0.0
    load_seconds: float = 0.0


statistics = Statistics()

_lock = threading.RLock()
_engines: list[llvm.ExecutionEngine] = []  # the code lives as long as its engine
_addresses: dict[str, dict[str, int]] = {}
_started: dict[str, Job] = {}
_queue = functools.cache(CompileQueue)


def load_object(object_bytes: bytes, symbols: Sequence[str]) -> dict[str, int]:
    """The addresses of `symbols` after loading an object into the process, for good."""
    binding = llvm_binding()
    _check_symbols(object_bytes, symbols)
    if len(_engines) >= _most_objects():
        raise MemoryError(
            f"this process has loaded {len(_engines)} kernels, and Linux allows it no more memory "
            "maps. Fix: raise the limit, as in sysctl -w vm.max_map_count=262144"
        )
    engine = binding.create_mcjit_compiler(
        binding.parse_assembly(""), new_machine(host_target(), "large"), use_lmm=True
    )
    engine.add_object_file(binding.ObjectFileRef.from_data(object_bytes))
    engine.finalize_object()
    _engines.append(engine)
    return {symbol: engine.get_function_address(symbol) for symbol in symbols}


@functools.cache
def _most_objects() -> int:
    """How many objects a process can load: without room for its maps, code is not executable."""
    try:
        limit = int(Path("/proc/sys/vm/max_map_count").read_text())
    except (OSError, ValueError):
        return sys.maxsize
    return max(limit - _OTHER_MAPS, 0) // _MAPS_OF_AN_OBJECT


def compile_kernel(ir_text: str, symbol: str) -> int:
    """The address of a function of a module, compiled at most once on this machine."""
    return compile_symbols(ir_text, (symbol,))[symbol]


def compile_symbols(ir_text: str, symbols: Sequence[str]) -> dict[str, int]:
    """Like `compile_kernel`, for several functions of one module."""
    addresses = stored_symbols(start_compiling(ir_text, symbols), symbols)
    assert addresses is not None
    return addresses


def start_compiling(ir_text: str, symbols: Sequence[str], helpers: int = 0) -> str:
    """The key of a module that `stored_symbols` will find.

    Until then at most so many other processes help to compile what was started.
    """
    key = object_key(ir_text, symbols)
    with _lock:
        if key in _addresses or key in _started:
            statistics.loaded_from_memory += 1
        elif stored_symbols(key, symbols) is None:
            _started[key] = _queue().submit(ir_text, host_target(), helpers)
    return key


def stored_symbols(key: str, symbols: Sequence[str]) -> dict[str, int] | None:
    """The addresses of an object that was compiled before, here or by another process."""
    with _lock:
        addresses = _addresses.get(key)
        if addresses is not None:
            return addresses
        cache = shared_cache()
        if key in _started:
            content = _finished(key)
            if cache:
                cache.put(key, content)
        else:
            stored = cache.get(key) if cache else None
            if stored is None:
                return None
            content = stored
            statistics.loaded_from_disk += 1
        return _loaded(key, content, symbols)


def _finished(key: str) -> bytes:
    start = time.perf_counter()
    content = _queue().result(_started[key])
    del _started[key]
    statistics.compiled += 1
    statistics.compile_seconds += time.perf_counter() - start
    return content


def _loaded(key: str, object_bytes: bytes, symbols: Sequence[str]) -> dict[str, int]:
    start = time.perf_counter()
    addresses = _addresses[key] = load_object(object_bytes, symbols)
    statistics.load_seconds += time.perf_counter() - start
    return addresses


def code_generator() -> str:
    """The version of what makes machine code of LLVM IR."""
    version = ".".join(map(str, llvm_binding().llvm_version_info))
    return f"LLVM {version}, {VERSION}"


def object_key(ir_text: str, symbols: Sequence[str]) -> str:
    """The key under which the object of a module is kept on this machine."""
    target = host_target()
    version = ".".join(map(str, llvm_binding().llvm_version_info))
    parts = (VERSION, version, target.cpu, target.features, ",".join(symbols), ir_text)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _check_symbols(object_bytes: bytes, wanted: Sequence[str]) -> None:
    """LLVM would end the process for a missing symbol; an exception names it."""
    defined, undefined = object_file.symbols(object_bytes)
    absent = sorted(set(wanted) - defined)
    if absent:
        raise InternalError(f"the compiled code lacks {absent}, it has {sorted(defined)}")
    unknown = sorted(name for name in undefined if not _find_symbol(name))
    if unknown:
        raise InternalError(f"the compiled code calls {unknown}, which no library here defines")


def _find_symbol(name: str) -> bool:
    binding = llvm_binding()
    if binding.address_of_symbol(name):
        return True
    for library in _SUPPORT_LIBRARIES:
        with contextlib.suppress(RuntimeError):
            binding.load_library_permanently(library)
            if binding.address_of_symbol(name):
                return True
    return False
