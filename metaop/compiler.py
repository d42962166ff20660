"""The compiler on one page: a graph of meta-operators becomes a program.

The passes run in the order in which they stand here.
"""

from __future__ import annotations

from collections.abc import Sequence

from metaop.codegen.backend import Program
from metaop.codegen.reference import ReferenceProgram
from metaop.unified_graph.node import Node
from metaop.unified_graph.tensor_type import Device


def compile_graph(inputs: Sequence[Node], outputs: Sequence[Node], device: Device) -> Program:
    """The program that computes `outputs` from `inputs` on `device`."""
    return ReferenceProgram(inputs, outputs)
