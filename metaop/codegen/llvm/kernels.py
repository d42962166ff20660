"""The kernels of this process: one cache that all programs share."""

from __future__ import annotations

from functools import cache

from metaop.codegen import loop_nest as ir
from metaop.codegen.kernel_cache import KernelCache
from metaop.codegen.llvm import engine
from metaop.codegen.llvm.emit import emit
from metaop.codegen.llvm.target import host_target

_SYMBOL = "kernel"
_keys: dict[int, str] = {}


def compile_nest(nest: ir.LoopNest) -> int:
    """The address of the machine code of a nest."""
    text = emit(nest, host_target(), _SYMBOL)
    address = engine.compile_kernel(text, _SYMBOL)
    _keys[address] = engine.object_key(text, (_SYMBOL,))
    return address


def key_of(address: int) -> str:
    """The key under which the object of a kernel is kept."""
    return _keys[address]


def is_stored(key: str) -> bool:
    """Whether the kernel of this key is loaded, or could be loaded from disk just now."""
    return engine.stored_symbols(key, (_SYMBOL,)) is not None


def address_of(key: str) -> int:
    """The address of a stored kernel."""
    addresses = engine.stored_symbols(key, (_SYMBOL,))
    assert addresses is not None
    return addresses[_SYMBOL]


@cache
def kernel_cache() -> KernelCache:
    """The cache of compiled kernels."""
    return KernelCache(compile_nest)
