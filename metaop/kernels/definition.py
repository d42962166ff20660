"""Kernels specialised for operand types, in the form that the compiler takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import numpy as np

from metaop.codegen.cuda.layout import layout_of
from metaop.codegen.nest import ir
from metaop.codegen.nest.generalise import skeleton
from metaop.errors import KernelError
from metaop.kernels.checked import Scalar
from metaop.kernels.interpreter import Calls, Interpreter
from metaop.kernels.memory import Buffer
from metaop.kernels.source import Source
from metaop.kernels.translation import Launch, Translation
from metaop.unified_graph.code import Result
from metaop.unified_graph.node import Node

# The shared memory that a block of a GPU may use without a request to the driver.
_SHARED_BYTES = 48 << 10


@dataclass(eq=False)
class KernelDefinition:
    """A kernel translated for certain operand types; shared memories are hidden results.

    `parameters` are the meanings of the kernel's parameters, in order.
    """

    source: Source
    inputs: Sequence[Node]
    results: tuple[Result, ...]
    parameters: dict[str, Any]
    tasks: int
    digest: str = ""
    launches: list[Launch] = field(default_factory=list)
    calls: Calls = field(default_factory=dict)

    def __post_init__(self) -> None:
        operands = len(self.inputs) + len(self.results)
        translation = Translation(self.source, self.parameters, operands, self.tasks)
        self.launches = translation.translate()
        self.calls = translation.calls
        self.visible = len(self.results)
        shared = [Result(one.shape, one.dtype) for one in translation.shared_memories]
        self.results = (*self.results, *shared)
        self.digest = digest_of(self.launches, self.results)

    @property
    def name(self) -> str:
        return self.source.name

    def nests(self, backend: str) -> Sequence[tuple[ir.LoopNest, tuple[int, ...]]]:
        if backend == "llvm":
            return self.launches
        return [launch._replace(nest=_on_gpu(launch.nest)) for launch in self.launches]

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Interprets the kernel; IndexError for an access out of bounds, KernelError for a race."""
        interpreter, arguments, results = self.interpreted(inputs)
        interpreter.run(arguments)
        return results

    def interpreted(
        self, inputs: Sequence[np.ndarray], steps: bool = False
    ) -> tuple[Interpreter, dict[str, Any], list[np.ndarray]]:
        """The interpreter of the kernel, the arguments of its tasks, and the arrays of results."""
        interpreter = Interpreter(self.source, self.calls, self.tasks, steps)
        made = [np.zeros(one.shape, one.dtype.numpy) for one in self.results]
        for array, result in zip(made, self.results):
            array[...] = result.initial or 0
        arrays = [*inputs, *made]
        arguments: dict[str, Any] = {}
        for name, item in self.parameters.items():
            if isinstance(item, Buffer) and item.is_number:
                arguments[name] = Scalar(arrays[item.position], item.dtype, weak=True)
            elif isinstance(item, Buffer):
                values = np.asarray(arrays[item.position], order="C")
                arrays[item.position] = values
                arguments[name] = interpreter.memory(item, values, self._is_full(item.position))
            else:
                arguments[name] = item
        return interpreter, arguments, arrays[len(inputs) :]

    def _is_full(self, position: int) -> bool:
        number = position - len(self.inputs)
        return number < 0 or self.results[number].initial is not None


def digest_of(launches: Sequence[Launch], results: Sequence[Result]) -> str:
    """A hash of everything that the launches compute."""
    forms = [(skeleton(launch.nest), launch.nest.work, launch.buffers) for launch in launches]
    return blake2b(repr((forms, results)).encode(), digest_size=16).hexdigest()


def _on_gpu(nest: ir.LoopNest) -> ir.LoopNest:
    """The nest with its scratch memory in a space that the threads of one task share."""
    loop = nest.body[-1]
    assert isinstance(loop, ir.For)
    allocs = [one for one in loop.body if isinstance(one, ir.Alloc)]
    if not allocs:
        return nest
    space = "register" if layout_of(nest).lanes == 1 else "shared"
    size = sum(one.elements * one.dtype.itemsize for one in allocs)  # type: ignore[operator,misc]
    if space == "shared" and size > _SHARED_BYTES:
        raise KernelError(
            f"{nest.name} takes {size} bytes of scratch memory, a block of a GPU has "
            f"{_SHARED_BYTES}",
            fix="let a task work on a smaller part at a time",
        )
    body = tuple(
        one._replace(space=space) if isinstance(one, ir.Alloc) else one for one in loop.body
    )
    return nest._replace(body=(*nest.body[:-1], loop._replace(body=body)))
