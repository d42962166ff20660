"""Searching how the inputs of a graph should lie: parallelism that is found, not chosen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from metaop.dist.assign import Plan, assign
from metaop.dist.sbp import BROADCAST, Sbp, can_split
from metaop.dist.trace import trace
from metaop.unified_graph.node import Node

_ROUNDS = 8


def search(
    inputs: Sequence[Node],
    outputs: Sequence[Node],
    ranks: int,
    wanted: Callable[[Sequence[Sbp]], Sequence[Sbp]],
    starts: Sequence[Sequence[Sbp]],
) -> Plan:
    """The cheapest plan that changing the lie of one input after another finds.

    `wanted` gives the states of the outputs from those of the inputs; the search begins at each
    of `starts`.
    """
    found: Plan | None = None
    for start in starts:
        states = list(start)
        best = assign(inputs, states, outputs, ranks, wanted(states))
        for _ in range(_ROUNDS):
            cost = best.cost()
            for k, node in enumerate(inputs):
                choices: list[Sbp] = [BROADCAST, *can_split(node.shape, ranks)]
                for state in choices:
                    trial = [*states[:k], state, *states[k + 1 :]]
                    plan = assign(inputs, trial, outputs, ranks, wanted(trial))
                    if plan.cost() < best.cost():
                        best, states = plan, trial
            if best.cost() == cost:
                break
        if found is None or best.cost() < found.cost():
            found = best
    assert found is not None
    return found


def auto_parallel(
    step: Callable[..., Any], *tensors: Any, ranks: int, updated: Sequence[int] = ()
) -> Plan:
    """The cheapest way found to run `step` on `ranks` ranks: `plan.given` says how inputs lie.

    `updated` are the inputs that the outputs, in order, replace (parameters): they come out as
    they went in. Other outputs may come out as they like.
    """
    inputs, outputs = trace(step, *tensors)

    def wanted(states: Sequence[Sbp]) -> list[Sbp]:
        rest = [BROADCAST] * (len(outputs) - len(updated))
        return [*(states[k] for k in updated), *rest]

    whole: list[Sbp] = [BROADCAST] * len(inputs)
    splits = [can_split(node.shape, ranks) for node in inputs]
    first = [split[0] if split else BROADCAST for split in splits]
    data: list[Sbp] = [BROADCAST if k in updated else state for k, state in enumerate(first)]
    return search(inputs, outputs, ranks, wanted, [whole, first, data])


def explain_plan(plan: Plan, ranks: int) -> str:
    """How inputs and outputs lie, the collectives in order, and the cost of the plan."""
    lines = []
    for label, nodes, states in (
        ("input", plan.inputs, plan.given),
        ("output", plan.outputs, plan.states),
    ):
        for k, (node, state) in enumerate(zip(nodes, states)):
            lines.append(f"{label} {k}: {node.dtype.name}{list(node.shape)} {state!r}")
    for boxes in plan.boxes:
        for node, source, target in boxes:
            lines.append(f"send {node.dtype.name}{list(node.shape)} {source!r} -> {target!r}")
    lines.append(f"cost {plan.cost():.0f} weighted bytes for each of {ranks} ranks")
    return "\n".join(lines)
