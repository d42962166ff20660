"""The kernels of this process: one cache that all programs share."""

from __future__ import annotations

from functools import cache

from metaop.codegen import loop_nest as ir
from metaop.codegen.generalise import KernelCache
from metaop.codegen.llvm.emit import emit
from metaop.codegen.llvm.engine import compile_kernel
from metaop.codegen.llvm.target import host_target

_SYMBOL = "kernel"


def compile_nest(nest: ir.LoopNest) -> int:
    """The address of the machine code of a nest."""
    return compile_kernel(emit(nest, host_target(), _SYMBOL), _SYMBOL)


@cache
def kernel_cache() -> KernelCache:
    """The cache of compiled kernels."""
    return KernelCache(compile_nest)
