"""From LLVM IR text to a callable address: compiled, loaded, and remembered on disk."""

from __future__ import annotations

import functools
import hashlib
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from weakref import WeakValueDictionary

from metaop.codegen.caches.disk import shared_cache
from metaop.codegen.llvm import called
from metaop.codegen.llvm.objects.compile_queue import CompileQueue
from metaop.codegen.llvm.objects.job import Job
from metaop.codegen.llvm.objects.loader import Address, load_object
from metaop.codegen.llvm.objects.object_code import VERSION, llvm_binding
from metaop.codegen.llvm.objects.stored import packed_text, store_object, stored, unpacked_text
from metaop.codegen.llvm.target import Target, host_target
from metaop.forking import register_at_fork


@dataclass
class Statistics:
    """Statistics of the engine since the process started; times in seconds.

    `compile_seconds` were spent in this process, including waiting for workers. `improved` is quick
    code that was compiled again for speed.
    """

    compiled: int = 0
    improved: int = 0
    loaded_from_disk: int = 0
    loaded_from_memory: int = 0
    compile_seconds: float = 0.0
    load_seconds: float = 0.0


statistics = Statistics()

_lock = threading.RLock()
_codes: WeakValueDictionary[str, Code] = WeakValueDictionary()
_queue = functools.cache(CompileQueue)


@functools.cache
def _improvements() -> CompileQueue:
    """The queue of what is compiled again, whose results nobody waits for."""
    return CompileQueue(nobody_waits=True)


class Code:
    """The machine code of a module, identified by its key and loaded at the first use.

    It is unloaded with the last reference to this object or to one of its addresses. Quick code
    has its `packed` text, of which `improved` makes better code.
    """

    def __init__(
        self, key: str, symbols: Sequence[str], made: Job | bytes, packed: bytes | None = None
    ) -> None:
        self.key = key
        self._symbols = symbols
        self._made: Job | bytes | None = made
        self._addresses: dict[str, Address] = {}
        self._packed = packed
        self._better: Job | None = None
        # Programs may still run the addresses of quick code.
        self._earlier: dict[str, Address] = {}

    @property
    def is_quick(self) -> bool:
        """Whether there may be better code."""
        return self._packed is not None

    def address(self, symbol: str) -> Address:
        """The address of a function, which holds this code.

        Raises `InternalError` with LLVM's message if the module is not valid.
        """
        with _lock:
            if self._made is not None:
                self._addresses = self._loaded(self._made)
                self._made = None
            return Address(self._addresses[symbol], self)

    def improved(self, symbol: str) -> Address | None:
        """The address of a function in the best code there is; None while it is being compiled.

        The first call for quick code queues the compilation.
        """
        with _lock:
            if self._packed is None:
                return self.address(symbol)
            if self._better is None:
                job = Job(self._packed, host_target(), self.key)
                self._better = _improvements().submit(job, most_workers=1)
            content = self._better.content
            if content is None:
                return None
            try:
                better = load_object(content, self._symbols, _called)
            except MemoryError:
                # Quick code is slower, but it runs.
                self._packed = None
                return self.address(symbol)
            self._earlier, self._addresses = self._addresses, better
            self._packed = None
            statistics.improved += 1
        return self.address(symbol)

    def _loaded(self, made: Job | bytes) -> dict[str, Address]:
        content = self._finished(made) if isinstance(made, Job) else made
        start = time.perf_counter()
        addresses = load_object(content, self._symbols, _called)
        statistics.load_seconds += time.perf_counter() - start
        return addresses

    def _finished(self, job: Job) -> bytes:
        start = time.perf_counter()
        content = _queue().result(job)
        if job.was_stored:
            statistics.loaded_from_disk += 1
        else:
            statistics.compiled += 1
        statistics.compile_seconds += time.perf_counter() - start
        return content


def _called(symbol: str) -> Address | None:
    """The address of a function that kernels call and that is compiled separately."""
    code = _function(symbol, host_target())
    return None if code is None else code.address(symbol)


@functools.cache
def _function(symbol: str, target: Target) -> Code | None:
    """The code of such a function, never unloaded, because kernels do not hold what they call."""
    text = called.text_of(symbol, target)
    return None if text is None else start_compiling(text, (symbol,))


def compile_kernel(ir_text: str, symbol: str) -> Address:
    """The address of a function of a module, compiled at most once on this machine."""
    return compile_symbols(ir_text, (symbol,))[symbol]


def compile_symbols(ir_text: str, symbols: Sequence[str]) -> dict[str, Address]:
    """Like `compile_kernel`, for several functions of one module."""
    code = start_compiling(ir_text, symbols)
    return {symbol: code.address(symbol) for symbol in symbols}


def start_compiling(
    ir_text: str, symbols: Sequence[str], helpers: int = 0, quick: bool = False
) -> Code:
    """The code of a module: known, on disk, or queued for compilation, quick or for speed.

    Until it is needed, a limited number of worker processes compiles what is queued.
    """
    key = object_key(ir_text, symbols)
    with _lock:
        code = _codes.get(key)
        if code is not None:
            statistics.loaded_from_memory += 1
            return code
        code = stored_code(key, symbols, helpers, quick)
        if code is None:
            packed = packed_text(ir_text)
            store_object(key, b"", packed, shared_cache())
            code = _codes[key] = _queued(key, symbols, ir_text, packed, helpers, quick)
        return code


def stored_code(
    key: str, symbols: Sequence[str], helpers: int = 0, quick: bool = False
) -> Code | None:
    """The code of a key that this process has or is compiling, or that is on disk.

    If only its text is there, it is queued for compilation, as by `start_compiling`.
    """
    with _lock:
        code = _codes.get(key)
        if code is None and (found := stored(key, shared_cache())):
            if found.content:
                code = Code(key, symbols, *found)
                statistics.loaded_from_disk += 1
            else:
                assert found.packed is not None
                text = unpacked_text(found.packed)
                code = _queued(key, symbols, text, found.packed, helpers, quick)
            _codes[key] = code
        return code


def _queued(
    key: str, symbols: Sequence[str], ir_text: str, packed: bytes, helpers: int, quick: bool
) -> Code:
    """The code of a text that is being compiled."""
    for name in called.called_in([ir_text]):
        _function(name, host_target())
    job = _queue().submit(Job(packed, host_target(), key, quick), helpers)
    return Code(key, symbols, job, packed if quick else None)


def _unlock() -> None:
    global _lock
    _lock = threading.RLock()


# A thread of the parent, which may have held the lock, does not exist in the child.
register_at_fork(after_in_child=_unlock)


def code_generator() -> str:
    """The version of the compiler from LLVM IR to machine code."""
    version = ".".join(map(str, llvm_binding().llvm_version_info))
    return f"LLVM {version}, {VERSION}"


def object_key(ir_text: str, symbols: Sequence[str]) -> str:
    """The key of a module's object in the cache of this machine."""
    target = host_target()
    version = ".".join(map(str, llvm_binding().llvm_version_info))
    parts = (
        VERSION,
        version,
        target.triple,
        target.cpu,
        target.features,
        ",".join(symbols),
        ir_text,
    )
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
