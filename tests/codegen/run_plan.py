"""Runs scheduled graphs as machine code."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from metaop.codegen.llvm.program import LLVMProgram
from metaop.codegen.memory.buffers import Buffer
from metaop.codegen.schedule import Schedule
from metaop.unified_graph.node import Node


def values(nodes: Sequence[Node], seed: int = 0) -> list[np.ndarray]:
    """Normal numbers for the inputs of a graph."""
    random = np.random.default_rng(seed)
    return [random.standard_normal(node.shape).astype(node.dtype.numpy) for node in nodes]


def run(plan: Schedule, arrays: Sequence[np.ndarray], output: Node) -> np.ndarray:
    """The first result of a plan, which has the type of `output`; the arrays stay as they are."""
    buffers = [Buffer.from_numpy(array.copy()) for array in arrays]
    return LLVMProgram(plan).run(buffers)[0].view(output.shape, output.dtype.numpy)
