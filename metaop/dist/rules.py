"""The derivation rule: how one meta-operator may run on many ranks, derived from its `Access`.

A meta-operator is a box of loop axes, one index map per operand and a write map. Each way to run
it without communication is a `Rule`:

- *split*: the ranks share a loop axis. An operand is `S(j)` if, on every rank, the image of index
  component `j` over the rank's part of the axis lies inside the rank's block of dimension `j` (the
  interval rule); otherwise the operand is `B`. The result is `S(j)` if the write map passes the
  same test, otherwise `P(reducer)`.
- *masked read*: a rank reads its block, and zero outside of it: `S(j)` → `P`.
- *masked write*: a rank writes what lies in its block: all `B` → `S(j)`.
- *flow*: partial values pass through functions that are linear in them, according to the degree.
- *same*: every rank computes everything.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import prod

import numpy as np

from metaop.dist.sbp import (
    BROADCAST,
    Mesh,
    Partial,
    Sbp,
    Split,
    blocks,
    can_split,
    reducer_name,
)
from metaop.elementwise.meta_op import Elementwise
from metaop.reduce.meta_op import Reduce
from metaop.reduce.reducers import REDUCERS
from metaop.reindex.meta_op import Reindex
from metaop.reindex.reinterpret import Reinterpret
from metaop.unified_graph import index_expr
from metaop.unified_graph.access import IndexMap
from metaop.unified_graph.index_expr import Atom, Axis, IndexExpr
from metaop.unified_graph.node import Constant, Index, Node
from metaop.unified_graph.reshard import Reshard


@dataclass(frozen=True)
class Rule:
    """The states of the operands that make the result `output`, and how a rank computes it.

    `kind` is one of split, masked read, masked write, flow and same; for a split, `axis` is the
    loop axis that the ranks share.
    """

    inputs: tuple[Sbp, ...]
    output: Sbp
    kind: str
    axis: int = -1

    def __repr__(self) -> str:
        return f"{','.join(map(repr, self.inputs))}->{self.output!r} ({self.kind})"


@lru_cache(maxsize=1 << 15)
def rules(node: Node, ranks: int) -> list[Rule]:
    """Every way to run `node` on `ranks` ranks without communication."""
    found = [Rule((BROADCAST,) * len(node.inputs), BROADCAST, "same")]
    found += split_rules(node, (ranks,))
    if isinstance(node.op, Reindex):
        found += _masked_reads(node, ranks)
    if isinstance(node.op, Reduce):
        found += _masked_writes(node, ranks)
    found += _flow_rules(node)
    return list(dict.fromkeys(found))


# --- split --------------------------------------------------------------------------------------


def split_rules(node: Node, mesh: Mesh) -> Iterator[Rule]:
    """The rules by which the ranks of all axes of `mesh` together share one loop axis."""
    access = node.op.access(node)
    ranks = prod(mesh)
    # A rank holds whole complex numbers, so no two ranks share the parts of one.
    shared = node.inputs[0].ndim if isinstance(node.op, Reinterpret) else len(access.extents)
    for axis, extent in enumerate(access.extents[:shared]):
        if extent < ranks or ranks == 1:
            continue
        choices = [
            _aligned(index_map.indices, source.shape, axis, extent, mesh) or [BROADCAST]
            for index_map, source in zip(access.reads, node.inputs)
        ]
        for operand in range(len(access.reads), len(node.inputs)):
            choices.append(_aligned_lookup(node, operand, axis, extent, mesh) or [BROADCAST])
        if access.reducer is None:
            outputs: Sequence[Sbp] = [Split(axis)]
        else:
            outputs = _aligned(access.write.indices, node.shape, axis, extent, mesh)
            outputs = outputs or [Partial(reducer_name(access.reducer))]
        for inputs in product(*choices):
            for output in outputs:
                yield Rule(inputs, output, "split", axis)


def _aligned(
    indices: Sequence[IndexExpr], shape: Sequence[int], axis: int, extent: int, mesh: Mesh
) -> list[Sbp]:
    """The dimensions whose blocks contain all that each rank accesses: the interval rule."""
    return [
        Split(k)
        for k, (expr, size) in enumerate(zip(indices, shape))
        if size >= prod(mesh) and _stays_inside(expr, size, axis, extent, mesh)
    ]


def _stays_inside(expr: IndexExpr, size: int, axis: int, extent: int, mesh: Mesh) -> bool:
    if size == extent and expr is index_expr.axis(axis, extent):
        return True
    for mine, (start, stop) in zip(blocks(extent, mesh), blocks(size, mesh)):
        part = restricted(expr, axis, extent, mine)
        # Guards ensure that nothing is read outside the tensor.
        if max(part.low, 0) < start or min(part.high, size - 1) >= stop:
            return False
    return True


def _aligned_lookup(node: Node, operand: int, axis: int, extent: int, mesh: Mesh) -> list[Sbp]:
    """`_aligned` for an index tensor, which several index expressions of a map may look up."""
    index_map: IndexMap = node.op.map  # type: ignore[attr-defined]
    common: list[Sbp] | None = None
    shape = node.inputs[operand].shape
    for found in index_map.lookups():
        if found.operand == operand:
            aligned = _aligned(found.indices, shape, axis, extent, mesh)
            common = aligned if common is None else [s for s in common if s in aligned]
    return common or []


def restricted(expr: IndexExpr, axis: int, extent: int, part: tuple[int, int]) -> IndexExpr:
    """`expr` over a part of one loop axis, counted from the start of the part."""
    inside = index_expr.axis(axis, part[1] - part[0]) + part[0]

    def replace(atom: Atom) -> IndexExpr | None:
        return inside if isinstance(atom, Axis) and atom.name == axis else None

    return expr.substitute(replace)


# --- masks --------------------------------------------------------------------------------------


def _masked_reads(node: Node, ranks: int) -> Iterator[Rule]:
    op = node.op
    assert isinstance(op, Reindex)
    if node.dtype.kind == "bool" or (op.map.is_guarded and op.fill != 0):
        return
    rest = (BROADCAST,) * (len(node.inputs) - 1)
    for split in can_split(node.inputs[0].shape, ranks):
        yield Rule((split, *rest), Partial(), "masked read")


def _masked_writes(node: Node, ranks: int) -> Iterator[Rule]:
    for split in can_split(node.shape, ranks):
        yield Rule((BROADCAST,) * len(node.inputs), split, "masked write")


# --- flow ---------------------------------------------------------------------------------------


def _flow_rules(node: Node) -> Iterator[Rule]:
    op = node.op
    rest = (BROADCAST,) * (len(node.inputs) - 1)
    if isinstance(op, Constant):
        for name in ("add", "max", "min", "mul"):
            if _is_identity(op.value(node.dtype), name, node):
                yield Rule((), Partial(name), "flow")
    elif isinstance(op, Reindex):
        for name in ("add", "max", "min", "mul"):
            if not op.map.is_guarded or _is_identity(op.fill, name, node):
                yield Rule((Partial(name), *rest), Partial(name), "flow")
    elif isinstance(op, Reduce):
        partial = Partial(reducer_name(op.reducer.name))
        yield Rule((partial, *rest), partial, "flow")
    elif isinstance(op, Elementwise):
        yield from _elementwise_flow(op, node)
    elif isinstance(op, (Reinterpret, Reshard)):
        yield Rule((Partial(),), Partial(), "flow")


def _is_identity(value: object, reducer: str, node: Node) -> bool:
    if node.dtype.kind == "bool" or (reducer != "add" and node.dtype.kind != "float"):
        return False
    return bool(np.asarray(value) == np.asarray(REDUCERS[reducer].identity(node.dtype)))


def _elementwise_flow(op: Elementwise, node: Node) -> Iterator[Rule]:
    function, count = op.function, len(node.inputs)
    for name in ("max", "min"):
        if function.name == REDUCERS[name].combine:
            yield Rule((Partial(name),) * count, Partial(name), "flow")
    if function.name == "cast" and not _cast_is_linear(node):
        return
    if node.dtype.kind == "bool":
        return
    for partial in _linear_operands(function.degree, count):
        inputs = tuple(Partial() if k in partial else BROADCAST for k in range(count))
        yield Rule(inputs, Partial(), "flow")


def _cast_is_linear(node: Node) -> bool:
    source = node.inputs[0].dtype.kind
    return source != "bool" and node.dtype.kind in (source, "float", "complex")


def _linear_operands(degree: str, count: int) -> list[tuple[int, ...]]:
    """The sets of operands in which a function of this degree is jointly linear."""
    if degree == "linear":
        return [tuple(range(count))]
    if degree == "multilinear":
        return [(k,) for k in range(count)]
    if degree == "linear in first":
        return [(0,)]
    if degree == "linear in branches":
        return [tuple(range(1, count))]
    return []


def is_source(node: Node) -> bool:
    """Whether a node has no operands and may therefore have any split."""
    return isinstance(node.op, (Constant, Index))
