"""The reference backend: NumPy, one meta-operator after another. The oracle of the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from metaop.codegen.backend import Argument
from metaop.codegen.memory import Buffer
from metaop.unified_graph.faults import INDEX_OUT_OF_RANGE, Fault
from metaop.unified_graph.node import Input, Node, topological


def evaluate(outputs: Sequence[Node], values: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The values of `outputs` when program input `k` has `values[k]`."""
    computed: dict[Node, np.ndarray] = {}
    for node in topological(outputs):
        if isinstance(node.op, Input):
            computed[node] = values[node.op.slot]
        else:
            computed[node] = node.op.reference(node, [computed[x] for x in node.inputs])
    return [computed[output] for output in outputs]


class ReferenceProgram:
    """A program that NumPy interprets."""

    def __init__(self, inputs: Sequence[Node], outputs: Sequence[Node]) -> None:
        self.inputs = list(inputs)
        self.outputs = list(outputs)
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
