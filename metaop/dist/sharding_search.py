"""Chooses the sharding of every value of a graph, by the cost of computing and of moving data.

Costs are seconds on a `Cluster`. In topological order, the cheapest way to have each node in each
state is found from those of its inputs; the cost of a value with several consumers is divided among
them, so that long graphs are not counted many times. The cost of a finished plan counts every step
once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from math import inf
from typing import NamedTuple

from metaop.dist.cost import HOST, Cluster, work_of
from metaop.dist.mesh_rules import MeshRule, mesh_rules
from metaop.dist.moves import Move, moves_from, room_for
from metaop.dist.rules import is_source
from metaop.dist.sbp import BROADCAST, Mesh, NdSbp, mesh_shape
from metaop.elementwise.meta_op import Elementwise
from metaop.fusion.inline import is_expensive
from metaop.reindex.meta_op import Reindex
from metaop.unified_graph.node import Input, Node, topological
from metaop.unified_graph.reshard import Reshard

State = tuple[Node, NdSbp]

# Planning is repeated, because which states are shared is known only from a finished plan.
_PASSES = 3


class Way(NamedTuple):
    """The cheapest way to have a node in one state: by a rule, moved from another, or given.

    `cost` includes all steps that lead here, `own` this step alone.
    """

    cost: float
    own: float
    rule: MeshRule | None = None
    moved: Move | None = None


Ways = dict[Node, dict[NdSbp, Way]]
# What choices depend on: the mesh, its cost model, and whether communication is allowed.
Setting = tuple[Mesh, Cluster, bool]


def find_ways(
    inputs: Mapping[Node, NdSbp],
    outputs: Sequence[Node],
    setting: Setting,
    used: Container[State] | None = None,
    wanted: Sequence[NdSbp] | None = None,
) -> Ways:
    """For every node, the cheapest way to each state that it can have.

    States that an earlier plan has not `used` are charged in full, because other readers may not
    share them.
    """
    order = topological(outputs)
    shared = Counter(source for node in order for source in set(node.inputs))
    wishes = _wishes(order, outputs, wanted or ())
    table: Ways = {}
    for node in order:
        if isinstance(node.op, Input):
            table[node] = {inputs[node]: _given(node, inputs[node], setting)}
        else:
            table[node] = _computed(node, table, shared, setting, used)
        _move(node, table[node], setting, wishes.get(node, ()))
    return table


def _wishes(
    order: Sequence[Node], outputs: Sequence[Node], wanted: Sequence[NdSbp]
) -> dict[Node, list[NdSbp]]:
    """The requested states, by the nodes that should have them."""
    found: dict[Node, list[NdSbp]] = {}
    for node, states in zip(outputs, wanted):
        found.setdefault(node, []).append(states)
    for node in order:
        if isinstance(node.op, Reshard) and node.op.sbp is not None:
            found.setdefault(node.inputs[0], []).append(node.op.sbp)
    return found


def _given(node: Node, states: NdSbp, setting: Setting) -> Way:
    """The way of an input; its cost is the price of the memory that it takes."""
    mesh, cluster, _ = setting
    held = node.dtype.itemsize
    for extent in mesh_shape(node.shape, states, mesh, (0,) * len(mesh)):
        held *= extent
    cost = held * (cluster.memory_price + 1 / cluster.memory_bandwidth)
    return Way(cost, cost)


def _computed(
    node: Node,
    table: Ways,
    shared: Mapping[Node, int],
    setting: Setting,
    used: Container[State] | None,
) -> dict[NdSbp, Way]:
    mesh, cluster, _ = setting
    operations, nbytes = work_of(node)
    computing, storing = operations / cluster.flops, nbytes / cluster.memory_bandwidth
    charges = [_charges(source, table[source], shared[source], used) for source in node.inputs]
    found: dict[NdSbp, Way] = {}
    for rule in mesh_rules(node, mesh):
        own = computing / rule.share + storing / rule.cut
        cost = own
        for charge, states in zip(charges, rule.inputs):
            more = charge.get(states)
            if more is None:
                break
            cost += more
        else:
            old = found.get(rule.output)
            if old is None or cost < old.cost:
                found[rule.output] = Way(cost, own, rule)
    return found


def _charges(
    node: Node, ways: Mapping[NdSbp, Way], uses: int, used: Container[State] | None
) -> dict[NdSbp, float]:
    """What a reader of a node pays for each state of it."""
    if uses == 1:
        return {states: way.cost for states, way in ways.items()}
    if used is None:
        return {states: way.cost / uses for states, way in ways.items()}
    return {
        states: way.cost / uses if (node, states) in used else way.cost
        for states, way in ways.items()
    }


def _move(node: Node, ways: dict[NdSbp, Way], setting: Setting, wishes: Sequence[NdSbp]) -> None:
    """Adds the states that resharding can reach, each by the cheapest path of moves."""
    mesh, cluster, boxing = setting
    room = room_for(node.shape, mesh, (*ways, *wishes))
    queue = [(way.cost, number, states) for number, (states, way) in enumerate(ways.items())]
    heapify(queue)
    number = len(queue)
    while queue:
        cost, _, states = heappop(queue)
        if cost > ways[states].cost:
            continue
        for step in moves_from(states, node.shape, node.dtype.itemsize, mesh, cluster, room):
            if not boxing and not step.is_local:
                continue
            total = cost + step.seconds
            old = ways.get(step.target)
            if old is None or total < old.cost:
                move = Move(step.axis, states, step.target)
                ways[step.target] = Way(total, step.seconds, None, move)
                number += 1
                heappush(queue, (total, number, step.target))


@dataclass
class Plan:
    """What every rank does: stages of local computation with collectives between them.

    `stages[k]` lists the states that stage `k` must produce; `boxes[k]` the collectives after it,
    in the same order on every rank. `states` are those of the outputs; `table` tells how each
    state is made.
    """

    inputs: tuple[Node, ...]
    given: tuple[NdSbp, ...]
    outputs: tuple[Node, ...]
    states: tuple[NdSbp, ...]
    table: Ways
    stages: list[list[State]]
    boxes: list[list[tuple[Node, Move]]]
    used: list[State]
    mesh: Mesh

    def cost(self) -> float:
        """The seconds per step for which the plan was chosen, with every step counted once."""
        return sum(self.table[node][states].own for node, states in self.used)

    def input_bytes(self) -> int:
        """The number of bytes of the inputs that the first rank holds."""
        total = 0
        for node, states in zip(self.inputs, self.given):
            nbytes = node.dtype.itemsize
            for extent in mesh_shape(node.shape, states, self.mesh, (0,) * len(self.mesh)):
                nbytes *= extent
            total += nbytes
        return total


def assign(
    inputs: Sequence[Node],
    given: Sequence[NdSbp],
    outputs: Sequence[Node],
    mesh: Mesh,
    wanted: Sequence[NdSbp] | None = None,
    boxing: bool = True,
    cluster: Cluster = HOST,
) -> Plan:
    """The cheapest plan for the outputs; raises KeyError if the `wanted` states are impossible.

    Without `boxing`, the plan has no communication.
    """
    setting = (mesh, cluster, boxing)
    best: Plan | None = None
    used: set[State] | None = None
    for _ in range(_PASSES):
        table = find_ways(dict(zip(inputs, given)), outputs, setting, used, wanted)
        goals = wanted or _goals(outputs, table, setting)
        plan = _plan(inputs, given, list(zip(outputs, goals)), table, mesh)
        if best is None or plan.cost() < best.cost():
            best = plan
        earlier, used = used, set(plan.used)
        if not any(plan.boxes) or used == earlier:
            break
    assert best is not None
    return best


def _plan(
    inputs: Sequence[Node],
    given: Sequence[NdSbp],
    goals: Sequence[State],
    table: Ways,
    mesh: Mesh,
) -> Plan:
    levels = _levels(goals, table)
    depth = 1 + max(levels.values(), default=0)
    stages: list[list[State]] = [[] for _ in range(depth)]
    boxes: list[list[tuple[Node, Move]]] = [[] for _ in range(depth)]
    kept: set[State] = set(goals)
    carried = _carried(levels, table)
    for pair, level in levels.items():
        for source in needed(pair, table):
            if _is_sent(pair, table):
                kept.add(source)
            elif levels[source] < level:
                kept.update(carried[source])
    for pair, level in levels.items():
        move = table[pair[0]][pair[1]].moved
        if move is not None and _is_sent(pair, table):
            boxes[level - 1].append((pair[0], move))
        elif pair in kept:
            stages[level].append(pair)
    outputs, states = zip(*goals) if goals else ((), ())
    return Plan(
        tuple(inputs), tuple(given), outputs, states, table, stages, boxes, list(levels), mesh
    )


def _carried(levels: Mapping[State, int], table: Ways) -> dict[State, tuple[State, ...]]:
    """What a later stage gets for each state: the state itself, or the states it is made from.

    Cheap operations are repeated there, because their operands may be much smaller: the factors of
    a matrix product are, compared with all products of their elements.
    """
    found: dict[State, tuple[State, ...]] = {}
    for pair in levels:
        found[pair] = (pair,)
        node = pair[0]
        if _is_quick(pair, table):
            sources = dict.fromkeys(s for below in needed(pair, table) for s in found[below])
            if sum(source.nbytes for source, _ in sources) <= node.nbytes:
                found[pair] = tuple(sources)
    return found


def _is_quick(pair: State, table: Ways) -> bool:
    node, states = pair
    move = table[node][states].moved
    if move is not None:
        return move.is_local
    if isinstance(node.op, Reindex) or is_source(node):
        return True
    return isinstance(node.op, Elementwise) and not is_expensive(node)


def _goals(outputs: Sequence[Node], table: Ways, setting: Setting) -> list[NdSbp]:
    """The states of the outputs: as requested, otherwise the state that adds the least cost.

    An output without a request is not moved; a partial one is charged for its later reduction.
    """
    found: dict[Node, NdSbp] = {
        node: node.op.sbp for node in outputs if isinstance(node.op, Reshard) and node.op.sbp
    }
    used: set[State] = set()
    for pair in found.items():
        used.update(_added(pair, table, used)[0])
    for node in outputs:
        if node in found:
            continue
        best: tuple[float, str] | None = None
        chosen: dict[State, None] = {}
        for states, way in table[node].items():
            if way.moved is not None:
                continue
            limit = best[0] if best else inf
            added, cost = _added((node, states), table, used, limit)
            cost += _to_come(node, states, setting)
            if best is None or (cost, repr(states)) < best:
                best, found[node], chosen = (cost, repr(states)), states, added
        used.update(chosen)
    return [found[node] for node in outputs]


def _added(
    goal: State, table: Ways, used: Container[State], limit: float = inf
) -> tuple[dict[State, None], float]:
    """The additional states that a plan needs for one more goal, and their cost.

    The search for them ends where they cost more than a limit.
    """
    seen: dict[State, None] = {}
    cost = 0.0
    stack = [goal]
    while stack and cost <= limit:
        pair = stack.pop()
        if pair not in used and pair not in seen:
            seen[pair] = None
            node, states = pair
            cost += table[node][states].own
            stack += needed(pair, table)
    return seen, cost


def _to_come(node: Node, states: NdSbp, setting: Setting) -> float:
    mesh, cluster, _ = setting
    if not any(state.is_partial for state in states):
        return 0.0
    room = room_for(node.shape, mesh, (states,))
    steps = moves_from(states, node.shape, node.dtype.itemsize, mesh, cluster, room)
    return sum(
        step.seconds
        for step in steps
        if states[step.axis].is_partial and step.target[step.axis] is BROADCAST
    )


def needed(pair: State, table: Ways) -> list[State]:
    """The states from which a state is made."""
    node, states = pair
    way = table[node][states]
    if way.rule is not None:
        return list(zip(node.inputs, way.rule.inputs))
    return [] if way.moved is None else [(node, way.moved.source)]


def _is_sent(pair: State, table: Ways) -> bool:
    """Whether reaching a state takes a collective."""
    move = table[pair[0]][pair[1]].moved
    return move is not None and not move.is_local


def _levels(goals: Sequence[State], table: Ways) -> dict[State, int]:
    """The number of successive collectives before each state, in the order of computing."""
    levels: dict[State, int] = {}
    stack = list(reversed(goals))
    while stack:
        pair = stack[-1]
        if pair in levels:
            stack.pop()
            continue
        sources = needed(pair, table)
        missing = [source for source in sources if source not in levels]
        if missing:
            stack.extend(reversed(missing))
            continue
        stack.pop()
        level = max((levels[source] for source in sources), default=0)
        levels[pair] = level + _is_sent(pair, table)
    return levels
