"""Graph-to-graph passes before grouping; each is pure and preserves every value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from metaop.elementwise.meta_op import Elementwise
from metaop.fusion.index_splitting import chosen
from metaop.fusion.kernel import reduced_axes
from metaop.reduce.meta_op import Reduce, reduce_axes, reduce_with_map
from metaop.reindex.inversion import invert
from metaop.reindex.meta_op import Reindex, reindex
from metaop.reindex.views import broadcast_to, permute, reshape
from metaop.unified_graph import index_expr
from metaop.unified_graph.access import Guard, IndexMap, Within
from metaop.unified_graph.index_expr import Atom, Axis, IndexExpr, Lookup
from metaop.unified_graph.node import Constant, Index, Node, Shape, constant
from metaop.unified_graph.rewrite import rebuild
from metaop.unified_graph.symbolic import hint_of, surely_equal


def simplify(outputs: Sequence[Node]) -> list[Node]:
    """Folds constants, composes reindexes, turns affine scatters into gathers."""
    simplified: dict[Node, Node] = {}

    def simplify_node(node: Node) -> Node:
        new = _simplify_node(node, simplified)
        simplified[new] = new
        return new

    return rebuild(outputs, transform=simplify_node)


def _simplify_node(node: Node, simplified: Mapping[Node, Node]) -> Node:
    """The simplified form of a node whose inputs are `simplified`."""
    op = node.op
    if isinstance(op, Elementwise):
        return _simplify_elementwise(op, node)
    if isinstance(op, Reindex):
        index_map, operands = _without_known_indices(op.map, node.inputs[1:])
        return reindex(chosen(node.inputs[0], index_map), index_map, op.fill, operands)
    if isinstance(op, Reduce):
        index_map, operands = _without_known_indices(op.map, op.index_operands(node))
        if index_map is not op.map:
            op = Reduce(op.reducer, index_map)
            node = Node(op, (node.inputs[0], *operands), node.shape, node.dtype)
        if isinstance(node.inputs[0].op, Constant) and op.map.never:
            return constant(op.reducer.identity(node.dtype), node.dtype, node.shape)
        reduced = reduced_axes(node)
        if reduced is not None and all(op.map.domain[k] == 1 for k in reduced):
            return _as_result(node, op, node.inputs[0])
        if reduced is None:
            inverted = invert(node)
            if inverted is not None:
                return rebuild([inverted], simplified, _simplify_inverted)[0]
        return _reduced_once(_open_product(node))
    return node


def _simplify_inverted(node: Node) -> Node:
    """The simplified form of a node that replaces a scatter, whose inputs are simplified."""
    op = node.op
    if isinstance(op, Reindex):
        return reindex(chosen(node.inputs[0], op.map), op.map, op.fill, node.inputs[1:])
    return _reduced_once(_open_product(node)) if isinstance(op, Reduce) else node


def _without_known_indices(
    index_map: IndexMap, operands: Sequence[Node]
) -> tuple[IndexMap, Sequence[Node]]:
    """A map that computes its indices instead of looking them up in operands that are iotas."""
    if not any(isinstance(operand.op, Index) for operand in operands):
        return index_map, operands
    memo: dict[Atom, IndexExpr] = {}

    def replace(atom: Atom) -> IndexExpr | None:
        if not isinstance(atom, Lookup):
            return None
        op = operands[atom.operand - 1].op
        known = isinstance(op, Index) and op.expr.is_within(atom.bound)
        inside = [index_expr.substitute(index, replace, memo) for index in atom.indices]
        if not isinstance(op, Index) or not known:
            return index_expr.lookup(atom.operand, inside, atom.bound)
        return op.expr.substitute(
            lambda axis: inside[int(axis.name)] if isinstance(axis, Axis) else None
        )

    known_map = IndexMap(index_map.domain, *index_map.substituted(replace, memo))
    return known_map, operands if known_map.lookups() else ()


def _reduced_once(node: Node) -> Node:
    """A reduction of a value that is constant along kept axes, computed once and broadcast."""
    op, source = node.op, node.inputs[0]
    reduced = reduced_axes(node)
    if reduced is None or not isinstance(op, Reduce):
        return node
    used = frozenset().union(*map(_axes_of, _operands(source)))
    same = [k for k, n in enumerate(source.shape) if n > 1 and k not in used and k not in reduced]
    if not same:
        return _summed_first(node)
    box = tuple(1 if k in same else n for k, n in enumerate(source.shape))
    once = _on_operands(source, box, lambda operand: reindex(operand, IndexMap.identity(box)))
    names = {index: k for k, index in enumerate(IndexMap.axes(source.shape))}
    shape = tuple(
        1 if names.get(index) in same else extent
        for index, extent in zip(op.map.indices, node.shape)
    )
    indices = [index.substitute(lambda atom: _pin(atom, same)) for index in op.map.indices]
    total = reduce_with_map(op.reducer.name, once, IndexMap(box, indices), shape)
    return broadcast_to(_summed_first(total), node.shape)


def _summed_first(node: Node) -> Node:
    """A sum over a view that repeats elements, along some axes summed before they are repeated.

    Constant factors may stand beside the view. In gradients of windows that are all summed,
    the filters are summed over their channels, or the images over the batch.
    """
    op, source = node.op, node.inputs[0]
    reduced = reduced_axes(node)
    views = [operand for operand in _operands(source) if not isinstance(operand.op, Constant)]
    if reduced is None or len(views) != 1 or not _is_product_or_view(source):
        return node
    (view,), tensor = views, views[0].inputs[0] if views[0].inputs else views[0]
    assert isinstance(op, Reduce)
    is_sum = op.reducer.name == "add" and node.dtype.compute is node.dtype
    if not (is_sum and isinstance(view.op, Reindex) and len(view.inputs) == 1):
        return node
    index_map, fill = view.op.map, view.op.fill
    repeats = hint_of(view.size) > hint_of(tensor.size)
    if not repeats or (index_map.is_guarded and fill != 0):
        return node
    tested = [*index_map.indices, *(guard.expr for guard in index_map.guards)]
    uses = Counter(atom for expr in tested for atom in set(expr.atoms()))
    axes = {index: k for k, index in enumerate(IndexMap.axes(view.shape))}
    alone = {
        dim: axes[index]
        for dim, index in enumerate(index_map.indices)
        if axes.get(index) in reduced
        and uses[index.terms[0][0]] == 1
        and surely_equal(tensor.shape[dim], view.shape[axes[index]])
    }
    if not alone:
        return node
    summed = reduce_axes("add", tensor, tuple(alone), keepdim=True)
    box = tuple(1 if k in alone.values() else n for k, n in enumerate(view.shape))
    zero = index_expr.constant(0)
    indices = [zero if dim in alone else index for dim, index in enumerate(index_map.indices)]
    inside = IndexMap(box, indices, index_map.guards)

    def shrunk(operand: Node) -> Node:
        if operand is view:
            return reindex(summed, inside, fill)
        return reindex(operand, IndexMap.identity(box))

    source = _on_operands(source, box, shrunk)
    return reduce_with_map("add", source, IndexMap(box, op.map.indices), node.shape)


def _is_product_or_view(node: Node) -> bool:
    op = node.op
    return isinstance(op, Reindex) or (isinstance(op, Elementwise) and op.function.name == "mul")


def _operands(node: Node) -> tuple[Node, ...]:
    """What the elements of a node depend on: the inputs of an elementwise node, or itself."""
    return node.inputs if isinstance(node.op, Elementwise) else (node,)


def _on_operands(node: Node, box: Shape, replace: Callable[[Node], Node]) -> Node:
    """A node over another box, with its operands replaced."""
    if not isinstance(node.op, Elementwise):
        return replace(node)
    return Node(node.op, list(map(replace, node.inputs)), box, node.dtype)


def _pin(atom: Atom, pinned: Sequence[int]) -> IndexExpr | None:
    is_pinned = isinstance(atom, Axis) and atom.name in pinned
    return index_expr.constant(0) if is_pinned else None


def _axes_of(node: Node) -> frozenset[int]:
    """The axes on which a view or a constant depends; all axes for any other node."""
    if isinstance(node.op, Constant):
        return frozenset()
    if isinstance(node.op, Reindex):
        exprs = (*node.op.map.indices, *(guard.expr for guard in node.op.map.guards))
        atoms = (atom for expr in exprs for atom in expr.atoms())
        return frozenset(int(atom.name) for atom in atoms if isinstance(atom, Axis))
    return frozenset(range(node.ndim))


def _open_product(node: Node) -> Node:
    """A sum over a reindexed product becomes a sum over the product of two reindexed factors.

    Contractions that result from an inversion then look like all others. A guard goes to the factor
    that depends on what it tests; the other factor then multiplies a zero.
    """
    op = node.op
    if not (isinstance(op, Reduce) and op.reducer.name == "add"):
        return node
    moved = node.inputs[0]
    if not (isinstance(moved.op, Reindex) and moved.op.fill == 0 and len(moved.inputs) == 1):
        return node
    product = moved.inputs[0]
    if not (isinstance(product.op, Elementwise) and product.op.function.name == "mul"):
        return node
    factors = _guarded_factors(product, moved.op.map)
    opened = Node(product.op, factors, moved.shape, moved.dtype)
    return Node(op, (opened, *node.inputs[1:]), node.shape, node.dtype)


def _guarded_factors(product: Node, index_map: IndexMap) -> list[Node]:
    """The factors of a product under a map, each with the guards on its axes."""
    free = IndexMap(index_map.domain, index_map.indices)
    outside = [_outside(reindex(factor, free)) for factor in product.inputs]
    guards: list[list[Guard]] = [[], []]
    for guard in index_map.guards:
        concerned = [k for k in (0, 1) if any(guard.expr is expr for expr, _ in outside[k])]
        for k in concerned or [0]:
            guards[k].append(guard)
    factors = []
    for k, factor in enumerate(product.inputs):
        tested = {guard.expr: guard.extent for guard in guards[k] if isinstance(guard, Within)}
        is_safe = all(tested.get(expr, extent + 1) <= extent for expr, extent in outside[k])
        chosen = guards[k] if is_safe else index_map.guards
        factors.append(reindex(factor, IndexMap(free.domain, free.indices, chosen), 0))
    return factors


def _outside(node: Node) -> list[tuple[IndexExpr, int]]:
    """The indices at which a reindex would exceed an input, with the extents that they exceed."""
    if not isinstance(node.op, Reindex):
        return []
    places = list(zip(node.op.map.indices, node.inputs[0].shape))
    for lookup in node.op.map.lookups():
        places += zip(lookup.indices, node.inputs[lookup.operand].shape)
    return [(index, extent) for index, extent in places if not index.is_within(extent)]


def _simplify_elementwise(op: Elementwise, node: Node) -> Node:
    inputs = node.inputs
    name = op.function.name
    scalars = [
        np.asarray(source.op.value(source.dtype)).reshape(())
        for source in inputs
        if isinstance(source.op, Constant) and not source.op.is_symbolic
    ]
    if inputs and len(scalars) == len(inputs) and not op.refuses(inputs, scalars):
        value = op.reference(Node(op, inputs, (), node.dtype), scalars)
        return Node(Constant(value.astype(node.dtype.numpy).tobytes()), (), node.shape, node.dtype)
    if name == "stop_gradient":
        return inputs[0]
    if name == "mul":
        for one, other in (inputs, inputs[::-1]):
            if isinstance(one.op, Constant) and one.op.value(one.dtype) == 1:
                return other
    if name == "div" and isinstance(inputs[1].op, Constant):
        if inputs[1].op.value(inputs[1].dtype) == 1:
            return inputs[0]
    if name == "pow" and isinstance(inputs[1].op, Constant) and not inputs[1].op.is_symbolic:
        return _as_products(inputs[0], float(inputs[1].op.value(inputs[1].dtype))) or node
    if name == "where" and isinstance(inputs[0].op, Constant):
        return inputs[1] if inputs[0].op.value(inputs[0].dtype) else inputs[2]
    return node


def _as_products(base: Node, exponent: float) -> Node | None:
    """A power with a small whole exponent as products and a quotient."""
    if exponent == 1:
        return base
    square = base * base
    if exponent == 2:
        return square
    if base.dtype.kind == "float" and exponent == -1:
        return 1.0 / base
    # More than one product in 16 bits would round in between.
    if base.dtype.compute is not base.dtype:
        return None
    if exponent in (3, 4):
        return square * (base if exponent == 3 else square)
    return 1.0 / square if base.dtype.kind == "float" and exponent == -2 else None


def _as_result(node: Node, op: Reduce, total: Node) -> Node:
    """`total`, whose axes are the kept ones and some of extent 1, in the order of the result."""
    order = [
        atom.name for expr in op.map.indices for atom, _ in expr.terms if isinstance(atom, Axis)
    ]
    ranks = sorted(order)
    longer = [extent for extent in total.shape if extent != 1]
    compact = reshape(total, tuple(longer))
    return reshape(permute(compact, [ranks.index(k) for k in order]), node.shape)
