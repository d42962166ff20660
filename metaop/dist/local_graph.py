"""The graphs that one rank runs, stage by stage, according to a plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from metaop.dist.localise import mesh_local_node, take_block
from metaop.dist.sbp import Split, mesh_shape
from metaop.dist.sharding_search import Plan, State, needed
from metaop.unified_graph.node import Node, input_node

Place = tuple[int, ...]


class Stage(NamedTuple):
    """A local graph: its inputs with their states, and its outputs."""

    sources: list[State]
    inputs: list[Node]
    outputs: list[Node]


def local_stages(plan: Plan, place: Place) -> list[Stage]:
    """What the rank at `place` computes between the collectives of a plan."""
    outside: set[State] = set(zip(plan.inputs, plan.given))
    stages = []
    for goals, boxes in zip(plan.stages, plan.boxes):
        wanted = [goal for goal in goals if goal not in outside]
        stages.append(_stage(plan, wanted, outside, place))
        outside.update(wanted)
        outside.update((node, move.target) for node, move in boxes)
    return stages


def _stage(plan: Plan, goals: Sequence[State], outside: set[State], place: Place) -> Stage:
    built: dict[State, Node] = {}
    sources: list[State] = []
    for goal in goals:
        stack = [goal]
        while stack:
            pair = stack[-1]
            if pair in built:
                stack.pop()
                continue
            if pair in outside:
                node, states = stack.pop()
                shape = mesh_shape(node.shape, states, plan.mesh, place)
                built[pair] = input_node(len(sources), shape, node.dtype)
                sources.append(pair)
                continue
            below = needed(pair, plan.table)
            missing = [source for source in below if source not in built]
            if missing:
                stack.extend(missing)
                continue
            stack.pop()
            built[pair] = _local(plan, pair, [built[source] for source in below], place)
    inputs = [built[pair] for pair in sources]
    return Stage(sources, inputs, [built[goal] for goal in goals])


def _local(plan: Plan, pair: State, sources: list[Node], place: Place) -> Node:
    node, states = pair
    way = plan.table[node][states]
    if way.rule is not None:
        return mesh_local_node(node, way.rule, sources, plan.mesh, place)
    assert way.moved is not None
    axis = way.moved.axis
    state = states[axis]
    assert isinstance(state, Split)
    return take_block(sources[0], state.axis, plan.mesh[axis], place[axis])
