"""Compiled kernels of the GPUs of this process, shared by all programs of a device."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from metaop.codegen.caches.disk import shared_cache
from metaop.codegen.caches.kernels import KernelCache
from metaop.codegen.cuda import nvrtc
from metaop.codegen.cuda.device import Runtime
from metaop.codegen.cuda.emit import emit
from metaop.codegen.cuda.layout import Layout, layout_of
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
        self._caches: dict[Layout, KernelCache] = {}
        self._kernels: list[Any] = []

    def launch_for(self, nest: ir.LoopNest) -> Launch:
        """The kernel of a nest, compiled if no known one fits."""
        layout = layout_of(nest)
        cache = self._caches.get(layout)
        if cache is None:
            # Arguments have the index type here, which may be too narrow for the bits of reals.
            cache = self._caches[layout] = KernelCache(
                lambda nest: self._compile(nest, layout), reals=False
            )
        number, arguments = cache.kernel_for(nest)
        return Launch(self._kernels[number], layout, arguments)

    def _compile(self, nest: ir.LoopNest, layout: Layout) -> int:
        self._kernels.append(self.runtime.load(emit(nest, _SYMBOL, layout), _SYMBOL))
        return len(self._kernels) - 1
