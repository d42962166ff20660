"""Sums of many terms, such as the gradient of a value with many readers.

The gradient of T slices of one tensor is a sum of T tensors that are zero outside their slice.
Disjoint terms become a select by position, like a concatenation (`fusion/index_splitting.py`), so
nothing is added.
"""

from __future__ import annotations

import functools
import operator
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from metaop.elementwise.meta_op import Elementwise, where
from metaop.fusion.kernel import reduced_axes
from metaop.reduce.meta_op import Reduce
from metaop.reindex.meta_op import Reindex, reindex
from metaop.reindex.views import index_node_below
from metaop.unified_graph import index_expr
from metaop.unified_graph.access import IndexMap, Within, axis_range
from metaop.unified_graph.node import Node, constant, topological
from metaop.unified_graph.rewrite import rebuild

Terms = list[Node]


def sum_to_select(outputs: Sequence[Node]) -> list[Node]:
    """Replaces sums of terms that are zero outside disjoint strips by selects by position."""
    return rewrite_sums(outputs, _laid_apart)


def distribute_reduction(outputs: Sequence[Node]) -> list[Node]:
    """Distributes a reduction over a sum of products: each term becomes a reduction.

    Reductions of single products are contractions, which a reduction of the whole sum would hide.
    """
    order = topological(outputs)
    readers = Counter(source for node in order for source in node.inputs)
    readers.update(outputs)
    inner = _inner_sums(order, outputs)

    def transform(node: Node) -> Node:
        op, source = node.op, node.inputs[0] if node.inputs else node
        if not (isinstance(op, Reduce) and op.reducer.name == "add" and _is_sum(source)):
            return node
        terms = _terms(source, inner)
        products = [term for term in terms if is_product(term)]
        if not products or reduced_axes(node) is None or readers[source] > 1:
            return node
        others = [term for term in terms if not is_product(term)]
        summands = [*products, functools.reduce(operator.add, others)] if others else products
        reduced = [Node(op, (x, *node.inputs[1:]), node.shape, node.dtype) for x in summands]
        return functools.reduce(operator.add, reduced)

    return rebuild(outputs, transform=transform)


def is_product(node: Node) -> bool:
    """Whether a node multiplies two others."""
    return isinstance(node.op, Elementwise) and node.op.function.name == "mul"


def _is_sum(node: Node) -> bool:
    op = node.op
    return isinstance(op, Elementwise) and op.function.name == "add" and node.dtype.kind == "float"


def _inner_sums(order: Sequence[Node], outputs: Sequence[Node]) -> set[Node]:
    """The sums whose only reader is another sum."""
    readers = Counter(source for node in order for source in node.inputs)
    readers.update(outputs)
    sources = (source for node in order if _is_sum(node) for source in node.inputs)
    return {source for source in sources if _is_sum(source) and readers[source] == 1}


def _terms(node: Node, inner: set[Node]) -> Terms:
    """The terms of a sum of sums, from left to right."""
    found: Terms = []
    stack = list(reversed(node.inputs))
    while stack:
        term = stack.pop()
        if term in inner:
            stack.extend(reversed(term.inputs))
        else:
            found.append(term)
    return found


def rewrite_sums(
    outputs: Sequence[Node],
    rewrite: Callable[[Terms], Terms],
    first: Sequence[Node] = (),
    visit: Callable[[Node, Node], None] = lambda old, new: None,
) -> list[Node]:
    """The outputs, with the terms of sums replaced by those that `rewrite` returns.

    Nodes in `first`, and what they need, come before all others. `visit` is called with every node
    and its replacement.
    """
    order = topological([*first, *outputs])
    inner = _inner_sums(order, outputs)
    done: dict[Node, Node] = {}
    for node in order:
        inputs = tuple(done[source] for source in node.inputs)
        new = node if inputs == node.inputs else Node(node.op, inputs, node.shape, node.dtype)
        if _is_sum(node) and node not in inner:
            terms = [done[term] for term in _terms(node, inner)]
            rewritten = rewrite(terms)
            if rewritten is not terms:
                new = functools.reduce(operator.add, rewritten)
        done[node] = new
        visit(node, new)
    return [done[output] for output in outputs]


class _Strip(NamedTuple):
    """Term number `position`, a node that is zero outside `start … stop - 1` of a dimension."""

    start: int
    stop: int
    position: int
    node: Node


def _laid_apart(terms: Terms) -> Terms:
    """The terms, with those that are disjoint along some dimension replaced by a select."""
    strips: dict[int, list[_Strip]] = {}
    for position, term in enumerate(terms):
        for dim, strip in _strips(term, position):
            strips.setdefault(dim, []).append(strip)
    dim, apart = max(
        ((dim, _disjoint(found)) for dim, found in strips.items()),
        key=lambda pair: len(pair[1]),
        default=(0, []),
    )
    if len(apart) < 2:
        return terms
    chosen = {strip.position for strip in apart}
    return [_choice(dim, apart), *(term for k, term in enumerate(terms) if k not in chosen)]


def _strips(term: Node, position: int) -> Iterator[tuple[int, _Strip]]:
    """Every dimension along which a guard keeps a term to a strip, with that strip.

    The guard of the strip is written the way concatenations write it.
    """
    op = term.op
    if not (isinstance(op, Reindex) and op.fill == 0 and not op.map.never):
        return
    for guard in op.map.guards:
        found = axis_range(guard)
        if found is None:
            continue
        axis, start, stop = found
        inside = Within(index_expr.of(axis) - start, stop - start)
        guards = [inside if other is guard else other for other in op.map.guards]
        index_map = IndexMap(op.map.domain, op.map.indices, guards)
        node = reindex(term.inputs[0], index_map, op.fill, term.inputs[1:])
        yield int(axis.name), _Strip(start, stop, position, node)


def _disjoint(strips: Sequence[_Strip]) -> list[_Strip]:
    """As many strips as possible without overlap, in order."""
    found: list[_Strip] = []
    for strip in sorted(strips, key=lambda strip: strip.stop):
        if not found or found[-1].stop <= strip.start:
            found.append(strip)
    return found


def _choice(dim: int, strips: Sequence[_Strip]) -> Node:
    """The sum of disjoint strips as a select: each strip in its range, and zero between them."""
    shape, dtype = strips[0].node.shape, strips[0].node.dtype
    zero = constant(0, dtype, shape)
    parts: list[tuple[int, Node]] = []
    end = 0
    for strip in strips:
        if strip.start > end:
            parts.append((strip.start, zero))
        parts.append((strip.stop, strip.node))
        end = strip.stop
    if end < shape[dim]:
        parts.append((shape[dim], zero))
    position = index_expr.axis(dim, shape[dim])
    result = parts.pop()[1]
    for stop, node in reversed(parts):
        result = where(index_node_below(position, stop, shape), node, result)
    return result
