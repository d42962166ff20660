"""Predicts a training step on a cluster that need not exist.

Example: a step on 16 hosts of 8 ranks each, with a slow network and a fast link within a host.

    cluster = Cluster(flops=1e14, memory_bandwidth=2e12, links=(Link(1e-5, 1e10), Link(3e-6, 2e11)))
    found = predict(step, *tensors, ranks=(16, 8), updated=range(count), cluster=cluster)
    print(found)
    Path("step.json").write_text(found.chrome_trace())
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from metaop.codegen.estimate import ProgramWork, program_work
from metaop.codegen.llvm.machine import host_machine
from metaop.compiler import schedule
from metaop.dist.cost import HOST, Cluster
from metaop.dist.cost import Link as Link
from metaop.dist.sbp import BROADCAST, Mesh, NdSbp
from metaop.dist.search import auto_parallel
from metaop.dist.sharding_search import Plan, assign
from metaop.dist.simulate import Prediction, simulate
from metaop.dist.trace import trace
from metaop.unified_graph.node import Node


def predict(
    step: Callable[..., Any],
    *tensors: Any,
    ranks: int | Mesh,
    given: Sequence[NdSbp] | None = None,
    updated: Sequence[int] = (),
    cluster: Cluster = HOST,
    memory: int | None = None,
) -> Prediction:
    """Time, traffic and memory of `step` for one of `ranks` ranks (a number or a mesh shape).

    `given` says how the tensors are sharded; by default, the cheapest way is searched. `updated`
    are the tensors that the outputs, in order, replace. The tensors may be zeros: nothing is
    computed.
    """
    if given is None:
        plan = auto_parallel(
            step, *tensors, ranks=ranks, updated=updated, cluster=cluster, memory=memory
        )
    else:
        plan = plan_for(step, *tensors, ranks=ranks, given=given, updated=updated, cluster=cluster)
    return predict_plan(plan, cluster)


def plan_for(
    step: Callable[..., Any],
    *tensors: Any,
    ranks: int | Mesh,
    given: Sequence[NdSbp],
    updated: Sequence[int] = (),
    cluster: Cluster = HOST,
) -> Plan:
    """The plan for `step` on tensors sharded as `given`."""
    inputs, outputs = trace(step, *tensors)
    mesh = (ranks,) if isinstance(ranks, int) else tuple(ranks)
    whole = (BROADCAST,) * len(mesh)
    states = [*given, *[whole] * (len(inputs) - len(given))]
    wanted = [*(given[k] for k in updated), *[whole] * (len(outputs) - len(updated))]
    return assign(inputs, states, outputs, mesh, wanted, cluster=cluster)


def predict_plan(
    plan: Plan, cluster: Cluster = HOST, place: tuple[int, ...] | None = None
) -> Prediction:
    """Predicts what the rank at `place` of the mesh (by default the first) will do."""
    return simulate(plan, _work, cluster, place)


def _work(inputs: Sequence[Node], outputs: Sequence[Node]) -> ProgramWork:
    return program_work(schedule(inputs, outputs, host_machine()))
