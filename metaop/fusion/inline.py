"""Inlining: what a root computes if all nodes without a buffer are inlined into it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

from metaop.elementwise.meta_op import Elementwise
from metaop.fusion.kernel import Indices
from metaop.reduce.meta_op import Reduce
from metaop.reindex.meta_op import Reindex
from metaop.unified_graph import index_expr
from metaop.unified_graph.access import Guard, IndexMap
from metaop.unified_graph.index_expr import Atom, Axis, IndexExpr, Lookup
from metaop.unified_graph.node import Node

# The cost of scalar functions relative to one multiplication.
_DEAR = {
    "div": 4, "floor_divide": 6, "trunc_divide": 6, "remainder": 6, "fmod": 6, "sqrt": 4,
    "reciprocal": 4, "rsqrt": 5, "random_bits": 12,
}  # fmt: skip
_TRANSCENDENTAL = 12
# From this cost on, a value is expensive: it is stored rather than computed again.
DEAR = 8
_CHEAP = frozenset(
    """add sub mul neg abs sign sgn square relu maximum minimum fmax fmin eq ne lt le gt ge
    logical_and logical_or logical_xor logical_not bitwise_and bitwise_or bitwise_xor bitwise_not
    left_shift right_shift isnan isinf isfinite signbit where cast floor ceil round trunc frac
    copysign heaviside input_in_unit target_in_unit""".split()
)


def function_cost(name: str) -> int:
    """The cost of one application of a scalar function."""
    return 1 if name in _CHEAP else _DEAR.get(name, _TRANSCENDENTAL)


def is_expensive(node: Node) -> bool:
    """Whether computing an element again costs more than a trip through memory."""
    op = node.op
    return isinstance(op, Elementwise) and function_cost(op.function.name) >= DEAR


def widened(node: Node) -> Node | None:
    """The node of 16-bit floats or small integers that a node converts to a wider dtype."""
    is_cast = isinstance(node.op, Elementwise) and node.op.function.name == "cast"
    source = node.inputs[0] if is_cast else node
    is_float = source.dtype.compute is not source.dtype and node.dtype is source.dtype.compute
    is_whole = source.dtype.kind == node.dtype.kind == "int" and node.dtype.is_signed
    is_wider = is_float or (is_whole and source.dtype.itemsize < node.dtype.itemsize)
    return source if is_cast and is_wider else None


def map_at(index_map: IndexMap, indices: Sequence[IndexExpr], look: LookUp) -> Mapped:
    """The target indices and guards of a map at a point given in other axes.

    `look` turns an element of an index operand into an expression; its arguments are the element's
    indices and the guards under which the map reads it.
    """
    return _without_reads(index_map, tuple(indices)) or _moved(index_map, indices, look)


@lru_cache(maxsize=1 << 14)
def _without_reads(index_map: IndexMap, indices: Indices) -> Mapped | None:
    """`map_at` for a map without index operands, cached because many passes ask for one point."""
    return None if index_map.lookups() else _moved(index_map, indices, None)


def _moved(index_map: IndexMap, indices: Sequence[IndexExpr], look: LookUp | None) -> Mapped:
    memo: dict[Atom, IndexExpr] = {}
    known: list[Guard] = []

    def replace(atom: Atom) -> IndexExpr | None:
        if isinstance(atom, Axis):
            return indices[atom.name]  # type: ignore[index]
        if isinstance(atom, Lookup):
            assert look is not None
            inside = tuple(index_expr.substitute(e, replace, memo) for e in atom.indices)
            return look(atom, inside, tuple(known))
        return None

    # Guards without index operands come first: they protect the reads of those.
    plain_first = sorted(index_map.guards, key=_looks_up)
    for guard in plain_first:
        moved = guard._replace(expr=index_expr.substitute(guard.expr, replace, memo))
        if not moved.always:
            known.append(moved)
    targets = tuple(index_expr.substitute(e, replace, memo) for e in index_map.indices)
    return targets, tuple(known)


def _looks_up(guard: Guard) -> bool:
    return any(isinstance(atom, Lookup) for atom in guard.expr.atoms())


LookUp = Callable[[Lookup, Indices, tuple[Guard, ...]], IndexExpr]
Mapped = tuple[Indices, tuple[Guard, ...]]


def reads(
    root: Node, box: Indices, at: Indices, has_buffer: Callable[[Node], bool]
) -> Iterator[tuple[Node, Indices]]:
    """Every node with a buffer that computing `root` reads, with the indices that it reads.

    `box` are the axes of the kernel, `at` the indices at which the root is written. It passes
    through nodes without a buffer; a node read at two places appears twice.
    """
    seen: set[tuple[Node, Indices]] = set()
    stack: list[tuple[Node, Indices]] = []

    def visit(node: Node, place: Indices) -> None:
        if (node, place) not in seen:
            seen.add((node, place))
            stack.append((node, place))

    _visit_inputs(root, box if isinstance(root.op, Reduce) else at, visit)
    while stack:
        node, place = stack.pop()
        if has_buffer(node):
            yield node, place
        else:
            _visit_inputs(node, place, visit)


def _visit_inputs(node: Node, at: Indices, visit: Callable[[Node, Indices], None]) -> None:
    op = node.op
    if isinstance(op, Elementwise):
        for source in node.inputs:
            visit(source, at)
        return

    def look(lookup: Lookup, inside: Indices, guards: tuple[Guard, ...]) -> IndexExpr:
        visit(node.inputs[lookup.operand], inside)
        return index_expr.symbol(f"{id(node)}.{lookup!r}{inside}", 0, lookup.bound - 1)

    if isinstance(op, Reindex):
        visit(node.inputs[0], map_at(op.map, at, look)[0])
    elif isinstance(op, Reduce):
        visit(node.inputs[0], at)
        map_at(op.map, at, look)
        if op.is_sorted:
            starts = node.inputs[-1]
            visit(starts, (index_expr.symbol(f"{id(node)}.row", 0, starts.size - 1),))
