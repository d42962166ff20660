"""What one rank of a distributed program runs on its GPU between collectives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from metaop.codegen.cuda.device import Runtime
from metaop.codegen.cuda.program import CudaProgram
from metaop.codegen.schedule import Schedule


class CudaLocalProgram:
    """A function of arrays on the GPU; what it starts goes on while the host does."""

    def __init__(self, schedule: Schedule, device: Runtime) -> None:
        self.outputs = schedule.outputs
        self.program = CudaProgram(schedule, device)
        self.arena_bytes: int = self.program.arena_bytes

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
