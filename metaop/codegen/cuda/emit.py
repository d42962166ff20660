"""The CUDA printer: a loop nest as the text of one kernel."""

from __future__ import annotations

from metaop.codegen.cuda.hazards import accesses
from metaop.codegen.cuda.layout import Layout, layout_of, task_of, vector_loops
from metaop.codegen.cuda.prelude import prelude
from metaop.codegen.cuda.statements import Statements
from metaop.codegen.cuda.types import storage_type
from metaop.codegen.nest import ir
from metaop.codegen.nest.in_place import possible_pairs


def emit(nest: ir.LoopNest, symbol: str, layout: Layout | None = None) -> str:
    """The CUDA C++ of a nest: `extern "C"` kernel `symbol` and the functions that it calls.

    Its parameters are the buffers, the arguments and the error slot. It is launched with
    `layout.threads` threads per block; any number of blocks computes the same.
    """
    layout = layout or layout_of(nest)
    statements = Statements(nest, layout)
    statements.kernel()
    body = "\n".join(statements.lines)
    resident = f", {layout.resident}" if layout.resident else ""
    bounds = f"__launch_bounds__({layout.threads}{resident})"
    parameters = ",\n    ".join(_parameters(nest))
    kernel = f'extern "C" __global__ void {bounds} {symbol}(\n    {parameters})\n{{\n{body}\n}}\n'
    functions = list(statements.functions.values())
    named = prelude("\n".join([kernel, *functions]))
    parts = [f"typedef {layout.index_type} index_t;\n", named, *functions, kernel]
    return "\n".join(part for part in parts if part)


def _parameters(nest: ir.LoopNest) -> list[str]:
    result = []
    # Pairs of a result and an operand that may alias.
    sharing = {number for pair in possible_pairs(nest) for number in pair}
    sharing |= _seemingly_shared(nest)
    for number, parameter in enumerate(nest.parameters):
        constant = "const " if parameter.role == "read" else ""
        alone = parameter.role in ("read", "write") and number not in sharing
        restrict = " __restrict__" if alone else ""
        result.append(f"{constant}{storage_type(parameter.dtype)}*{restrict} b{number}")
    result.extend(f"const index_t arg{k}" for k in range(len(nest.arguments)))
    result.append("long long* error")
    return result


def _seemingly_shared(nest: ir.LoopNest) -> set[int]:
    """What is read ahead into registers, and results.

    If the compiler knew that nobody writes what is read, it would move the reads behind the next
    barrier and most of the arithmetic, to save registers. They would then hide no latency.
    """
    body, _ = task_of(nest)
    registers = {x.buffer for x in body if isinstance(x, ir.Alloc) and x.space == "register"}
    found: set[int] = set()
    for loop in vector_loops(body):
        reads, writes = accesses(loop.body)
        if writes & registers:
            found |= {number for number in reads if number >= 0}
    results = {k for k, parameter in enumerate(nest.parameters) if parameter.role == "write"}
    return found | results if found else found
