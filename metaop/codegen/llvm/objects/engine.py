"""From LLVM IR text to a callable address: compiled, loaded, and remembered on disk."""

from __future__ import annotations

import functools
import hashlib
import threading
import time
from collections.abc import Mapping, Sequence
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


class Module:
    """The object of a module, read or compiled by a job, and loaded at the first use."""

    def __init__(self, made: Job | bytes) -> None:
        self._made: Job | bytes | None = made
        self._addresses: dict[str, Address] = {}

    def addresses(self, symbols: Sequence[str]) -> dict[str, Address]:
        """The addresses of functions; they hold the machine code."""
        made = self._made
        if made is not None:
            content = _finished(made) if isinstance(made, Job) else made
            start = time.perf_counter()
            self._addresses = load_object(content, symbols, _called)
            statistics.load_seconds += time.perf_counter() - start
            self._made = None
        return self._addresses


def _finished(job: Job) -> bytes:
    start = time.perf_counter()
    content = _queue().result(job)
    if job.was_stored:
        statistics.loaded_from_disk += 1
    else:
        statistics.compiled += 1
    statistics.compile_seconds += time.perf_counter() - start
    return content


class Code:
    """The machine code of a text, identified by its key.

    It is unloaded with the last reference to this object or to one of its addresses. Quick code,
    which texts that differ in literals may share, has its `packed` text, of which `improved` makes
    better code.
    """

    def __init__(
        self, key: str, symbols: Sequence[str], module: Module, packed: bytes | None = None
    ) -> None:
        self.key = key
        self._symbols = symbols
        self._module = module
        self._packed = packed
        self._better: Job | None = None
        # Programs may still run the addresses of quick code.
        self._earlier: Module | None = None

    @property
    def is_quick(self) -> bool:
        """Whether there may be better code."""
        return self._packed is not None

    def address(self, symbol: str) -> Address:
        """The address of a function, which holds this code.

        Raises `InternalError` with LLVM's message if the module is not valid.
        """
        with _lock:
            return Address(self._module.addresses(self._symbols)[symbol], self)

    def improved(self, symbol: str) -> Address | None:
        """The address of a function in the best code there is; None while it is being compiled.

        The first call for quick code queues the compilation.
        """
        with _lock:
            if self._packed is None:
                return self.address(symbol)
            if self._better is None:
                job = Job(self._packed, host_target(), {self.key: None})
                self._better = _improvements().submit(job, most_workers=1)
            content = self._better.content
            if content is None:
                return None
            better = Module(content)
            try:
                better.addresses(self._symbols)
            except MemoryError:
                # Quick code is slower, but it runs.
                self._packed = None
                return self.address(symbol)
            self._earlier, self._module = self._module, better
            self._packed = None
            statistics.improved += 1
        return self.address(symbol)


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
    return start_compiling_all([ir_text], symbols, helpers, ir_text if quick else None)[0]


def start_compiling_all(
    ir_texts: Sequence[str], symbols: Sequence[str], helpers: int = 0, quick: str | None = None
) -> list[Code]:
    """The same for several modules, which share the code of a `quick` text until there is better.

    That one is the same text with more arguments.
    """
    texts = {object_key(text, symbols): text for text in ir_texts}
    with _lock:
        codes: dict[str, Code] = {}
        for key in texts:
            code = _codes.get(key)
            statistics.loaded_from_memory += code is not None
            code = code or stored_code(key, symbols, helpers, quick is not None)
            if code is not None:
                codes[key] = code
        missing = {key: packed_text(text) for key, text in texts.items() if key not in codes}
        for key, packed in missing.items():
            store_object(key, b"", packed, shared_cache())
        if missing and quick is not None:
            (key, *_) = missing
            # The text of a single module is packed already.
            together = missing[key] if quick == texts[key] else packed_text(quick)
            codes |= _queued(missing, symbols, helpers, together)
        else:
            for key, packed in missing.items():
                codes |= _queued({key: packed}, symbols, helpers, None)
        return [codes[key] for key in texts]


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
                code = _codes[key] = Code(key, symbols, Module(found.content), found.packed)
                statistics.loaded_from_disk += 1
            else:
                packed = found.packed
                assert packed is not None
                again = packed if quick else None
                code = _queued({key: packed}, symbols, helpers, again)[key]
        return code


def _queued(
    texts: Mapping[str, bytes], symbols: Sequence[str], helpers: int, quick: bytes | None
) -> dict[str, Code]:
    """The code of packed texts by key: that of one quick text, or of the only one for speed."""
    (text, *_) = texts.values()
    for name in called.called_in([unpacked_text(text)]):
        _function(name, host_target())
    stored = texts if quick else dict.fromkeys(texts)
    job = _queue().submit(Job(quick or text, host_target(), stored), helpers)
    module = Module(job)
    found = {key: Code(key, symbols, module, stored[key]) for key in texts}
    _codes.update(found)
    return found


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
