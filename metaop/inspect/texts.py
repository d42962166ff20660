"""The pending computation of tensors as text, at every level from user calls to assembly.

Nothing runs: the tensors stay pending. The passes that would compile them
(`metaop.compiler.PASSES`) produce the text, for the machine that would run them.
"""

from __future__ import annotations

from collections.abc import Iterator

from metaop.codegen.llvm.objects import object_code
from metaop.codegen.lowering.repetition import flattened
from metaop.codegen.show_schedule import show_schedule
from metaop.dist.picture import show_plan
from metaop.errors import ArgumentError
from metaop.execution.compilations import compilations_of, plan_of
from metaop.execution.executor import pending_subgraph, with_loops
from metaop.execution.specialisation import described
from metaop.tensor.core import Tensor
from metaop.unified_graph.cut import Subgraph
from metaop.unified_graph.show import show_graph


def calls(*tensors: Tensor) -> str:
    """The calls that the program recorded to compute the tensors, one line per call.

    >>> print(metaop.inspect.calls(metaop.ones(2).exp()), end="")
    call 0: constant_fill  -> float32[2]
    call 1: exp call 0 -> float32[2]
    """
    pending = pending_of(tensors)
    names = {leaf: f"leaf {number}" for number, leaf in enumerate(pending.leaves)}
    lines = [f"{name}: {leaf.type}" for leaf, name in names.items()]
    for number, call in enumerate(pending.order):
        names[call] = f"call {number}"
        sources = ", ".join(names[source] for source in pending.inputs_of(call))
        what = f"output {call.index} of" if call.signature is None else call.signature.composite
        lines.append(f"call {number}: {what} {sources} -> {call.type}")
    return "\n".join(lines) + "\n"


def graph(*tensors: Tensor, optimised: bool = False) -> str:
    """The meta-operators that compute the tensors; with `optimised`, as they are before fusion.

    For global tensors it shows the plan of the ranks: how each value is sharded, by which
    signature it is computed, and the collectives between with the bytes that the first rank sends.

    >>> print(metaop.inspect.graph(metaop.ones(2).exp() + 1), end="")
    %0 = constant 1.0  float32[2]
    %1 = exp %0        float32[2]
    %2 = add %1 %0     float32[2]
    return %2
    """
    pending = pending_of(tensors)
    placement = pending.outputs[0].type.device.placement
    if placement is not None:
        return f"{placement}\n{show_plan(plan_of(pending))}"
    if not optimised:
        return show_graph(pending.expand()[1])
    (compilation,) = compilations_of(pending)
    graphs = [stage.schedule for stage in compilation.stages if not stage.schedule.kernels]
    return show_graph(graphs[-1].outputs)


def kernels(*tensors: Tensor, backend: str | None = None) -> str:
    """The kernels that compute the tensors, as loop nests, and the memory between them.

    `backend` is "llvm" or "cuda", even if it cannot run here; the default is the backend that will
    run. For global tensors it shows what the first rank runs between collectives. The reference
    backend has no kernels; for it the graph is shown.

    >>> print(metaop.inspect.kernels(metaop.ones(2).exp(), backend="llvm").splitlines()[0])
    kernel map_constant(b0: write float32) arguments [] grain 16384
    """
    found = compilations_of(pending_of(tensors), backend)
    return "\n".join(show_schedule(one.schedule) for one in found)


def passes(*tensors: Tensor, backend: str | None = None) -> str:
    """The result and the purpose of every compiler pass on the tensors' computation.

    A pass that changes nothing shows only its name.

    >>> print(metaop.inspect.passes(metaop.ones(2).exp()).splitlines()[0])
    --- 0 expand: what was recorded, in meta-operators
    """
    parts = []
    for compilation in compilations_of(pending_of(tensors), backend):
        before = ""
        for number, stage in enumerate(compilation.stages):
            text = show_schedule(stage.schedule)
            shown = "unchanged\n" if text == before else text
            parts.append(f"--- {number} {stage.name}: {stage.why}\n\n{shown}")
            before = text
    return "\n".join(parts)


def sizes() -> str:
    """The programs that ran with more than one set of sizes, and the sizes that each covers.

    Symbols stand for sizes that varied; `s0 - 3 < 0` is a condition on one of them.

    >>> isinstance(metaop.inspect.sizes(), str)
    True
    """
    return described()


def llvm(*tensors: Tensor) -> str:
    """The LLVM IR of the kernels that compute the tensors, before LLVM's own passes.

    >>> "define void @kernel" in metaop.inspect.llvm(metaop.ones(2).exp())
    True
    """
    return "\n".join(_sources(tensors, "llvm"))


def cuda(*tensors: Tensor) -> str:
    """The CUDA C++ of the kernels that compute the tensors, for a large GPU if none is present.

    >>> "__global__" in metaop.inspect.cuda(metaop.ones(2).exp())
    True
    """
    return "\n".join(_sources(tensors, "cuda"))


def assembly(*tensors: Tensor) -> str:
    """The machine code of the kernels that compute the tensors, for this processor.

    >>> ".text" in metaop.inspect.assembly(metaop.ones(2).exp())
    True
    """
    return "\n".join(object_code.assembly(text) for text in _sources(tensors, "llvm"))


def _sources(tensors: tuple[Tensor, ...], backend: str) -> Iterator[str]:
    for compilation in compilations_of(pending_of(tensors), backend):
        source = compilation.backend.source
        assert source is not None
        yield from (source(launch.nest) for launch in flattened(compilation.schedule.launches))


def pending_of(tensors: tuple[Tensor, ...]) -> Subgraph:
    """The subgraph that runs for the tensors. Raises ArgumentError if there is none."""
    recorded = [tensor.call for tensor in tensors]
    if not any(call.is_pending for call in recorded):
        raise ArgumentError(
            "nothing is pending: the values of these tensors are already computed",
            fix="call it before the value is read (by print, item(), numpy() or optimizer.step())",
        )
    return with_loops(pending_subgraph(recorded))
