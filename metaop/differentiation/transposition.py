"""The transposition rules: how a cotangent flows through a meta-operator, one rule per family."""

from __future__ import annotations

import math
from collections.abc import Sequence

from metaop.differentiation.loops import transpose_loop
from metaop.elementwise.complex_numbers.forms import complex_gradient
from metaop.elementwise.meta_op import Elementwise, apply, cast, where
from metaop.errors import UnsupportedError
from metaop.reduce.halving import dropped_axes, halving_product
from metaop.reduce.meta_op import Reduce, reduce_with_map
from metaop.reduce.triangle import product_in_steps
from metaop.reindex.meta_op import Reindex, reindex
from metaop.reindex.reinterpret import Reinterpret, as_numbers, as_pairs
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph import index_expr
from metaop.unified_graph.access import IndexMap
from metaop.unified_graph.loop import Body, Loop
from metaop.unified_graph.node import Node, constant, index_node, topological
from metaop.unified_graph.reshard import Reshard, reshard
from metaop.unified_graph.rewrite import rebuild

# Integers that number elements, the shortest first.
_COUNTING_TYPES = (dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64)


def transpose_node(node: Node, cotangent: Node) -> tuple[Node | None, ...]:
    """The cotangents of the inputs of `node`, from the cotangent of its result."""
    op = node.op
    if isinstance(op, Elementwise):
        return _transpose_elementwise(op, node, cotangent)
    if isinstance(op, Reindex):
        source, operands = node.inputs[0], node.inputs[1:]
        back = reduce_with_map("add", cotangent, op.map, source.shape, operands)
        return (back, *(None for _ in operands))
    if isinstance(op, Reduce):
        return _transpose_reduce(op, node, cotangent)
    if isinstance(op, Reinterpret):
        return (as_pairs(cotangent) if node.dtype.is_complex else as_numbers(cotangent),)
    if isinstance(op, Reshard):
        wish = op.gradient_sbp
        return (cotangent if wish is None else reshard(cotangent, wish),)
    raise UnsupportedError(f"{op.describe(node)} has no gradient")


def _transpose_elementwise(op: Elementwise, node: Node, cotangent: Node) -> tuple[Node | None, ...]:
    function = op.function
    if function.name == "cast":
        source = node.inputs[0]
        return (cast(cotangent, source.dtype) if source.dtype.is_differentiable else None,)
    if any(source.dtype.is_complex for source in node.inputs):
        return complex_gradient(node, cotangent)
    if function.gradient is None:
        return (None,) * len(node.inputs)
    return tuple(function.gradient(cotangent, node, *node.inputs))


def _transpose_reduce(op: Reduce, node: Node, cotangent: Node) -> tuple[Node | None, ...]:
    operands = op.index_operands(node)
    none = tuple(None for _ in node.inputs[1:])
    reducer = op.reducer
    spread = reindex(cotangent, op.map, 0, operands)
    if reducer.name == "add":
        return (spread, *none)
    if reducer.combine in ("maximum", "minimum"):
        return (_extreme_gradient(op, node, spread), *none)
    if reducer.name == "mul":
        return (_product_gradient(op, node, cotangent, spread), *none)
    return (None, *none)


def _extreme_gradient(op: Reduce, node: Node, spread: Node) -> Node:
    """The cotangent where an element is the extreme; ties as the reducer says."""
    source, operands = node.inputs[0], op.index_operands(node)
    extreme = reindex(node, op.map, 0, operands)
    # NaN is an extreme that equals nothing, itself included.
    equal = source.equals(extreme) | (apply("isnan", source) & apply("isnan", extreme))
    if op.reducer.ties == "all":
        count = reduce_with_map("add", cast(equal, node.dtype), op.map, node.shape, operands)
        share = spread / reindex(count, op.map, 1, operands)
        return where(equal, share, 0.0)
    place = _place_among_rivals(op, source, node)
    candidates = where(equal, place, constant(place.dtype.highest, place.dtype, source.shape))
    first = reduce_with_map("min", candidates, op.map, node.shape, operands)
    chosen = place.equals(reindex(first, op.map, -1, operands))
    return where(chosen, spread, 0.0)


def _place_among_rivals(op: Reduce, source: Node, node: Node) -> Node:
    """A number for each element that no other one has with which it is reduced.

    It is kept until the gradient is computed, one for each result, hence in the shortest type.
    """
    reduced = dropped_axes(op.map, node)
    dims = range(source.ndim) if reduced is None else reduced
    extents = [source.shape[k] for k in dims]
    offset = index_expr.linear_offset([IndexMap.axes(source.shape)[k] for k in dims], extents)
    fitting = (dtype for dtype in _COUNTING_TYPES if math.prod(extents) <= dtype.highest)
    return cast(index_node(offset, source.shape), next(fitting))


def _product_gradient(op: Reduce, node: Node, cotangent: Node, spread: Node) -> Node:
    """The product of the other elements times the cotangent, exact when elements are zero."""
    source, operands = node.inputs[0], op.index_operands(node)
    plain = dropped_axes(op.map, node)
    if plain is not None:
        # Halving keeps every partial product, so zeros cost nothing in any order of derivative.
        (gradient,) = pullback([halving_product(source, plain, node)], [cotangent], [source])
        assert gradient is not None
        return gradient
    is_zero = source.equals(0.0)
    others = where(is_zero, 1.0, source)
    product = reduce_with_map("mul", others, op.map, node.shape, operands)
    zeros = reduce_with_map("add", cast(is_zero, node.dtype), op.map, node.shape, operands)
    product = reindex(product, op.map, 0, operands)
    zeros = reindex(zeros, op.map, 0, operands)
    partial = where(
        is_zero,
        where(zeros.equals(1.0), product, 0.0),
        where(zeros.equals(0.0), product / others, 0.0),
    )
    return spread * partial


def _loops(order: Sequence[Node], wanted: set[Node]) -> dict[Node, list[Node]]:
    """The results of each loop by the first of them: all are computed, and transposed, together."""
    first: dict[tuple[Body, tuple[Node, ...]], Node] = {}
    found: dict[Node, list[Node]] = {}
    for node in order:
        if isinstance(node.op, Loop) and node not in wanted:
            key = node.op.definition, node.inputs
            found.setdefault(first.setdefault(key, node), []).append(node)
    return found


def pullback(
    outputs: Sequence[Node], cotangents: Sequence[Node | None], sources: Sequence[Node]
) -> list[Node | None]:
    """The cotangents of `sources`, given those of `outputs`; None where nothing flows.

    Of a running product every partial product is needed, so zeros are right in every order.
    """
    outputs = rebuild(outputs, transform=product_in_steps)
    order = topological(outputs)
    active = set(sources)
    for node in order:
        if any(source in active for source in node.inputs):
            active.add(node)
    flowing: dict[Node, Node] = {}
    for output, cotangent in zip(outputs, cotangents):
        if cotangent is not None and output in active:
            flowing[output] = flowing[output] + cotangent if output in flowing else cotangent
    wanted = set(sources)
    loops = _loops(order, wanted)
    for node in reversed(order):
        if node in loops:
            found = [one for one in loops[node] if one in flowing]
            given = [flowing[one] for one in found]
            flags = [x in active and x.dtype.is_differentiable for x in node.inputs]
            if not found or not any(flags):
                continue
            backs: Sequence[Node | None] = transpose_loop(found, given, flags, pullback)
        else:
            cotangent = flowing.get(node)
            if cotangent is None or node in wanted or not any(s in active for s in node.inputs):
                continue
            backs = () if isinstance(node.op, Loop) else transpose_node(node, cotangent)
        for source, back in zip(node.inputs, backs):
            if back is None or source not in active or not source.dtype.is_differentiable:
                continue
            flowing[source] = flowing[source] + back if source in flowing else back
    return [flowing.get(source) for source in sources]
