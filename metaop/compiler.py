"""The compiler on one page: a subgraph becomes a program.

The passes, in their order:

    simplify                fold constants, join reindexes, turn affine scatters into gathers
    lay_apart               sums of terms that do not overlap become choices by position
    reduce_terms            sums over sums of products become sums of contractions
    join_reductions         sums of reductions that are alike become one reduction
    split_long_reductions   few long rows become partial results and their reduction
    recompute               what is kept from before the peak of memory, what is computed again
    group                   choose what gets a buffer and what shares a kernel
    lower                   kernel -> loop nest
    gather_bands            launches that run slice by slice, together
    plan                    lifetimes -> offsets in one arena
    emit                    loop nest -> LLVM IR | CUDA C++ -> machine code
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from metaop.codegen.backend import Program
from metaop.codegen.local_program import compile_local
from metaop.codegen.schedule import schedule
from metaop.settings import get
from metaop.unified_graph.cut import Subgraph


def compile_subgraph(subgraph: Subgraph) -> Program:
    """The program that computes the outputs of a subgraph from its leaves."""
    device = subgraph.outputs[0].type.device
    if device.placement is not None:
        from metaop.dist.program import DistributedProgram

        compile_part: Any = compile_local
        if device.type == "cuda":
            from metaop.codegen.cuda.local_program import local_compiler

            compile_part = local_compiler(device.placement.memory.index)
        return DistributedProgram(*subgraph.expand(), device.placement.world, compile_part)
    if device.type == "cuda":
        from metaop.codegen.cuda.program import compile_for_cuda

        return compile_for_cuda(*subgraph.expand(), device.index or 0)
    if get("METAOP_BACKEND") == "reference":
        from metaop.codegen.reference import ReferenceProgram

        return ReferenceProgram(*subgraph.expand())
    from metaop.codegen.llvm.machine import host_machine
    from metaop.codegen.llvm.program import LLVMProgram
    from metaop.codegen.llvm.program_store import layout_for
    from metaop.codegen.llvm.tuning import tuned

    machine = tuned(host_machine())
    return LLVMProgram(layout_for(subgraph, lambda: schedule(*subgraph.expand(), machine)))


def disable(
    fn: Callable[..., Any] | None = None, recursive: bool = True, *, reason: str | None = None
) -> Any:
    """The function itself: nothing has to be kept from this compiler."""
    return (lambda function: function) if fn is None else fn


def is_compiling() -> bool:
    """Whether PyTorch's tracer runs: never."""
    return False
