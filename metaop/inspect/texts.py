"""The pending computation of tensors as text, at every level from user calls to assembly.

Nothing is run: the tensors stay pending.
"""

from __future__ import annotations

from metaop.codegen.llvm import object_code
from metaop.codegen.llvm.emit import emit
from metaop.codegen.llvm.target import host_target
from metaop.codegen.schedule import Schedule, optimise, schedule
from metaop.codegen.show_nest import show_nest
from metaop.dist.assign import assign
from metaop.dist.picture import show_plan
from metaop.dist.sbp import BROADCAST
from metaop.errors import ArgumentError
from metaop.executor import pending_subgraph
from metaop.tensor.core import Tensor
from metaop.unified_graph.cut import Subgraph
from metaop.unified_graph.show import show_graph

_SYMBOL = "kernel"


def calls(*tensors: Tensor) -> str:
    """What the program has recorded to compute the tensors: one line a call."""
    pending = _pending(tensors)
    names = {leaf: f"leaf {number}" for number, leaf in enumerate(pending.leaves)}
    lines = [f"{name}: {leaf.type}" for leaf, name in names.items()]
    for number, call in enumerate(pending.order):
        names[call] = f"call {number}"
        sources = ", ".join(names[source] for source in pending.inputs_of(call))
        what = f"output {call.index} of" if call.signature is None else call.signature.composite
        lines.append(f"call {number}: {what} {sources} -> {call.type}")
    return "\n".join(lines) + "\n"


def graph(*tensors: Tensor, optimised: bool = False) -> str:
    """The meta-operators that compute the tensors, `optimised` as they are before fusion.

    Of global tensors it shows the plan of their ranks: how each value lies, by which signature it
    is computed, and the collectives between with the bytes that the first rank sends.
    """
    pending = _pending(tensors)
    inputs, outputs = pending.expand()
    placement = pending.outputs[0].type.device.placement
    if placement is not None:
        whole = (BROADCAST,) * placement.ranks.ndim
        given = [getattr(leaf.buffer, "states", whole) for leaf in pending.leaves]
        return f"{placement}\n{show_plan(assign(inputs, given, outputs, placement.shape))}"
    return show_graph(optimise(outputs) if optimised else outputs)


def kernels(*tensors: Tensor) -> str:
    """The kernels that compute the tensors, as loop nests, and the memory between them."""
    plan = _schedule(tensors)
    parts = [show_nest(launch.nest) for launch in plan.launches]
    summary = f"{len(parts)} kernels, {plan.arena_bytes} bytes of temporary memory\n"
    return "\n".join([*parts, summary])


def llvm(*tensors: Tensor) -> str:
    """The LLVM IR of the kernels that compute the tensors, before LLVM's own passes."""
    return "\n".join(_llvm_texts(tensors))


def assembly(*tensors: Tensor) -> str:
    """The machine code of the kernels that compute the tensors, for this processor."""
    return "\n".join(object_code.assembly(text) for text in _llvm_texts(tensors))


def _llvm_texts(tensors: tuple[Tensor, ...]) -> list[str]:
    launches = _schedule(tensors).launches
    return [emit(launch.nest, host_target(), _SYMBOL) for launch in launches]


def _schedule(tensors: tuple[Tensor, ...]) -> Schedule:
    return schedule(*_pending(tensors).expand())


def _pending(tensors: tuple[Tensor, ...]) -> Subgraph:
    recorded = [tensor.call for tensor in tensors]
    if not any(call.is_pending for call in recorded):
        raise ArgumentError(
            "nothing is pending: the values of these tensors are computed already",
            fix="look before the value is read (by print, item(), numpy() or optimizer.step())",
        )
    return pending_subgraph(recorded)
