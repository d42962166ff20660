"""How a subgraph is compiled, for inspection: all its stages, and the plan of its ranks."""

from __future__ import annotations

from collections.abc import Sequence

from metaop.compiler import BACKENDS, Compilation, backend_named, backend_of, compile_graph
from metaop.dist.local_graph import local_stages
from metaop.dist.sbp import BROADCAST
from metaop.dist.sharding_search import Plan, assign
from metaop.errors import ArgumentError
from metaop.unified_graph.cut import Subgraph


def plan_of(subgraph: Subgraph) -> Plan:
    """The sharding plan of a subgraph of global tensors."""
    inputs, outputs = subgraph.expand()
    shape = subgraph.outputs[0].type.device.placement.shape
    whole = (BROADCAST,) * len(shape)
    given = [getattr(leaf.buffer, "states", whole) for leaf in subgraph.leaves]
    return assign(inputs, given, outputs, shape)


def compilations_of(
    subgraph: Subgraph, backend: str | None = None, place: Sequence[int] | None = None
) -> list[Compilation]:
    """The compilations of a subgraph: one, or several if its tensors are global.

    For global tensors, these are the parts that the rank at `place` of the mesh (by default the
    first) runs between collectives.

    Raises ArgumentError for a backend that does not exist.
    """
    device = subgraph.outputs[0].type.device
    graphs = [subgraph.expand()]
    is_part = device.placement is not None
    if is_part:
        plan = plan_of(subgraph)
        own = local_stages(plan, tuple(place or (0,) * len(plan.mesh)))
        graphs = [(stage.inputs, stage.outputs) for stage in own if stage.outputs]
        device = device.placement.memory.device
    name = backend or backend_of(device)
    if name not in BACKENDS:
        raise ArgumentError(
            f"there is no backend {name!r}", fix='pass backend="llvm" or backend="cuda"'
        )
    found, index = backend_named(name), device.index or 0
    return [compile_graph(*graph, found, index, is_part) for graph in graphs]
