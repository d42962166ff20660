"""The part of a distributed program that one rank runs on the CPU between collectives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from metaop.codegen.llvm.layout import Layout
from metaop.codegen.llvm.program import LLVMProgram
from metaop.codegen.memory.buffers import Buffer
from metaop.unified_graph.node import Node


class LLVMLocalProgram:
    """A layout as a function of arrays, which reports its results between kernels."""

    def __init__(self, outputs: Sequence[Node], layout: Layout) -> None:
        self.outputs = tuple(outputs)
        self.program = LLVMProgram(layout)
        self.arena_bytes: int = self.program.arena_bytes
        self._finished_after = self.program.finished_after

    def __call__(
        self, arrays: Sequence[np.ndarray], ready: Callable[[int, Any], None] | None = None
    ) -> list[np.ndarray]:
        given = [Buffer.from_numpy(array) for array in arrays]
        if ready is None:
            return self._arrays(self.program.run(given))

        def between(steps: int, results: list[Buffer]) -> None:
            done = [k for k, last in enumerate(self._finished_after) if last == steps]
            for k in done:
                ready(k, self._array(k, results[k]))
            if not done:
                ready(-1, None)

        return self._arrays(self.program.run(given, between=between))

    def _arrays(self, buffers: Sequence[Buffer]) -> list[np.ndarray]:
        return [self._array(k, buffer) for k, buffer in enumerate(buffers)]

    def _array(self, k: int, buffer: Buffer) -> np.ndarray:
        node = self.outputs[k]
        return buffer.view(node.shape, node.dtype.numpy)
