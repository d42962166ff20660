"""The kernels of this process: one cache that all programs share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

from metaop import settings
from metaop.codegen.caches.kernels import KernelCache
from metaop.codegen.llvm.emission.emit import emit, with_literals
from metaop.codegen.llvm.objects import engine
from metaop.codegen.llvm.objects.engine import Code
from metaop.codegen.llvm.objects.loader import Address
from metaop.codegen.llvm.runtime import runtime
from metaop.codegen.llvm.target import host_target
from metaop.codegen.nest import ir

_SYMBOL = "kernel"
_MOST_HELPERS = 4


def text_of(nest: ir.LoopNest) -> str:
    """The LLVM IR of a nest for this processor, before LLVM's own passes."""
    return emit(nest, host_target(), _SYMBOL)


def start_compiling(nest: ir.LoopNest) -> Code:
    """The machine code of a nest, which worker processes may compile until it is needed."""
    return engine.start_compiling(text_of(nest), (_SYMBOL,), _helpers(), _is_quick())


def start_specialising(nest: ir.LoopNest, choices: Sequence[Mapping[int, int]]) -> list[Code]:
    """The machine code of a nest for each choice of literals in the place of some arguments.

    They have all arguments, and share quick code for any of these until there is better.
    """
    text = text_of(nest)
    texts = [with_literals(text, literals) for literals in choices]
    quick = text if _is_quick() else None
    return engine.start_compiling_all(texts, (_SYMBOL,), _helpers(), quick)


def compile_nest(nest: ir.LoopNest) -> Address:
    """The address of the machine code of a nest."""
    return engine.compile_kernel(text_of(nest), _SYMBOL)


def _helpers() -> int:
    """The number of processes that may help to compile: with this one, one per thread."""
    wanted: int = settings.get("METAOP_COMPILE_PROCESSES")
    return wanted if wanted >= 0 else min(runtime().get_num_threads() - 1, _MOST_HELPERS)


def _is_quick() -> bool:
    """Whether code may be quick, because another process may improve it later."""
    return settings.get("METAOP_TIERS") and settings.get("METAOP_COMPILE_PROCESSES") != 0


def stored_kernel(key: str) -> Code | None:
    """The machine code of a nest from this process or from disk."""
    return engine.stored_code(key, (_SYMBOL,), _helpers(), _is_quick())


def address_of(kernel: Code) -> Address:
    """The address of a kernel, which is compiled and loaded now if it has not been."""
    return kernel.address(_SYMBOL)


def improved_address_of(kernel: Code) -> Address | None:
    """The address of the best code of a kernel; None while it is being compiled."""
    return kernel.improved(_SYMBOL)


@cache
def kernel_cache() -> KernelCache[Code]:
    """The most recently used kernels, by skeleton."""
    return KernelCache(start_compiling, start_specialising)
