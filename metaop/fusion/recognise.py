"""Recognising contractions: sums of products, from their access maps alone.

`sum over k of A[f(b,m,k)] * B[g(b,k,n)]`: the axes of the box are sorted by which factors use
them. Matrix products in all transpositions, convolutions and their gradients are all of this form.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from metaop.elementwise.meta_op import Elementwise
from metaop.fusion.inline import map_at
from metaop.fusion.kernel import Indices, box_axes, reduced_axes
from metaop.reduce.meta_op import Reduce
from metaop.reindex.meta_op import Reindex
from metaop.unified_graph import index_expr
from metaop.unified_graph.access import Guard
from metaop.unified_graph.dtype import int32
from metaop.unified_graph.index_expr import Axis, IndexExpr, Lookup
from metaop.unified_graph.node import Constant, Index, Input, Node, Shape, topological
from metaop.unified_graph.symbolic import usual_of

# With fewer multiplications than this, a plain row kernel is faster than packing.
LEAST_WORK = 1 << 13
_LEAST_EXTENTS = {"rows": 2, "columns": 4, "depth": 4}


@dataclass(frozen=True)
class Contraction:
    """The factors of a contraction and the box axes by their use.

    `batch` axes are in both factors and the result, `rows` in `left` and the result, `columns`
    in `right` and the result, `depth` is reduced. The innermost axis of the result is a column.
    Products matter where all `regions`, differences of two box axes, are at least 0: see `Masks`.
    """

    left: Node
    right: Node
    batch: tuple[int, ...]
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    depth: tuple[int, ...]
    regions: tuple[IndexExpr, ...] = ()


def presumed_buffers(outputs: Sequence[Node]) -> Callable[[Node], bool]:
    """Whether a node will have a buffer, as far as that is known before kernels are chosen."""
    readers = Counter(source for node in topological(outputs) for source in node.inputs)
    readers.update(outputs)

    def has_buffer(node: Node) -> bool:
        if isinstance(node.op, (Elementwise, Constant, Index)):
            return readers[node] > 1
        return not isinstance(node.op, Reindex)

    return has_buffer


def recognise(node: Node, has_buffer: Callable[[Node], bool]) -> Contraction | None:
    """The contraction that a reduction is, or None if a packed schedule would not pay."""
    found = sum_of_products(node, has_buffer)
    if found is None:
        return None
    shape = node.inputs[0].shape
    groups = (found.rows, found.columns, found.depth)
    extents = [usual_of(math.prod(shape[k] for k in group)) for group in groups]
    too_thin = any(n < least for n, least in zip(extents, _LEAST_EXTENTS.values()))
    return None if too_thin or math.prod(extents) < LEAST_WORK else found


def sum_of_products(node: Node, has_buffer: Callable[[Node], bool]) -> Contraction | None:
    """The axes of a sum of products of floats or int32, None for all other nodes."""
    op = node.op
    reduced = reduced_axes(node)
    if not (isinstance(op, Reduce) and reduced and op.reducer.name == "add"):
        return None
    product = node.inputs[0]
    if (node.dtype.kind != "float" and node.dtype is not int32) or has_buffer(product):
        return None
    if not (isinstance(product.op, Elementwise) and product.op.function.name == "mul"):
        return None
    left, right = product.inputs
    box = box_axes(product.shape)
    left_axes = axes_used(left, box, has_buffer)
    right_axes = axes_used(right, box, has_buffer)
    shape = product.shape
    kept = [k for k in range(len(shape)) if k not in reduced and shape[k] != 1]
    if _innermost(op, left_axes ^ right_axes) in left_axes:
        left, right, left_axes, right_axes = right, left, right_axes, left_axes
    batch, rows, columns = [], [], []
    for k in kept:
        if k in left_axes and k in right_axes:
            batch.append(k)
        elif k in left_axes:
            rows.append(k)
        else:
            columns.append(k)
    depth = tuple(sorted(k for k in reduced if shape[k] != 1))
    return Contraction(left, right, tuple(batch), tuple(rows), tuple(columns), depth)


def _innermost(op: Reduce, candidates: set[int]) -> int:
    """The innermost of the candidate box axes in the order of the result; -1 without one."""
    for expr in reversed(op.map.indices):
        if not expr.is_constant:
            axis = int(expr.terms[0][0].name)  # type: ignore[attr-defined]
            if axis in candidates:
                return axis
    return -1


def window_axes(
    contraction: Contraction, shape: Shape, has_buffer: Callable[[Node], bool]
) -> tuple[int, ...]:
    """The depth axes that move the right factor along the same dimensions as columns do."""
    columns, depth = set(contraction.columns), set(contraction.depth)
    found: set[int] = set()
    for indices, _ in accesses(contraction.right, box_axes(shape), has_buffer):
        for index in indices:
            axes = axes_of(index)
            if axes & columns:
                found |= axes & depth
    return tuple(k for k in contraction.depth if k in found)


def axes_used(node: Node, box: Indices, has_buffer: Callable[[Node], bool]) -> set[int]:
    """The box axes on which the value of `node`, read at `box`, depends."""
    found = accesses(node, box, has_buffer)
    exprs = (expr for indices, guards in found for expr in (*indices, *(g.expr for g in guards)))
    return {axis for expr in exprs for axis in axes_of(expr)}


def axes_of(expr: IndexExpr) -> set[int]:
    """The box axes in an index expression."""
    return {int(str(atom.name)[1:]) for atom in expr.atoms() if isinstance(atom, Axis)}


def accesses(
    node: Node, box: Indices, has_buffer: Callable[[Node], bool]
) -> Iterator[tuple[Indices, tuple[Guard, ...]]]:
    """On what the value of `node`, read at `box`, depends: indices into buffers, and guards."""
    seen: set[tuple[Node, Indices]] = set()
    stack: list[tuple[Node, Indices]] = [(node, box)]
    while stack:
        place = stack.pop()
        if place in seen:
            continue
        seen.add(place)
        current, at = place
        op = current.op
        if isinstance(op, Constant):
            continue
        if has_buffer(current) or isinstance(op, (Input, Index, Reduce)):
            yield at, ()
        elif isinstance(op, Reindex):

            def look(
                lookup: Lookup, inside: Indices, guards: object, owner: Node = current
            ) -> IndexExpr:
                stack.append((owner.inputs[lookup.operand], inside))
                return index_expr.symbol("looked up", 0, lookup.bound - 1)

            targets, guards = map_at(op.map, at, look)
            yield (), guards
            stack.append((current.inputs[0], targets))
        else:
            stack.extend((source, at) for source in current.inputs)
