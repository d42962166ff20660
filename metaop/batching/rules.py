"""The batching rules: how a meta-operator is computed for a whole batch, one rule per family.

Every family is a box and index maps, so a batch is one more axis of the box: axis 0, which every
map passes on to what varies in the batch and drops for what does not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from metaop.batching.loops import batch_loop
from metaop.elementwise.meta_op import Elementwise
from metaop.errors import UnsupportedError
from metaop.reduce.meta_op import Reduce, reduce_with_map
from metaop.reindex.meta_op import Reindex, reindex
from metaop.reindex.order import Order, order
from metaop.reindex.reinterpret import Reinterpret
from metaop.unified_graph import index_expr
from metaop.unified_graph.access import IndexMap
from metaop.unified_graph.index_expr import Atom, Axis, IndexExpr, Lookup
from metaop.unified_graph.loop import Loop
from metaop.unified_graph.node import Node, Shape, topological


def batched(
    outputs: Sequence[Node], inputs: Mapping[Node, Node], varies: frozenset[Node], size: int
) -> list[Node]:
    """The outputs of a graph for `size` elements at once: (size, *shape) each.

    `inputs` replace the inputs of the graph; those in `varies` have the batch as dimension 0, the
    others are the same for all elements.
    """
    done = dict(inputs)
    mapped = set(varies)
    for node in topological(outputs, stops=inputs):
        sources = [done[source] for source in node.inputs]
        flags = [source in mapped for source in node.inputs]
        if any(flags):
            mapped.add(node)
            done[node] = batch_node(node, sources, flags, size)
        else:
            done[node] = Node(node.op, sources, node.shape, node.dtype)
    return [
        done[output] if output in mapped else repeated(done[output], size) for output in outputs
    ]


def summed(term: Node, inputs: Mapping[Node, Node], varies: frozenset[Node], size: int) -> Node:
    """The sum over `size` elements of a value that is a sum itself; see `batched`."""
    op = term.op
    assert isinstance(op, Reduce) and op.reducer.name == "add"
    parts = batched(term.inputs, inputs, varies, size)
    flags = (True,) * len(parts)
    index_map = _with_batch(op.map, size, flags, False)
    return reduce_with_map("add", parts[0], index_map, term.shape, parts[1:])


def batch_node(node: Node, sources: Sequence[Node], flags: Sequence[bool], size: int) -> Node:
    """`node` on `sources`, of which those with a flag have the batch as dimension 0."""
    op = node.op
    if isinstance(op, Elementwise):
        return Node(op, _all_batched(sources, flags, size), (size, *node.shape), node.dtype)
    if isinstance(op, Reindex):
        index_map = _with_batch(op.map, size, flags, flags[0])
        return reindex(sources[0], index_map, op.fill, sources[1:])
    if isinstance(op, Reduce):
        source = sources[0] if flags[0] else repeated(sources[0], size)
        index_map = _with_batch(op.map, size, flags, True)
        shape = (size, *node.shape)
        operands = sources[1 : 1 + len(op.index_operands(node))]
        return reduce_with_map(op.reducer.name, source, index_map, shape, operands)
    if isinstance(op, Reinterpret):
        return Node(op, sources, (size, *node.shape), node.dtype)
    if isinstance(op, Order):
        return order(sources[0])
    if isinstance(op, Loop):
        return batch_loop(node, sources, flags, size, batched)
    raise UnsupportedError(f"{op.describe(node)} cannot be mapped over a batch")


def repeated(node: Node, size: int) -> Node:
    """The same value for every element of a batch."""
    shape: Shape = (size, *node.shape)
    return reindex(node, IndexMap(shape, IndexMap.axes(shape)[1:]))


def _all_batched(sources: Sequence[Node], flags: Sequence[bool], size: int) -> list[Node]:
    return [source if flag else repeated(source, size) for source, flag in zip(sources, flags)]


def _with_batch(index_map: IndexMap, size: int, flags: Sequence[bool], leads: bool) -> IndexMap:
    """The map over a box with the batch as axis 0; its target has the batch if it `leads`.

    Index operands with a flag are looked up in their own row of the batch.
    """
    batch = index_expr.axis(0, size)
    memo: dict[Atom, IndexExpr] = {}

    def replace(atom: Atom) -> IndexExpr | None:
        if isinstance(atom, Axis):
            assert isinstance(atom.name, int)
            return index_expr.axis(atom.name + 1, atom.extent)
        if isinstance(atom, Lookup):
            inside = [index_expr.substitute(index, replace, memo) for index in atom.indices]
            row = [batch] if flags[atom.operand] else []
            return index_expr.lookup(atom.operand, [*row, *inside], atom.bound)
        return None

    indices, guards = index_map.substituted(replace, memo)
    return IndexMap((size, *index_map.domain), [batch, *indices] if leads else indices, guards)
