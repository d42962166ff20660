"""Local computation: a rule restricts a meta-operator to one rank's part."""

from __future__ import annotations

from collections.abc import Sequence

from metaop.dist.mesh_rules import MeshRule
from metaop.dist.rules import Rule, restricted
from metaop.dist.sbp import Mesh, Partial, Sbp, Split, block, local_shape, mesh_shape
from metaop.reduce.meta_op import Reduce
from metaop.reduce.reducers import REDUCERS
from metaop.reindex.meta_op import Reindex, reindex
from metaop.unified_graph import index_expr
from metaop.unified_graph.access import Guard, IndexMap, Within
from metaop.unified_graph.index_expr import Atom, Axis, IndexExpr, Lookup
from metaop.unified_graph.node import Constant, Index, Node, constant, index_node, input_node
from metaop.unified_graph.reshard import Reshard


def mesh_local_node(
    node: Node, rule: MeshRule, inputs: Sequence[Node], mesh: Mesh, place: Sequence[int]
) -> Node:
    """The node that the rank at `place` of a mesh computes: each axis restricts it in turn."""
    if isinstance(node.op, Reshard):
        return _kept(inputs[0], rule, place)
    operands = node.inputs
    for axis, (part, ranks, rank) in enumerate(zip(rule.parts, mesh, place)):
        sources = inputs
        if axis < len(mesh) - 1:
            # The operands as split by the axes up to this one.
            sources = [
                input_node(
                    k, mesh_shape(operand.shape, states[: axis + 1], mesh, place), operand.dtype
                )
                for k, (operand, states) in enumerate(zip(operands, rule.inputs))
            ]
        node = local_node(node, part, sources, ranks, rank)
    return node


def _kept(source: Node, rule: MeshRule, place: Sequence[int]) -> Node:
    """A replicated value made partial: all ranks of a line but the first hold the identity."""
    for state, wished, rank in zip(rule.inputs[0], rule.output, place):
        if isinstance(wished, Partial) and state != wished and rank:
            identity = REDUCERS[wished.op].identity(source.dtype)
            return constant(identity, source.dtype, source.shape)
    return source


def local_node(node: Node, rule: Rule, inputs: Sequence[Node], ranks: int, rank: int) -> Node:
    """What `rank` computes for `node` under `rule`, from its parts of the operands."""
    shape = local_shape(node.shape, rule.output, ranks, rank)
    op = node.op
    if isinstance(op, Constant):
        return Node(op, (), shape, node.dtype)
    if isinstance(op, Index):
        return index_node(_part(op.expr, node, rule, ranks, rank), shape)
    if isinstance(op, Reindex):
        return _local_reindex(node, rule, inputs, ranks, rank)
    if isinstance(op, Reduce):
        return _local_reduce(node, rule, inputs, ranks, rank)
    return Node(op, inputs, shape, node.dtype)


def take_block(source: Node, axis: int, ranks: int, rank: int) -> Node:
    """The rank's block of a replicated value."""
    shape = local_shape(source.shape, Split(axis), ranks, rank)
    start, _ = block(source.shape[axis], ranks, rank)
    indices = list(IndexMap.axes(shape))
    indices[axis] = indices[axis] + start
    return reindex(source, IndexMap(shape, indices))


def _part(expr: IndexExpr, node: Node, rule: Rule, ranks: int, rank: int) -> IndexExpr:
    if rule.kind != "split":
        return expr
    extent = node.op.access(node).extents[rule.axis]
    return restricted(expr, rule.axis, extent, block(extent, ranks, rank))


def _moved_map(index_map: IndexMap, node: Node, rule: Rule, ranks: int, rank: int) -> IndexMap:
    """The map over the rank's part of the box; index tensors are read in the rank's blocks."""
    domain = list(index_map.domain)
    inside: IndexExpr | None = None
    if rule.kind == "split":
        extent = domain[rule.axis]
        start, stop = block(extent, ranks, rank)
        domain[rule.axis] = stop - start
        inside = index_expr.axis(rule.axis, stop - start) + start

    def replace(atom: Atom) -> IndexExpr | None:
        if isinstance(atom, Axis):
            return inside if atom.name == rule.axis else None
        if isinstance(atom, Lookup):
            indices = [index.substitute(replace) for index in atom.indices]
            sbp = rule.inputs[atom.operand]
            shifted = _from_block(indices, node.inputs[atom.operand].shape, sbp, ranks, rank)
            return index_expr.lookup(atom.operand, shifted, atom.bound)
        return None

    return IndexMap(domain, *index_map.substituted(replace))


def _from_block(
    indices: Sequence[IndexExpr], shape: Sequence[int], sbp: Sbp, ranks: int, rank: int
) -> list[IndexExpr]:
    """Indices relative to the start of the rank's block of a split tensor."""
    shifted = list(indices)
    if isinstance(sbp, Split):
        start, _ = block(shape[sbp.axis], ranks, rank)
        shifted[sbp.axis] = shifted[sbp.axis] - start
    return shifted


def _local_reindex(node: Node, rule: Rule, inputs: Sequence[Node], ranks: int, rank: int) -> Node:
    op = node.op
    assert isinstance(op, Reindex)
    moved = _moved_map(op.map, node, rule, ranks, rank)
    data = rule.inputs[0]
    indices = _from_block(moved.indices, node.inputs[0].shape, data, ranks, rank)
    guards: list[Guard] = list(moved.guards)
    fill = op.fill
    if rule.kind == "masked read":
        assert isinstance(data, Split)
        guards.append(Within(indices[data.axis], inputs[0].shape[data.axis]))
        fill = 0
    local = IndexMap(moved.domain, indices, guards)
    if moved.never or local.never:
        return constant(fill, node.dtype, local.domain)
    return Node(Reindex(local, fill), inputs, local.domain, node.dtype)


def _local_reduce(node: Node, rule: Rule, inputs: Sequence[Node], ranks: int, rank: int) -> Node:
    op = node.op
    assert isinstance(op, Reduce)
    moved = _moved_map(op.map, node, rule, ranks, rank)
    shape = local_shape(node.shape, rule.output, ranks, rank)
    indices = _from_block(moved.indices, node.shape, rule.output, ranks, rank)
    guards: list[Guard] = list(moved.guards)
    if rule.kind == "masked write":
        assert isinstance(rule.output, Split)
        guards.append(Within(indices[rule.output.axis], shape[rule.output.axis]))
    local = IndexMap(moved.domain, indices, guards)
    if moved.never or local.never:
        return constant(op.reducer.identity(node.dtype), node.dtype, shape)
    return Node(Reduce(op.reducer, local), inputs, shape, node.dtype)
