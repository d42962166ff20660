"""The CPU as a backend of the compiler."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from metaop.codegen.backend import Backend, LocalProgram
from metaop.codegen.llvm.general import GeneralProgram
from metaop.codegen.llvm.kernels import text_of
from metaop.codegen.llvm.machine import host_machine
from metaop.codegen.llvm.program import LLVMProgram
from metaop.codegen.llvm.program_store import general_program_for, layout_for, layout_of_part
from metaop.codegen.llvm.tuning import tuned
from metaop.codegen.lowering import Machine
from metaop.codegen.memory.buffers import Buffer
from metaop.codegen.schedule import Schedule
from metaop.unified_graph.cut import Subgraph
from metaop.unified_graph.node import Node
from metaop.unified_graph.symbolic_cut import SymbolicCut


def _program(subgraph: Subgraph, scheduled: Callable[[], Schedule]) -> LLVMProgram:
    return LLVMProgram(layout_for(subgraph, scheduled))


def _machine(index: int) -> Machine:
    return tuned(host_machine())


def _local(
    inputs: Sequence[Node], outputs: Sequence[Node], scheduled: Callable[[], Schedule], index: int
) -> LocalProgram:
    program = LLVMProgram(layout_of_part(inputs, outputs, scheduled))
    return LocalProgram(program, outputs, Buffer.from_numpy, Buffer.view)


def _general(cut: SymbolicCut, scheduled: Callable[[], Schedule]) -> GeneralProgram:
    return general_program_for(cut, lambda: GeneralProgram.of(scheduled(), cut.expected))


LLVM = Backend(_program, _machine, text_of, _general, _local)
