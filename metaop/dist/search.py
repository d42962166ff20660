"""Automatic parallelism: searches for the cheapest sharding of the inputs of a graph.

The search changes the sharding of one group of similar inputs after another, as long as the plan
that `assign` makes gets cheaper. Inputs are similar if they have the same type and the same role in
the graph, as the weights of equal layers have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from metaop.dist.cost import HOST, Cluster
from metaop.dist.moves import states_of
from metaop.dist.sbp import BROADCAST, Mesh, NdSbp, Split, nd_text
from metaop.dist.sharding_search import Plan, assign
from metaop.dist.trace import trace
from metaop.unified_graph.node import Node, topological

_ROUNDS = 4
# The number of steps around an input that define its role in the graph.
_DEPTH = 3


class Search:
    """Searches for the cheapest way to shard the inputs of a graph on a mesh.

    `updated` are the inputs that the outputs, in order, replace (parameters): these outputs keep
    the sharding of the inputs; other outputs may have any. A plan whose inputs take more than
    `memory` bytes per rank is chosen only if there is no smaller one. Inputs in `fixed` are
    sharded as given there.
    """

    def __init__(
        self,
        inputs: Sequence[Node],
        outputs: Sequence[Node],
        mesh: Mesh,
        updated: Sequence[int] = (),
        cluster: Cluster = HOST,
        memory: int | None = None,
        fixed: Mapping[int, NdSbp] | None = None,
    ) -> None:
        self.fixed = fixed or {}
        self.inputs, self.outputs, self.mesh = inputs, outputs, mesh
        self.updated, self.cluster, self.memory = updated, cluster, memory
        alike = _alike(inputs, outputs, updated)
        free = ([k for k in group if k not in self.fixed] for group in alike)
        self.groups = [group for group in free if group]
        self._plans: dict[tuple[NdSbp, ...], Plan] = {}

    def best(self) -> Plan:
        """The cheapest plan found, from several starts."""
        starts = [[self._start(k, rule) for k in range(len(self.inputs))] for rule in range(3)]
        plans = [self._improved(start) for start in starts]
        return min(plans, key=self._price)

    def _start(self, k: int, rule: int) -> NdSbp:
        """A starting point: all inputs replicated, data split along dimension 0, or all split."""
        if k in self.fixed:
            return self.fixed[k]
        whole = (BROADCAST,) * len(self.mesh)
        first = (Split(0),) * len(self.mesh)
        possible = first in states_of(self.inputs[k].shape, self.mesh)
        wanted = rule == 2 or (rule == 1 and k not in self.updated)
        return first if wanted and possible else whole

    def _improved(self, states: list[NdSbp]) -> Plan:
        best = self._plan(states)
        for _ in range(_ROUNDS):
            before = best
            for group in self.groups:
                for trial in self._trials(best.given, group):
                    plan = self._plan(trial)
                    if self._price(plan) < self._price(best):
                        best = plan
            if best is before:
                break
        return best

    def _trials(self, given: Sequence[NdSbp], group: Sequence[int]) -> Iterator[list[NdSbp]]:
        """Alternative shardings of the group along one axis of the mesh."""
        first = group[0]
        for choice in states_of(self.inputs[first].shape, self.mesh):
            if sum(a is not b for a, b in zip(choice, given[first])) == 1:
                trial = list(given)
                for k in group:
                    trial[k] = choice
                yield trial

    def _plan(self, states: Sequence[NdSbp]) -> Plan:
        key = tuple(states)
        if key not in self._plans:
            whole = (BROADCAST,) * len(self.mesh)
            rest = [whole] * (len(self.outputs) - len(self.updated))
            wanted = [*(states[k] for k in self.updated), *rest]
            self._plans[key] = assign(
                self.inputs, states, self.outputs, self.mesh, wanted, cluster=self.cluster
            )
        return self._plans[key]

    def _price(self, plan: Plan) -> tuple[int, float]:
        excess = 0 if self.memory is None else max(0, plan.input_bytes() - self.memory)
        return excess, plan.cost()


def _alike(
    inputs: Sequence[Node], outputs: Sequence[Node], updated: Sequence[int]
) -> Iterator[list[int]]:
    """The numbers of inputs, grouped by type and role in the graph, largest group first."""
    order = topological(outputs)
    colors: dict[Node, int] = {
        node: hash((type(node.op).__name__, node.shape, node.dtype.name)) for node in order
    }
    for _ in range(_DEPTH):
        readers: dict[Node, list[int]] = {node: [] for node in order}
        for node in order:
            for position, source in enumerate(node.inputs):
                readers[source].append(hash((position, colors[node])))
        colors = {
            node: hash(
                (
                    colors[node],
                    tuple(colors[source] for source in node.inputs),
                    tuple(sorted(readers[node])),
                )
            )
            for node in order
        }
    groups: dict[tuple, list[int]] = {}
    for k, node in enumerate(inputs):
        if node in colors and node.shape:
            groups.setdefault((colors[node], k in updated), []).append(k)
    yield from sorted(groups.values(), key=lambda group: -sum(inputs[k].nbytes for k in group))


def auto_parallel(
    step: Callable[..., Any],
    *tensors: Any,
    ranks: int | Mesh,
    updated: Sequence[int] = (),
    cluster: Cluster = HOST,
    memory: int | None = None,
) -> Plan:
    """The cheapest way to run `step` on `ranks` ranks: `plan.given` is how inputs are sharded.

    `ranks` is a number or the shape of a mesh. `updated` are the inputs that the outputs, in
    order, replace (parameters): these outputs keep their sharding. Other outputs are whole.
    `memory` limits the bytes that the inputs may take on a rank.
    """
    inputs, outputs = trace(step, *tensors)
    mesh = (ranks,) if isinstance(ranks, int) else tuple(ranks)
    return Search(inputs, outputs, mesh, updated, cluster, memory).best()


def explain_plan(plan: Plan) -> str:
    """Describes the sharding of inputs and outputs, the collectives in order, and the cost."""
    lines = []
    for label, nodes, given in (
        ("input", plan.inputs, plan.given),
        ("output", plan.outputs, plan.states),
    ):
        for k, (node, states) in enumerate(zip(nodes, given)):
            lines.append(f"{label} {k}: {node.dtype.name}{list(node.shape)} {nd_text(states)}")
    for boxes in plan.boxes:
        for node, move in boxes:
            kind = f"{node.dtype.name}{list(node.shape)}"
            lines.append(f"send {kind} {nd_text(move.source)} -> {nd_text(move.target)}")
    lines.append(f"cost {1e3 * plan.cost():.6f} ms on a mesh of shape {list(plan.mesh)}")
    return "\n".join(lines)
