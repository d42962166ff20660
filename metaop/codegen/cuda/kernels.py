"""Compiled kernels of the GPUs of this process, shared by all programs of a device."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from metaop.codegen.caches.disk import shared_cache
from metaop.codegen.caches.kernels import KernelCache
from metaop.codegen.cuda import nvrtc
from metaop.codegen.cuda.emit import emit
from metaop.codegen.cuda.layout import Layout, layout_of
from metaop.codegen.cuda.runtime import Runtime
from metaop.codegen.nest import ir

_SYMBOL = "kernel"


def machine_code(text: str, architecture: str) -> bytes:
    """The machine code of a text for an architecture, cached on disk."""
    version = ".".join(map(str, nvrtc.version()))
    key = hashlib.sha256("\n".join(("cuda", version, architecture, text)).encode()).hexdigest()
    cache = shared_cache()
    cubin = cache.get(key) if cache else None
    if cubin is None:
        cubin = nvrtc.compile_text(text, architecture).cubin
        if cache:
            cache.put(key, cubin)
    return cubin


def text_of(nest: ir.LoopNest) -> str:
    """The CUDA C++ of a nest."""
    return emit(nest, _SYMBOL)


@dataclass(frozen=True)
class Launch:
    """A kernel that computes one nest, with the layout and the integers of the launch."""

    kernel: Any
    layout: Layout
    arguments: tuple[int, ...]


class DeviceKernels:
    """The kernels of one GPU; nests that differ only in sizes share one if their layouts agree."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self._caches: dict[Layout, KernelCache[Future[Any]]] = {}

    def launches_for(self, nests: Sequence[ir.LoopNest]) -> list[Launch]:
        """The kernels of a program's nests; those that no known one fits are compiled together."""
        layouts = [layout_of(nest) for nest in nests]
        found: dict[int, tuple[Future[Any], tuple[int, ...]]] = {}
        for layout in dict.fromkeys(layouts):
            places = [k for k, one in enumerate(layouts) if one == layout]
            made = self._cache(layout).kernels_for([nests[k] for k in places])
            found.update(zip(places, made))
        return [
            Launch(found[k][0].result(), layout, found[k][1]) for k, layout in enumerate(layouts)
        ]

    def _cache(self, layout: Layout) -> KernelCache[Future[Any]]:
        if layout not in self._caches:
            # Arguments have the index type here, which may be too narrow for the bits of reals.
            self._caches[layout] = KernelCache(
                lambda nest: self._compile(nest, layout), reals=False
            )
        return self._caches[layout]

    def _compile(self, nest: ir.LoopNest, layout: Layout) -> Future[Any]:
        return _compilers().submit(self.runtime.load, emit(nest, _SYMBOL, layout), _SYMBOL)


@functools.cache
def _compilers() -> ThreadPoolExecutor:
    """The threads that wait for NVRTC, which compiles several texts at a time."""
    return ThreadPoolExecutor(os.cpu_count() or 1, "metaop-nvrtc")
