"""Choosing how every value of a graph lies, by the cost of computing and of moving data.

Costs are in bytes that one rank moves, over memory or over the network. What several consumers
share is charged to each of them in part, so that long graphs are not counted many times over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from metaop.dist.rules import Rule, is_source, rules
from metaop.dist.sbp import BROADCAST, Broadcast, Partial, Sbp, Split, can_split
from metaop.unified_graph.node import Input, Node, topological
from metaop.unified_graph.reshard import Reshard

State = tuple[Node, Sbp]

# A byte sent costs as much as this many bytes read or written; a collective takes at least …
_NETWORK = 8.0
_LATENCY = 4096.0
_NEVER = float("inf")
# Turning what is whole into a sum is only done when it is asked for.
_FORCED = 1e30


class Way(NamedTuple):
    """The cheapest way to have a node in one state: by a rule, boxed from another, or given."""

    cost: float
    rule: Rule | None = None
    boxed: Sbp | None = None


Ways = dict[Node, dict[Sbp, Way]]


def boxing_cost(source: Sbp, target: Sbp, nbytes: int, ranks: int) -> float:
    """What a change of the lie costs, in bytes that one rank sends, weighted; 0 when local."""
    if source == target or (isinstance(source, Broadcast) and isinstance(target, Split)):
        return 0.0
    if isinstance(target, Partial):
        # Nothing is sent when zeros fill up, but the sum is then still to come.
        is_local = isinstance(source, Split) and target.op == "add"
        if isinstance(source, Broadcast) and target.op == "add":
            return _FORCED
        return 2.0 * nbytes if is_local else _NEVER
    share = (ranks - 1) / ranks
    if isinstance(source, Partial):
        sent = 2 * nbytes * share if isinstance(target, Broadcast) else nbytes * share
    elif isinstance(target, Broadcast):
        sent = nbytes * share
    else:
        sent = nbytes * share / ranks
    return sent * _NETWORK + _LATENCY


def is_local(source: Sbp, target: Sbp) -> bool:
    """Whether the change is the cutting of a block, which every rank does by itself."""
    return isinstance(source, Broadcast) and isinstance(target, Split)


def find_ways(
    inputs: Mapping[Node, Sbp], outputs: Sequence[Node], ranks: int, boxing: bool = True
) -> Ways:
    """For every node, the states in which it can be had, each in the cheapest way.

    Without `boxing` only what takes no communication.
    """
    order = topological(outputs)
    shared = Counter(source for node in order for source in set(node.inputs))
    table: Ways = {}
    for node in order:
        if isinstance(node.op, Input):
            given = inputs[node]
            # What lies whole on every rank takes more memory than its blocks.
            states = {given: Way(node.nbytes / (ranks if isinstance(given, Split) else 1))}
        else:
            states = _computed(node, table, shared, ranks)
        _box(node, states, ranks, boxing)
        table[node] = states
    return table


def _computed(node: Node, table: Ways, shared: Mapping[Node, int], ranks: int) -> dict[Sbp, Way]:
    states: dict[Sbp, Way] = {}
    work = float(node.nbytes + sum(source.nbytes for source in node.inputs))
    for rule in rules(node, ranks):
        cost = 0.0 if is_source(node) or isinstance(node.op, Reshard) else work
        if rule.kind == "split":
            cost /= ranks
        for source, state in zip(node.inputs, rule.inputs):
            way = table[source].get(state)
            cost += _NEVER if way is None else way.cost / shared[source]
        if cost < _NEVER and (rule.output not in states or cost < states[rule.output].cost):
            states[rule.output] = Way(cost, rule)
    if is_source(node):
        for split in can_split(node.shape, ranks):
            states[split] = Way(0.0, Rule((), split, "split", split.axis))
    return states


def _box(node: Node, states: dict[Sbp, Way], ranks: int, boxing: bool) -> None:
    """Adds the states that take a change of the lie."""
    direct = dict(states)
    targets: list[Sbp] = [BROADCAST, *can_split(node.shape, ranks)]
    if boxing:
        targets.append(Partial())
    for target in targets:
        for source, way in direct.items():
            if not boxing and not is_local(source, target):
                continue
            cost = way.cost + boxing_cost(source, target, node.nbytes, ranks)
            if cost < _NEVER and (target not in states or cost < states[target].cost):
                states[target] = Way(cost, None, source)


@dataclass
class Plan:
    """What every rank does: stages of local computation with collectives between them.

    `stages[k]` lists the states that stage `k` has to produce; `boxes[k]` the collectives after
    it, as (node, source, target) in the same order on every rank. `states` are those of the
    outputs. `needs` tells which states a state is computed from.
    """

    inputs: tuple[Node, ...]
    given: tuple[Sbp, ...]
    states: tuple[Sbp, ...]
    outputs: tuple[Node, ...]
    table: Ways
    stages: list[list[State]]
    boxes: list[list[tuple[Node, Sbp, Sbp]]]

    def cost(self) -> float:
        """The estimate by which the plan was chosen."""
        return sum(self.table[node][state].cost for node, state in zip(self.outputs, self.states))


def assign(
    inputs: Sequence[Node],
    given: Sequence[Sbp],
    outputs: Sequence[Node],
    ranks: int,
    wanted: Sequence[Sbp] | None = None,
    boxing: bool = True,
) -> Plan:
    """Chooses a way for everything the outputs need; KeyError when `wanted` cannot be had."""
    table = find_ways(dict(zip(inputs, given)), outputs, ranks, boxing)
    if wanted is None:
        wanted = [_cheapest(table[output]) for output in outputs]
    goals = list(zip(outputs, wanted))
    levels = _levels(goals, table)
    depth = 1 + max(levels.values(), default=0)
    stages: list[list[State]] = [[] for _ in range(depth)]
    boxes: list[list[tuple[Node, Sbp, Sbp]]] = [[] for _ in range(depth)]
    kept: set[State] = set(goals)
    for pair, level in levels.items():
        for source in needed(pair, table):
            if levels[source] < level:
                kept.add(source)
    for pair, level in levels.items():
        way = table[pair[0]][pair[1]]
        if is_collective(way, pair[1]):
            assert way.boxed is not None
            boxes[level - 1].append((pair[0], way.boxed, pair[1]))
        elif pair in kept:
            stages[level].append(pair)
    return Plan(tuple(inputs), tuple(given), tuple(wanted), tuple(outputs), table, stages, boxes)


def _cheapest(states: Mapping[Sbp, Way]) -> Sbp:
    """Where values without a wish stay: as they come out, before any boxing."""
    direct = [state for state, way in states.items() if way.boxed is None]
    return min(direct, key=lambda state: (states[state].cost, repr(state)))


def is_collective(way: Way, state: Sbp) -> bool:
    """Whether having a state this way takes communication."""
    return way.boxed is not None and not is_local(way.boxed, state)


def needed(pair: State, table: Ways) -> list[State]:
    """The states from which a state is made."""
    node, state = pair
    way = table[node][state]
    if way.rule is not None:
        return list(zip(node.inputs, way.rule.inputs))
    return [] if way.boxed is None else [(node, way.boxed)]


def _levels(goals: Sequence[State], table: Ways) -> dict[State, int]:
    """How many collectives lie one after another below each state, in the order of computing."""
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
        levels[pair] = level + is_collective(table[pair[0]][pair[1]], pair[1])
    return levels
