"""The compiler on one page: a graph of meta-operators becomes a program.

    simplify                fold constants, join reindexes, turn affine scatters into gathers
    split_long_reductions   few long rows become partial results and their reduction
    group                   choose what gets a buffer and what shares a kernel
    lower                   kernel -> loop nest
    plan                    lifetimes -> offsets in one arena
    emit                    loop nest -> LLVM IR | CUDA C++ -> machine code
"""

from __future__ import annotations

from collections.abc import Sequence

from metaop.codegen.backend import Program
from metaop.codegen.schedule import schedule
from metaop.settings import get
from metaop.unified_graph.node import Node
from metaop.unified_graph.tensor_type import Device


def compile_graph(inputs: Sequence[Node], outputs: Sequence[Node], device: Device) -> Program:
    """The program that computes `outputs` from `inputs` on `device`."""
    if device.type == "cuda":
        from metaop.codegen.cuda.program import compile_for_cuda

        return compile_for_cuda(inputs, outputs, device.index or 0)
    if get("METAOP_BACKEND") == "reference":
        from metaop.codegen.reference import ReferenceProgram

        return ReferenceProgram(inputs, outputs)
    from metaop.codegen.llvm.machine import host_machine
    from metaop.codegen.llvm.program import LLVMProgram

    return LLVMProgram(schedule(inputs, outputs, host_machine()))
