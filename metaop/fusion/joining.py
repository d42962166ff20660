"""Joining: a sum of like reductions becomes one reduction with one more axis.

The gradient of a weight that T steps share is a sum of T contractions with few rows each. It
becomes one contraction whose factors are the T factors, stacked.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Hashable, Sequence
from typing import NamedTuple

from metaop.fusion.index_splitting import choices, index_ranges
from metaop.fusion.kernel import reduced_axes
from metaop.fusion.sums import Terms, is_product, rewrite_sums
from metaop.fusion.triangles import triangle_of
from metaop.reduce.meta_op import Reduce, reduce_with_map
from metaop.reindex.meta_op import Reindex, reindex
from metaop.reindex.views import broadcast_to, concatenate
from metaop.unified_graph import index_expr
from metaop.unified_graph.access import IndexMap
from metaop.unified_graph.index_expr import Atom, Axis, IndexExpr
from metaop.unified_graph.node import Constant, Node, topological
from metaop.unified_graph.symbolic import surely_equal


def join_reductions(outputs: Sequence[Node]) -> list[Node]:
    """Replaces sums of like reductions by one reduction, if copying their sources pays.

    A reduction that has more than one reader stays, as it would be computed twice.
    """
    order = topological(outputs)
    found = choices(order)
    readers = Counter(source for node in order for source in node.inputs)
    readers.update(outputs)
    joiner = _Joiner()

    def note(old: Node, new: Node) -> None:
        if old in found:
            joiner.note(new)
        if readers[old] > 1:
            joiner.shared.add(new)

    return rewrite_sums(outputs, joiner.join, list(found), note)


class _Place(NamedTuple):
    """Index `position` along dimension `dim` of a concatenation of many nodes."""

    whole: Node
    dim: int
    position: int


class _Stack(NamedTuple):
    """Nodes stacked along a new first dimension, and how many elements must be copied for that."""

    node: Node
    copied: int


class _Joiner:
    """Joins terms; knows which nodes are in a concatenation that it has visited, or shared."""

    def __init__(self) -> None:
        self.places: dict[Node, _Place] = {}
        self.shared: set[Node] = set()

    def note(self, choice: Node) -> None:
        """Records the nodes of a concatenation that has one node per position."""
        for (dim, start, stop), branch in index_ranges(choice):
            op = branch.op
            if (
                not surely_equal(stop - start, 1)
                or not isinstance(op, Reindex)
                or len(branch.inputs) != 1
            ):
                continue
            axes = IndexMap.axes(op.map.domain)
            if op.map.indices == (*axes[:dim], *axes[dim + 1 :]):
                self.places.setdefault(branch.inputs[0], _Place(choice, dim, start))

    def join(self, terms: Terms) -> Terms:
        """The terms, with like ones replaced by one."""
        alike: dict[Hashable, Terms] = {}
        for term in terms:
            kind = None if term in self.shared else _kind(term)
            alike.setdefault(kind, []).append(term)
        joined: Terms = []
        for kind, group in alike.items():
            one = self._joined(group) if kind is not None and len(group) > 1 else None
            joined.extend(group if one is None else [one])
        return joined if len(joined) < len(terms) else terms

    def _joined(self, terms: Terms) -> Node | None:
        """One reduction for many, unless copying costs more than adding their results."""
        op, result = terms[0].op, terms[0]
        assert isinstance(op, Reduce)
        sources = [term.inputs[0] for term in self._ordered(terms)]
        stack = self._product(sources) if is_product(sources[0]) else self._stacked(sources)
        if stack.copied > len(terms) * result.size:
            return None
        index_map = _lifted(op.map, len(terms), result=True)
        return reduce_with_map(op.reducer.name, stack.node, index_map, result.shape)

    def _ordered(self, terms: Terms) -> Terms:
        """The terms in the order of their factors in a concatenation, if one has them all."""
        bases = [_bases(term.inputs[0]) for term in terms]
        for factors in zip(*bases):
            places = [self.places.get(factor) for factor in factors]
            if len({place and place.whole for place in places}) == 1 and places[0] is not None:
                ranked = zip((place.position for place in places if place), itertools.count())
                return [terms[k] for _, k in sorted(ranked)]
        return terms

    def _product(self, products: Sequence[Node]) -> _Stack:
        """Stacked products: the product of the stacked factors."""
        first = products[0]
        left, right = (self._stacked([node.inputs[k] for node in products]) for k in (0, 1))
        inputs = (left.node, right.node)
        node = Node(first.op, inputs, (len(products), *first.shape), first.dtype)
        return _Stack(node, left.copied + right.copied)

    def _stacked(self, nodes: Sequence[Node]) -> _Stack:
        """Nodes of one shape, stacked."""
        first, count = nodes[0], len(nodes)
        if all(node is first for node in nodes):
            return _Stack(broadcast_to(first, (count, *first.shape)), 0)
        view = _common_view(nodes)
        if view is not None:
            op = view.op
            assert isinstance(op, Reindex)
            inner = self._stacked([_behind(node, view) for node in nodes])
            moved = reindex(inner.node, _lifted(op.map, count), op.fill)
            return _Stack(moved, inner.copied)
        slices = _as_one_view(nodes)
        if slices is not None:
            return _Stack(slices, 0)
        runs = [self._run(run) for run in self._runs(nodes)]
        if len(runs) == 1:
            return _Stack(runs[0], 0)
        return _Stack(concatenate(runs, 0), count * first.size)

    def _runs(self, nodes: Sequence[Node]) -> list[list[Node]]:
        """Runs of nodes that are consecutive in one concatenation."""
        runs = [[nodes[0]]]
        for before, node in itertools.pairwise(nodes):
            last, place = self.places.get(before), self.places.get(node)
            follows = last and place and place == last._replace(position=last.position + 1)
            if follows:
                runs[-1].append(node)
            else:
                runs.append([node])
        return runs

    def _run(self, nodes: Sequence[Node]) -> Node:
        """A run of consecutive nodes, or a single node, with a new first dimension."""
        shape = (len(nodes), *nodes[0].shape)
        step, *axes = IndexMap.axes(shape)
        if len(nodes) == 1:
            return reindex(nodes[0], IndexMap(shape, axes))
        whole, dim, start = self.places[nodes[0]]
        axes.insert(dim, step + start)
        return reindex(whole, IndexMap(shape, axes))


def _kind(term: Node) -> Hashable:
    """The key that terms share if they can be joined; None for other terms.

    Scans are not joined: a triangle with one more axis is not a scan.
    """
    if reduced_axes(term) is None or len(term.inputs) != 1:
        return None
    if triangle_of(term, lambda source: False) is not None:
        return None
    op, source = term.op, term.inputs[0]
    assert isinstance(op, Reduce)
    return (op, is_product(source)) if op.reducer.name == "add" else None


def _bases(source: Node) -> tuple[Node, ...]:
    """The factors of a product, or a single source, each behind its view."""
    factors = source.inputs if is_product(source) else (source,)
    return tuple(x.inputs[0] if isinstance(x.op, Reindex) else x for x in factors)


def _common_view(nodes: Sequence[Node]) -> Node | None:
    """A node such that all others are the same view of another source, or constant; else None."""
    view = next((node for node in nodes if not isinstance(node.op, Constant)), nodes[0])
    if not isinstance(view.op, Reindex) or len(view.inputs) != 1 or view.op.map.is_guarded:
        return None
    others = (node for node in nodes if not isinstance(node.op, Constant))
    shape = view.inputs[0].shape
    is_common = all(node.op == view.op and node.inputs[0].shape == shape for node in others)
    return view if is_common else None


def _behind(node: Node, view: Node) -> Node:
    """The source of a node that is the same view of it as `view` is of its own."""
    if isinstance(node.op, Constant):
        return Node(node.op, (), view.inputs[0].shape, node.dtype)
    return node.inputs[0]


def _as_one_view(nodes: Sequence[Node]) -> Node | None:
    """Views of one node whose indices grow evenly from one to the next, as one view of it."""
    first = nodes[0]
    if not all(isinstance(n.op, Reindex) and n.inputs == first.inputs for n in nodes):
        return None
    maps = [node.op.map for node in nodes if isinstance(node.op, Reindex)]
    if any(each.is_guarded or each.lookups() for each in maps):
        return None
    lifted = _lifted(maps[0], len(nodes))
    step = index_expr.axis(0, len(nodes))
    indices = []
    for k, index in enumerate(lifted.indices[1:]):
        growth = maps[1].indices[k] - maps[0].indices[k]
        steady = all(b.indices[k] - a.indices[k] is growth for a, b in itertools.pairwise(maps))
        if not (steady and growth.is_constant):
            return None
        indices.append(index + step * growth.constant)
    return reindex(first.inputs[0], IndexMap(lifted.domain, indices))


def _lifted(index_map: IndexMap, count: int, result: bool = False) -> IndexMap:
    """A map with a new first axis, which it passes on, or drops for a `result`."""

    def replace(atom: Atom) -> IndexExpr | None:
        if isinstance(atom, Axis):
            return index_expr.axis(int(atom.name) + 1, atom.extent)
        return None

    indices, guards = index_map.substituted(replace)
    first = [] if result else [index_expr.axis(0, count)]
    return IndexMap((count, *index_map.domain), [*first, *indices], guards)
