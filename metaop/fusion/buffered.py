"""Which nodes get a buffer.

Every reduction gets a buffer or stays within its kernel. Elementwise and reindex nodes are inlined
into their readers, unless that would repeat expensive work.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence, Set

from metaop.elementwise.meta_op import Elementwise
from metaop.fusion.index_splitting import (
    SHORTEST_PIECE,
    choices,
    cuts_of,
    index_ranges,
    inner_selects,
    saves_much,
)
from metaop.fusion.inline import DEAR, function_cost, is_expensive, widened
from metaop.fusion.kernel import Kernel
from metaop.fusion.recompute import Recomputed
from metaop.fusion.storage import Storage
from metaop.reduce.meta_op import Reduce
from metaop.reindex.meta_op import Reindex
from metaop.unified_graph.access import IndexMap, axis_range
from metaop.unified_graph.node import Input, Node
from metaop.unified_graph.symbolic import hint_of

# An inlined body beyond this many operations is cut in two, so that kernels stay small and long
# chains share one kernel.
_LONGEST_BODY = 100
# A value is stored if an element would cost its kernel as much again, at all places where it is
# read. With one more read of a transcendental function, storing it took half as long again.
_MOST_REPEATED = 24
# The number of a reader's own place, and the most places at which the reads of a value are counted.
_HERE, _MOST_PLACES = 0, 16
# What a read under conditions costs: its lanes are masked.
_GUARDED = 10
# A value that several kernels compute from at least so many buffers gets one of its own.
_MANY_BUFFERS = 3
# Nodes that choose by position between at least so many others are stored.
_MANY_PIECES = 4


def long_selects(order: Sequence[Node]) -> set[Node]:
    """Concatenations of many nodes that are large or expensive, which are stored piece by piece."""
    found = set()
    for choice in choices(order):
        pieces = index_ranges(choice)
        shortest = min(hint_of(stretch.stop - stretch.start) for stretch, _ in pieces)
        inner = hint_of(math.prod(choice.shape[pieces[0][0].dim + 1 :]))
        is_long = shortest * inner >= SHORTEST_PIECE
        spans = [stretch for stretch, _ in pieces]
        if len(pieces) >= _MANY_PIECES and (
            is_long or saves_much(choice, spans, _is_never_inlined)
        ):
            found.add(choice)
    return found


def _is_never_inlined(node: Node) -> bool:
    return not isinstance(node.op, (Elementwise, Reindex))


def choosing(kernels: Sequence[Kernel], storage: Storage) -> set[Node]:
    """The nodes with a kernel of their own that select between pieces large enough to launch."""
    roots = [kernel.roots[0] for kernel in kernels if len(kernel.roots) == 1]
    maps = [root for root in roots if not (isinstance(root.op, Reduce) or root.op.is_alone)]
    return {root for root in maps if cuts_of(root, storage.has_buffer)}


def certainly_stored(graph: Recomputed, split: set[Node]) -> set[Node]:
    """The nodes that certainly get a buffer.

    Nodes in `split` do; what is inside them need not. Of a widened value, the narrow one is stored.
    """
    first = _stored(graph, split, _further_reads(graph.order, set(graph.order)))
    # What is read between the nodes that are stored then, is read at all places of its readers.
    return first | _stored(graph, split, _further_reads(graph.order, first))


def _stored(graph: Recomputed, split: set[Node], more: Mapping[Node, float]) -> set[Node]:
    """The nodes that get a buffer if elements are read again, by node, `more` often."""
    stored = {node for node in graph.outputs if not isinstance(node.op, Input)}
    stored |= graph.kept | split
    inside = {choice for whole in split for choice in inner_selects(whole)}
    cost: dict[Node, int] = {}
    size: dict[Node, int] = {}
    again: dict[Node, int] = {}
    for node in graph.order:
        op = node.op
        if isinstance(op, Reduce):
            stored.add(node)
        if op.is_alone:
            stored.add(node)
            for source in node.inputs:
                if not isinstance(source.op, Input):
                    stored.add(source)
                    cost[source] = size[source] = 0
        if isinstance(op, Reindex):
            source = node.inputs[0]
            repeats = hint_of(node.size) >= 2 * hint_of(source.size) and not op.map.is_injective
            if cost[source] >= 2 and repeats and hint_of(source.size) < hint_of(node.size):
                kept = widened(source) or source
                stored.add(kept)
                cost[kept] = size[kept] = 0
                cost[source] = size[source] = int(kept is not source)
            # Index operands are read once per element, so another kernel computes them.
            for operand in node.inputs[1:]:
                if cost[operand] >= DEAR:
                    stored.add(operand)
                    cost[operand] = size[operand] = 0
        if node in stored or isinstance(op, Input):
            cost[node] = size[node] = 0
            continue
        own = function_cost(op.function.name) if isinstance(op, Elementwise) else 0
        cost[node] = own + sum(cost[source] for source in node.inputs)
        size[node] = 1 + sum(size[source] for source in node.inputs)
        guarded = _GUARDED if isinstance(op, Reindex) and op.map.guards else 0
        inlined = [source for source in node.inputs if source not in stored]
        again[node] = own + guarded + sum(again.get(source, 0) for source in inlined)
        if isinstance(op, Elementwise) and again[node] * more[node] >= _MOST_REPEATED:
            stored.add(node)
            cost[node] = size[node] = again[node] = 0
        if size[node] > _LONGEST_BODY and node not in inside:
            stored.add(node)
            cost[node] = size[node] = 0
    return stored


def _further_reads(order: Sequence[Node], stored: Set[Node]) -> dict[Node, float]:
    """How often each element of a node is read again, at places that differ, as by shifts.

    Values that are inlined read theirs wherever they are read. Slices, and pieces from which a
    position chooses, read each element once.
    """
    # For each place, as a number of the maps that lead there, the share of elements read there.
    reads: dict[Node, dict[int, float]] = {node: {} for node in order}
    places: dict[tuple[int, IndexMap], int] = {}
    for node in reversed(order):
        op = node.op
        is_inlined = isinstance(op, (Elementwise, Reindex)) and node not in stored
        own = reads[node] if is_inlined and reads[node] else {_HERE: 1.0}
        for number, source in enumerate(node.inputs):
            known = reads[source]
            index_map = op.map if isinstance(op, Reindex) and number == 0 else None
            points = 1.0
            if index_map is not None:
                points = _points(index_map) / max(hint_of(source.size), 1)
            for place, share in own.items():
                if index_map is not None:
                    place = places.setdefault((place, index_map), len(places) + 1)
                if len(known) < _MOST_PLACES or place in known:
                    known[place] = max(known.get(place, 0.0), min(points * share, 1.0))
    return {node: sum(of_node.values()) - 1 for node, of_node in reads.items()}


def _points(index_map: IndexMap) -> int:
    """At how many points a map is defined, at most."""
    extents = [hint_of(extent) for extent in index_map.domain]
    for axis, start, stop in filter(None, map(axis_range, index_map.guards)):
        position = int(axis.name)
        extents[position] = min(extents[position], hint_of(stop - start))
    return math.prod(extents)


def repeated(kernels: Sequence[Kernel], stored: Set[Node]) -> set[Node]:
    """Values without a buffer that are too expensive for several kernels to compute each.

    They need expensive work, or read more than their own buffer would cost. Of a shared chain only
    the last node counts, because nothing else needs the others.
    """
    computed_by: dict[Node, Kernel] = {}
    shared: set[Node] = set()
    readers: dict[Node, list[Node]] = {}
    for kernel in kernels:
        inlined = list(_inlined(kernel, stored))
        for node in inlined:
            if computed_by.setdefault(node, kernel) is not kernel:
                shared.add(node)
        for node in (*kernel.roots, *inlined):
            for source in node.inputs:
                readers.setdefault(source, []).append(node)
    found: set[Node] = set()
    for node in shared:
        if all(reader in shared for reader in readers[node]) or not _takes_much(node, stored):
            continue
        while isinstance(node.op, Reindex):
            node = node.inputs[0]
        node = widened(node) or node
        if hint_of(node.size) > 1 and isinstance(node.op, Elementwise):
            found.add(node)
    return found


def _takes_much(node: Node, stored: Set[Node]) -> bool:
    """Whether computing `node` from stored values is expensive or reads many buffers."""
    stack, seen, read = [node], {node}, 0
    while stack:
        current = stack.pop()
        if current in stored or isinstance(current.op, Input):
            read += hint_of(current.size) >= hint_of(node.size)
            continue
        if is_expensive(current):
            return True
        fresh = [source for source in current.inputs if source not in seen]
        seen.update(fresh)
        stack.extend(fresh)
    return read >= _MANY_BUFFERS


def _inlined(kernel: Kernel, stored: Set[Node]) -> Iterator[Node]:
    seen: set[Node] = set()
    stack = [source for root in kernel.roots for source in root.inputs]
    while stack:
        node = stack.pop()
        if node in seen or node in stored:
            continue
        seen.add(node)
        yield node
        stack.extend(node.inputs)
