"""The reference backend: NumPy, one meta-operator at a time. The oracle of the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from metaop.codegen.backend import Argument, Backend
from metaop.codegen.memory.buffers import Buffer
from metaop.fusion.two_stages import with_short_scans
from metaop.unified_graph.cut import Subgraph
from metaop.unified_graph.evaluation import evaluate
from metaop.unified_graph.faults import INDEX_OUT_OF_RANGE, Fault

if TYPE_CHECKING:
    from metaop.codegen.schedule import Schedule
    from metaop.unified_graph.node import Node


class ReferenceProgram:
    """A program that NumPy interprets."""

    def __init__(self, schedule: Schedule) -> None:
        self.inputs = schedule.inputs
        self.outputs = with_short_scans(schedule.outputs)
        self.donors: dict[int, int] = {}

    def run(
        self, arguments: Sequence[Argument], memory: Mapping[int, Any] | None = None
    ) -> list[Buffer]:
        values = [
            argument.view(node.shape, node.dtype.numpy)
            if isinstance(argument, Buffer)
            else np.asarray(argument).astype(node.dtype.numpy)
            for node, argument in zip(self.inputs, arguments)
        ]
        try:
            results = evaluate(self.outputs, values)
        except IndexError as error:
            raise Fault(INDEX_OUT_OF_RANGE, str(error)) from None
        return [Buffer.from_numpy(np.array(result, order="C")) for result in results]


class ReferenceLocalProgram:
    """The same as a function of arrays; all results are ready at the end."""

    arena_bytes = 0

    def __init__(self, outputs: Sequence[Node]) -> None:
        self.outputs = with_short_scans(outputs)

    def __call__(
        self, arrays: Sequence[np.ndarray], ready: Callable[[int, Any], None] | None = None
    ) -> list[np.ndarray]:
        results = evaluate(self.outputs, list(arrays))
        if ready is not None:
            for k, result in enumerate(results):
                ready(k, result)
        return results


def _program(subgraph: Subgraph, scheduled: Callable[[], Schedule]) -> ReferenceProgram:
    return ReferenceProgram(scheduled())


def _local(
    inputs: Sequence[Node], outputs: Sequence[Node], scheduled: Callable[[], Schedule], index: int
) -> ReferenceLocalProgram:
    return ReferenceLocalProgram(outputs)


# It is also the oracle of the passes, so none of them runs.
REFERENCE = Backend(_program, local=_local)
