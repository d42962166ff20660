"""What one rank of a distributed program runs on its GPU between collectives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from metaop.codegen.cuda.program import CudaProgram, compile_for_cuda
from metaop.unified_graph.node import Node


class LocalCudaProgram:
    """A function of arrays on the GPU; what it starts goes on while the host does."""

    def __init__(self, inputs: Sequence[Node], outputs: Sequence[Node], index: int) -> None:
        self.outputs = outputs
        self.program: CudaProgram = compile_for_cuda(inputs, outputs, index)
        self.arena_bytes: int = self.program.schedule.arena_bytes

    def __call__(
        self, arrays: Sequence[Any], ready: Callable[[int, Any], None] | None = None
    ) -> list[Any]:
        """The results; `ready` is called with the number of each and the result."""
        device = self.program.device
        buffers = self.program.run([device.buffer_of(array) for array in arrays])
        results = [
            device.array_of(buffer, node.shape, node.dtype.numpy)
            for buffer, node in zip(buffers, self.outputs)
        ]
        if ready is not None:
            for number, result in enumerate(results):
                ready(number, result)
        return results


def local_compiler(index: int) -> Callable[[Sequence[Node], Sequence[Node]], LocalCudaProgram]:
    """The compiler for the GPU number `index`."""
    return lambda inputs, outputs: LocalCudaProgram(inputs, outputs, index)
