"""Recomputation: which values the backward pass keeps in memory, and which it computes again.

At one point of a training step, between forward and backward, the most bytes are alive. A value
that both sides need can be kept in memory, or computed again from kept values. The values to keep
are a minimum cut: the fewest bytes from which cheap work computes all others. After T. Chen and
others, "Training deep nets with sublinear memory cost", 2016, except that the cut makes the choice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from metaop.elementwise.meta_op import Elementwise
from metaop.fusion.inline import function_cost
from metaop.fusion.kernel import reduced_axes
from metaop.fusion.sums import is_product
from metaop.reduce.meta_op import Reduce
from metaop.reindex.meta_op import Reindex
from metaop.unified_graph.access import IndexMap
from metaop.unified_graph.code import Code
from metaop.unified_graph.index_expr import Lookup
from metaop.unified_graph.loop import Loop
from metaop.unified_graph.node import Input, Node, topological
from metaop.unified_graph.symbolic import hint_of

# Programs that never have more bytes alive than this need no recomputation.
_LEAST_PEAK = 16 << 20
# Smaller values are kept.
_LEAST_BYTES = 1 << 18
# A value that is read within this many reductions is kept.
_SHORT_WAIT = 4
# A reduction this many times smaller than its source runs early.
_SUMMARY = 4
# The work per element, in multiplications, from which on a value on the way is kept.
_MOST_WORK = 80
# Sums of at most this many products are cheap if the result is larger than both factors together.
_CHEAP_DEPTH = 128
# If one factor has more than this many times the elements of the other, the other is a weight.
_MOST_UNLIKE = 8


class Recomputed(NamedTuple):
    """A graph with clones of the values to compute again, and its nodes in the order to compute.

    The nodes in `kept` must be stored. Nodes in `late` must not share a kernel with others.
    """

    outputs: list[Node]
    order: list[Node]
    kept: frozenset[Node] = frozenset()
    late: frozenset[Node] = frozenset()


def recompute(outputs: Sequence[Node]) -> Recomputed:
    """The graph in which nodes after the peak read kept values, and clones of the others."""
    order = topological(outputs)
    early = _before_peak(order, set(outputs))
    if early:
        early |= _made_together(order, early)
        early |= _rounded(order, early)
        early |= _summaries(order, early)
        order = sorted(order, key=lambda node: node not in early)
    crossing, soon = _crossing(order, early)
    large = _large(order, early) - soon
    crossing &= large
    if not crossing:
        return Recomputed(list(outputs), order)
    kept = _kept(crossing, large, _expensive(order, early))
    clones = _clones(_needed_again(order, crossing, large, kept))
    rebuilt = _reading_clones(outputs, order, early, clones)
    new_order = _delayed(topological(rebuilt), early, set(clones.values()))
    return Recomputed(rebuilt, new_order, frozenset(kept), frozenset(new_order) - early)


# --- the peak -------------------------------------------------------------------------------------


def _before_peak(order: Sequence[Node], outputs: set[Node]) -> set[Node]:
    """The nodes before the point at which the most bytes are alive; empty for small programs."""
    stored = _materialised(order) | outputs
    position = {node: k for k, node in enumerate(order)}
    last = _last_uses(order, stored, position)
    change = [0] * (len(order) + 1)
    for node in stored:
        if isinstance(node.op, Input) or node in outputs:
            continue
        change[position[node]] += hint_of(node.nbytes)
        change[last[node]] -= hint_of(node.nbytes)
    alive = peak = at = 0
    for k, bytes_more in enumerate(change):
        alive += bytes_more
        if alive > peak:
            peak, at = alive, k
    return set(order[: at + 1]) if peak >= _LEAST_PEAK else set()


def _made_together(order: Sequence[Node], early: set[Node]) -> set[Node]:
    """Later results of loops, and of custom code, that run early: a launch makes all its results.

    What a gradient needs of each step stands late in the graph. If it read what is computed again,
    the whole loop would run once more.
    """
    made = [node for node in order if isinstance(node.op, (Code, Loop))]
    launched = {_launch_of(node) for node in made if node in early}
    return {node for node in made if _launch_of(node) in launched}


def _launch_of(node: Node) -> tuple[object, tuple[Node, ...]]:
    """What the results of one launch have in common."""
    assert isinstance(node.op, (Code, Loop))
    return node.op.definition, node.inputs


def _rounded(order: Sequence[Node], early: set[Node]) -> set[Node]:
    """Later nodes that round early reductions to a narrower dtype, which is better kept instead.

    bfloat16 is summed in float32; if the sum is rounded when it is stored, the float32 value never
    is in memory.
    """
    return {
        node
        for node in order
        if isinstance(node.op, Elementwise)
        and node.op.function.name == "cast"
        and isinstance(node.inputs[0].op, Reduce)
        and node.inputs[0] in early
        and hint_of(node.nbytes) < hint_of(node.inputs[0].nbytes)
    }


def _summaries(order: Sequence[Node], early: set[Node]) -> set[Node]:
    """Later nodes better computed early: small reductions of rows that are reduced early.

    With them come the nodes that they need. One kernel then makes both reductions, for example
    maxima and their positions.
    """
    found: set[Node] = set()
    free = set(early)
    for node in order:
        if node in free or not free.issuperset(node.inputs):
            continue
        if not isinstance(node.op, Reduce):
            free.add(node)
            continue
        needed = _needed_by(node, early)
        read = {x for one in needed for x in one.inputs if x in early}
        if not any(isinstance(x.op, Reduce) and x.op.map is node.op.map for x in read):
            continue
        if max(hint_of(x.nbytes) for x in read) >= _SUMMARY * hint_of(node.nbytes):
            found |= needed
    return found


def _needed_by(node: Node, early: set[Node]) -> set[Node]:
    """A node and what it needs that is not early."""
    found, stack = {node}, [node]
    while stack:
        new = {x for x in stack.pop().inputs if x not in early and x not in found}
        found |= new
        stack.extend(new)
    return found


def _materialised(order: Sequence[Node]) -> set[Node]:
    """The nodes that will probably be in memory: reductions, and what is read repeatedly."""
    found = {node for node in order if isinstance(node.op, Reduce)}
    for node in order:
        if isinstance(node.op, Reindex):
            source = node.inputs[0]
            repeats = hint_of(node.size) >= 2 * hint_of(source.size)
            if isinstance(source.op, Elementwise) and repeats:
                found.add(source)
    return found


def _last_uses(
    order: Sequence[Node], stored: set[Node], position: dict[Node, int]
) -> dict[Node, int]:
    """When each node is read for the last time by a stored node, also through inlined ones."""
    last = dict.fromkeys(order, 0)
    for node in reversed(order):
        when = position[node] if node in stored else max(last[node], position[node])
        for source in node.inputs:
            last[source] = max(last[source], when)
    return last


# --- what is kept ---------------------------------------------------------------------------------


def _crossing(order: Sequence[Node], early: set[Node]) -> tuple[set[Node], set[Node]]:
    """The early nodes that later ones read.

    Separately, those that are read so soon that computing them again would only move the peak.
    """
    time, reductions = {}, 0
    for node in order:
        reductions += isinstance(node.op, Reduce)
        time[node] = reductions
    crossing: set[Node] = set()
    soon: set[Node] = set()
    rested = dict(time)
    for node in order:
        for source in node.inputs:
            if node in early:
                rested[source] = max(rested[source], time[node])
            elif source in early and source not in crossing and source not in soon:
                waits = time[node] - rested[source] > _SHORT_WAIT
                (crossing if waits else soon).add(source)
    return crossing, soon


def _large(order: Sequence[Node], early: set[Node]) -> set[Node]:
    """The early nodes that take much memory and depend on data."""
    data: set[Node] = set()
    for node in order:
        if isinstance(node.op, Input) or not data.isdisjoint(node.inputs):
            data.add(node)
    return {node for node in data & early if node.inputs and hint_of(node.nbytes) >= _LEAST_BYTES}


def _kept(crossing: set[Node], large: set[Node], expensive: set[Node]) -> set[Node]:
    """The large values to keep: a minimum cut between expensive values and later readers."""
    import networkx

    graph = networkx.DiGraph()
    graph.add_node("source")
    graph.add_edges_from(((node, "out"), "sink") for node in crossing)
    seen = set(crossing)
    stack = list(crossing)
    while stack:
        node = stack.pop()
        graph.add_edge((node, "in"), (node, "out"), capacity=hint_of(node.nbytes))
        if node in expensive:
            graph.add_edge("source", (node, "in"))
            continue
        for source in large.intersection(node.inputs):
            graph.add_edge((source, "out"), (node, "in"))
            if source not in seen:
                seen.add(source)
                stack.append(source)
    _, (before, after) = networkx.minimum_cut(graph, "source", "sink")
    return {node for node in seen if (node, "in") in before and (node, "out") in after}


def _expensive(order: Sequence[Node], early: set[Node]) -> set[Node]:
    """The nodes that are never computed again: reductions, custom code, ends of long chains."""
    found: set[Node] = set()
    work: dict[Node, int] = {}
    for node in order:
        if node not in early:
            continue
        op = node.op
        own = function_cost(op.function.name) if isinstance(op, Elementwise) else 0
        total = own + sum(work.get(source, 0) for source in set(node.inputs))
        is_expensive = total > _MOST_WORK or not isinstance(op, (Elementwise, Reindex, Reduce))
        if is_expensive or (isinstance(op, Reduce) and not _is_cheap_contraction(node)):
            found.add(node)
        work[node] = 0 if node in found else total
    return found


def _is_cheap_contraction(node: Node) -> bool:
    """Whether a sum of few products is much larger than its factors, like attention scores.

    A factor much smaller than the other is a weight. The result of such a layer is no larger than
    others that are kept, and storing it and all that follows once more takes long.
    """
    reduced = reduced_axes(node)
    product = node.inputs[0]
    if reduced is None or not is_product(product):
        return False
    if hint_of(product.size) > _CHEAP_DEPTH * hint_of(node.size):
        return False
    elements = sorted(_elements_of_plain_view(factor) for factor in product.inputs)
    if elements[0] * _MOST_UNLIKE < elements[1]:
        return False
    return all(elements) and hint_of(node.size) >= sum(elements)


def _elements_of_plain_view(node: Node) -> int:
    """How many elements a node repeats or permutes; 0 if it has windows or guards."""
    if not isinstance(node.op, Reindex) or node.op.map.is_guarded or len(node.inputs) > 1:
        return 0
    elements = 1
    for index in node.op.map.indices:
        # The terms of a plain index are digits of a number, so no two sums of them are equal.
        span = 0
        for atom, factor in sorted(index.terms, key=lambda term: abs(term[1])):
            if isinstance(atom, Lookup) or abs(factor) <= span:
                return 0
            span += abs(factor) * atom.high
            elements *= hint_of(atom.high) + 1
    return elements


# --- clones ---------------------------------------------------------------------------------------


def _clones(nodes: Iterable[Node]) -> dict[Node, Node]:
    """Clones of some nodes and of what computes them, on given inputs."""
    clones: dict[Node, Node] = {}
    for node in nodes:
        inputs = [clones[x] if x in clones else _again(x) for x in node.inputs]
        clones[node] = Node(node.op, inputs, node.shape, node.dtype)
    return clones


def _reading_clones(
    outputs: Sequence[Node], order: Sequence[Node], early: set[Node], clones: dict[Node, Node]
) -> list[Node]:
    """The outputs, with the late part reading clones."""
    done: dict[Node, Node] = {}
    for node in order:
        if node in early:
            done[node] = node
            continue
        inputs = [clones.get(source, done[source]) for source in node.inputs]
        done[node] = Node(node.op, inputs, node.shape, node.dtype)
    return [done[output] for output in outputs]


def _delayed(order: Sequence[Node], early: set[Node], clones: set[Node]) -> list[Node]:
    """An order in which clones, and what depends on them alone, come as late as possible."""
    position = {node: k for k, node in enumerate(order)}
    waiting: set[Node] = set()
    for node in order:
        is_free = all(x in waiting or x in early for x in node.inputs)
        if node not in early and is_free and (node in clones or not isinstance(node.op, Reduce)):
            waiting.add(node)
    result: list[Node] = []
    for node in order:
        if node in waiting:
            continue
        ready = set()
        stack = [node]
        while stack:
            found = waiting.intersection(stack.pop().inputs)
            waiting -= found
            ready |= found
            stack.extend(found)
        result.extend(sorted(ready, key=position.__getitem__))
        result.append(node)
    return [*result, *sorted(waiting, key=position.__getitem__)]


def _needed_again(
    order: Sequence[Node], crossing: set[Node], large: set[Node], kept: set[Node]
) -> Iterator[Node]:
    """The large nodes that later reads depend on, except kept ones, in order."""
    needed = crossing - kept
    for node in reversed(order):
        if node in needed:
            needed |= large.intersection(node.inputs) - kept
    return (node for node in order if node in needed)


def _again(node: Node) -> Node:
    """A value as clones read it, so that interning keeps clones and originals apart."""
    return Node(Reindex(IndexMap.identity(node.shape)), (node,), node.shape, node.dtype)
