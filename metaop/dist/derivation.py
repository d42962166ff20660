"""The signatures of whole operators: the relational join of the rules of their meta-operators.

`_demand_table` works backwards: in which states must the inputs be for a node to have a given state
without communication? A replicated value can be split along any dimension, so demands for two
different splits of one input together demand a replicated one. Making a value partial costs
nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from metaop.dist.rules import is_source, rules
from metaop.dist.sbp import BROADCAST, Partial, Sbp, Split, can_split
from metaop.unified_graph.node import Input, Node, topological

# The required state of each input; None means any.
Demand = tuple["Sbp | None", ...]
Signature = tuple[tuple[Sbp, ...], tuple[Sbp, ...]]

# In long graphs, joins keep only the cheapest demands.
_KEPT = 256


def derive(inputs: Sequence[Node], outputs: Sequence[Node], ranks: int) -> list[Signature]:
    """Every signature of the graph that no other signature makes redundant."""
    table = _demand_table(inputs, outputs, ranks)
    found: list[tuple[Demand, tuple[Sbp, ...]]] = [((None,) * len(inputs), ())]
    for output in outputs:
        found = [
            (joined, (*states, state))
            for demand, states in found
            for state, more in table[output].items()
            for other in more
            if (joined := _join(demand, other)) is not None
        ][: _KEPT * 16]
    found = [entry for entry in dict.fromkeys(found) if not _is_trivial(*entry)]
    kept = [
        entry
        for entry in found
        if not any(other != entry and _dominates(other, entry) for other in found)
    ]
    signatures = [(tuple(s or BROADCAST for s in demand), states) for demand, states in kept]
    return sorted(dict.fromkeys(signatures), key=_order)


def text(signature: Signature) -> str:
    """Formats a signature as `S0,B->S0`."""
    inputs, outputs = signature
    return f"{','.join(map(repr, inputs))}->{','.join(map(repr, outputs))}"


def _order(signature: Signature) -> tuple:
    return tuple(
        (isinstance(s, Partial), s == BROADCAST, repr(s)) for side in signature[::-1] for s in side
    )


def _is_trivial(demand: Demand, states: tuple[Sbp, ...]) -> bool:
    """Whether all inputs are replicated and the result is split afterwards."""
    wanted = [s for s in demand if s is not None]
    return all(s == BROADCAST for s in wanted) and any(s != BROADCAST for s in states)


def _dominates(one: tuple[Demand, tuple], other: tuple[Demand, tuple]) -> bool:
    """Whether `one` demands no more than `other` and provides no less."""
    asks = all(_weaker(a, b) for a, b in zip(one[0], other[0]))
    gives = all(_weaker(b, a) or (a != b and _pads(a, b)) for a, b in zip(one[1], other[1]))
    return asks and gives


def _weaker(one: Sbp | None, other: Sbp | None) -> bool:
    return one is None or one == other or (isinstance(one, Split) and other == BROADCAST)


def _pads(one: Sbp, other: Sbp) -> bool:
    """Whether a split value becomes a partial one for free: with zeros beside the block."""
    return isinstance(one, Split) and other == Partial()


def _demand_table(
    inputs: Sequence[Node], outputs: Sequence[Node], ranks: int
) -> dict[Node, dict[Sbp, list[Demand]]]:
    """For every state of every node, the demands on the inputs."""
    position = {node: k for k, node in enumerate(inputs)}
    nothing: Demand = (None,) * len(inputs)
    table: dict[Node, dict[Sbp, list[Demand]]] = {}
    for node in topological(outputs):
        states: dict[Sbp, list[Demand]] = {}
        if isinstance(node.op, Input):
            k = position[node]
            names = ("add", "max", "min") if node.dtype.kind == "float" else ("add",)
            partial = [Partial(name) for name in names] if node.dtype.kind != "bool" else []
            possible: list[Sbp] = [BROADCAST, *can_split(node.shape, ranks), *partial]
            for state in possible:
                states[state] = [(*nothing[:k], state, *nothing[k + 1 :])]
        else:
            for rule in rules(node, ranks):
                joined = [nothing]
                for source, state in zip(node.inputs, rule.inputs):
                    joined = _join_all(joined, table[source].get(state, []))
                if joined:
                    states.setdefault(rule.output, []).extend(joined)
        whole = states.get(BROADCAST, [])
        for split in can_split(node.shape, ranks):
            states.setdefault(split, []).extend([nothing] if is_source(node) else whole)
        table[node] = {state: _prune(demands) for state, demands in states.items() if demands}
    return table


def _join_all(left: list[Demand], right: list[Demand]) -> list[Demand]:
    joined = (_join(a, b) for a in left for b in right)
    return _prune([demand for demand in joined if demand is not None])


def _join(left: Demand, right: Demand) -> Demand | None:
    """The weakest demand that implies both; None if one input must be partial and replicated."""
    result: list[Sbp | None] = []
    for a, b in zip(left, right):
        if a is None or b is None or a == b:
            result.append(b if a is None else a)
        elif isinstance(a, Partial) or isinstance(b, Partial):
            return None
        else:
            result.append(BROADCAST)
    return tuple(result)


def _prune(demands: list[Demand]) -> list[Demand]:
    unique = list(dict.fromkeys(demands))
    kept = [
        demand
        for demand in unique
        if not any(
            other is not demand and all(_weaker(a, b) for a, b in zip(other, demand))
            for other in unique
        )
    ]
    kept.sort(key=lambda demand: sum(s is not None and s == BROADCAST for s in demand))
    return kept[:_KEPT]
