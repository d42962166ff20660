"""What one rank of a distributed program runs between collectives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from metaop.codegen.memory import Buffer
from metaop.codegen.schedule import schedule
from metaop.settings import get
from metaop.unified_graph.node import Node


class LocalProgram:
    """What one rank runs between collectives, as a function of arrays."""

    def __init__(self, inputs: Sequence[Node], outputs: Sequence[Node]) -> None:
        from metaop.codegen.llvm.machine import host_machine
        from metaop.codegen.llvm.program import LLVMProgram

        self.outputs = outputs
        self.program = LLVMProgram(schedule(inputs, outputs, host_machine()))
        self.arena_bytes: int = self.program.layout.arena_bytes
        self._finished_after = self.program.finished_after

    def __call__(
        self, arrays: Sequence[np.ndarray], ready: Callable[[int, Any], None] | None = None
    ) -> list[np.ndarray]:
        """The results. `ready` is called between kernels: with the number of each result and the
        result as soon as it is complete, and with -1 and None when none is."""
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


class ReferenceLocalProgram:
    """The same on NumPy, the oracle."""

    arena_bytes = 0

    def __init__(self, inputs: Sequence[Node], outputs: Sequence[Node]) -> None:
        self.outputs = outputs

    def __call__(
        self, arrays: Sequence[np.ndarray], ready: Callable[[int, Any], None] | None = None
    ) -> list[np.ndarray]:
        """The results, ready when all of them are."""
        from metaop.codegen.reference import evaluate

        results = evaluate(self.outputs, list(arrays))
        if ready is not None:
            for k, result in enumerate(results):
                ready(k, result)
        return results


def compile_local(
    inputs: Sequence[Node], outputs: Sequence[Node]
) -> LocalProgram | ReferenceLocalProgram:
    """What one rank runs between collectives."""
    if get("METAOP_BACKEND") == "reference":
        return ReferenceLocalProgram(inputs, outputs)
    return LocalProgram(inputs, outputs)
