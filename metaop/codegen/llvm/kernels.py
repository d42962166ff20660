"""The kernels of this process: one cache that all programs share."""

from __future__ import annotations

from functools import cache

from metaop import settings
from metaop.codegen import loop_nest as ir
from metaop.codegen.kernel_cache import KernelCache
from metaop.codegen.llvm import engine
from metaop.codegen.llvm.emit import emit
from metaop.codegen.llvm.runtime import runtime
from metaop.codegen.llvm.target import host_target

_SYMBOL = "kernel"
_MOST_HELPERS = 4


def start_compiling(nest: ir.LoopNest) -> str:
    """The key of a nest's machine code, which others may be compiling until it is needed."""
    return engine.start_compiling(emit(nest, host_target(), _SYMBOL), (_SYMBOL,), _helpers())


def compile_nest(nest: ir.LoopNest) -> int:
    """The address of the machine code of a nest."""
    return engine.compile_kernel(emit(nest, host_target(), _SYMBOL), _SYMBOL)


def _helpers() -> int:
    """How many processes may help to compile: with this one, as many as there are threads."""
    wanted: int = settings.get("METAOP_COMPILE_PROCESSES")
    return wanted if wanted >= 0 else min(runtime().get_num_threads() - 1, _MOST_HELPERS)


def is_stored(key: str) -> bool:
    """Whether the kernel of this key is loaded, or could be loaded from disk just now."""
    return engine.stored_symbols(key, (_SYMBOL,)) is not None


def address_of(key: str) -> int:
    """The address of a kernel that is stored, or that was started."""
    addresses = engine.stored_symbols(key, (_SYMBOL,))
    assert addresses is not None
    return addresses[_SYMBOL]


@cache
def kernel_cache() -> KernelCache[str]:
    """The cache of kernels, by key."""
    return KernelCache(start_compiling)
