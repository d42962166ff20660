"""GPUs as a backend of the compiler."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from metaop.codegen.backend import Backend, LocalProgram
from metaop.codegen.cuda.device import runtime
from metaop.codegen.cuda.kernels import text_of
from metaop.codegen.cuda.program import CudaProgram
from metaop.codegen.cuda.schedules import CUDA as LARGE_GPU
from metaop.codegen.lowering import Machine
from metaop.codegen.schedule import Schedule
from metaop.errors import DeviceError
from metaop.unified_graph.cut import Subgraph
from metaop.unified_graph.node import Node


def _program(subgraph: Subgraph, scheduled: Callable[[], Schedule]) -> CudaProgram:
    device = runtime(subgraph.outputs[0].type.device.index or 0)
    return CudaProgram(scheduled(), device)


def _machine(index: int) -> Machine:
    """The schedules of a GPU; without one, those of a large GPU, to inspect what it would run."""
    try:
        return replace(LARGE_GPU, threads=runtime(index).multiprocessors)
    except DeviceError:
        return LARGE_GPU


def _local(
    inputs: Sequence[Node], outputs: Sequence[Node], scheduled: Callable[[], Schedule], index: int
) -> LocalProgram:
    made, device = scheduled(), runtime(index)
    program = CudaProgram(made, device, waits=True)
    return LocalProgram(program, made.outputs, device.buffer_of, device.array_of)


CUDA = Backend(_program, _machine, text_of, local=_local)
