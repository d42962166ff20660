"""The reference backend: NumPy, one meta-operator at a time. The oracle of the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from metaop.codegen.backend import Argument, Backend, Between, LocalProgram
from metaop.codegen.memory.buffers import Buffer
from metaop.fusion.two_stages import with_short_scans
from metaop.unified_graph.cut import Subgraph
from metaop.unified_graph.evaluation import evaluate
from metaop.unified_graph.faults import INDEX_OUT_OF_RANGE, Fault

if TYPE_CHECKING:
    from metaop.codegen.schedule import Schedule
    from metaop.unified_graph.node import Node


class ReferenceProgram:
    """A program that NumPy interprets in one step."""

    arena_bytes = 0

    def __init__(self, inputs: Sequence[Node], outputs: Sequence[Node]) -> None:
        self.inputs = inputs
        self.outputs = with_short_scans(outputs)
        self.donors: dict[int, int] = {}
        self.finished_after = [1] * len(outputs)

    def run(
        self,
        arguments: Sequence[Argument],
        memory: Mapping[int, Any] | None = None,
        between: Between | None = None,
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
        buffers = [Buffer.from_numpy(np.array(result, order="C")) for result in results]
        if between is not None:
            between(1, buffers)
        return buffers


def _program(subgraph: Subgraph, scheduled: Callable[[], Schedule]) -> ReferenceProgram:
    schedule = scheduled()
    return ReferenceProgram(schedule.inputs, schedule.outputs)


def _local(inputs: Sequence[Node], outputs: Sequence[Node], *_: Any) -> LocalProgram:
    program = ReferenceProgram(inputs, outputs)
    return LocalProgram(program, outputs, Buffer.from_numpy, Buffer.view)


# It is also the oracle of the passes, so none of them runs.
REFERENCE = Backend(_program, local=_local)
