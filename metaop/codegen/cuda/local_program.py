"""The part of a distributed program that one rank runs on its GPU between collectives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from metaop.codegen.cuda.program import CudaProgram
from metaop.codegen.cuda.runtime import DeviceBuffer, Runtime
from metaop.codegen.schedule import Schedule


class CudaLocalProgram:
    """A function of arrays on the GPU, which runs asynchronously."""

    def __init__(self, schedule: Schedule, device: Runtime) -> None:
        self.outputs = schedule.outputs
        self.program = CudaProgram(schedule, device, waits=True)
        self.arena_bytes: int = self.program.arena_bytes

    def __call__(
        self, arrays: Sequence[Any], ready: Callable[[int, Any], None] | None = None
    ) -> list[Any]:
        """The results; `ready` gets the number of each and the result.

        It is called as soon as the kernel that completes the result has been launched.
        """
        program = self.program
        given = [program.device.buffer_of(array) for array in arrays]

        def between(steps: int, results: list[DeviceBuffer]) -> None:
            assert ready is not None
            done = [k for k, last in enumerate(program.finished_after) if last == steps]
            for k in done:
                ready(k, self._array(k, results[k]))
            if not done:
                ready(-1, None)

        results = program.run(given, between=None if ready is None else between)
        return [self._array(k, buffer) for k, buffer in enumerate(results)]

    def _array(self, k: int, buffer: DeviceBuffer) -> Any:
        node = self.outputs[k]
        return self.program.device.array_of(buffer, node.shape, node.dtype.numpy)
