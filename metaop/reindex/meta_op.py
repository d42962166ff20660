"""The reindex meta-operator: every element of the result is one element of the input, or a fill."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from metaop.unified_graph.access import Access, IndexMap, Within
from metaop.unified_graph.index_expr import Atom, Axis, IndexExpr, Lookup, evaluate
from metaop.unified_graph.node import Constant, Index, MetaOp, Node, Scalar, constant, index_node
from metaop.unified_graph.symbolic import surely_equal


@dataclass(frozen=True)
class Reindex(MetaOp):
    """`y[i] = x[map(i)]` where the guards of `map` hold, else `fill`.

    The first input is `x`; the others are the index tensors that `map` looks up.
    """

    map: IndexMap
    fill: Scalar = 0
    name: ClassVar[str] = "reindex"

    def access(self, node: Node) -> Access:
        return Access(node.shape, (self.map,), IndexMap.identity(node.shape))

    def reference(self, node: Node, inputs: Sequence[np.ndarray]) -> np.ndarray:
        source = inputs[0]
        fill = node.dtype.numpy.type(self.fill)
        if 0 in node.shape:
            return np.zeros(node.shape, node.dtype.numpy)
        indices, mask = evaluate_map(self.map, source.shape, inputs)
        if source.size == 0:
            return np.full(node.shape, fill, node.dtype.numpy)
        values = source[indices] if indices else source
        values = np.broadcast_to(values, node.shape)
        return np.where(mask, values, fill) if mask is not None else values.copy()

    def describe(self, node: Node) -> str:
        fill = f" else {self.fill}" if self.map.is_guarded else ""
        return f"reindex {self.map}{fill}"


def reindex(
    source: Node, index_map: IndexMap, fill: Scalar = 0, operands: Sequence[Node] = ()
) -> Node:
    """The reindex node of `source`, simplified: identities vanish and maps compose.

    `operands` are the index tensors that the map looks up, numbered from 1.
    """
    if index_map.is_identity and all(map(surely_equal, index_map.domain, source.shape)):
        return source
    op = source.op
    if index_map.never and not isinstance(op, Constant):
        return constant(fill, source.dtype, index_map.domain)
    if isinstance(op, Constant) and not index_map.is_guarded and not operands:
        return Node(op, (), index_map.domain, source.dtype)
    if isinstance(op, Index) and not index_map.is_guarded and not operands:
        return index_node(_inside(op.expr, index_map), index_map.domain)
    if isinstance(op, Reindex) and _fills_agree(op, fill, index_map):
        composed = op.map.after(index_map, operand_offset=len(operands))
        inner_fill = op.fill if op.map.is_guarded else fill
        return reindex(source.inputs[0], composed, inner_fill, (*operands, *source.inputs[1:]))
    inputs = (source, *operands)
    return Node(Reindex(index_map, fill), inputs, index_map.domain, source.dtype)


def _fills_agree(inner: Reindex, fill: Scalar, outer_map: IndexMap) -> bool:
    if not (inner.map.is_guarded and outer_map.is_guarded):
        return True
    return repr(inner.fill) == repr(fill)


def _inside(expr: IndexExpr, index_map: IndexMap) -> IndexExpr:
    def replace(atom: Atom) -> IndexExpr | None:
        return index_map.indices[atom.name] if isinstance(atom, Axis) else None  # type: ignore

    return expr.substitute(replace)


def evaluate_map(
    index_map: IndexMap, target: Sequence[int], inputs: Sequence[np.ndarray]
) -> tuple[tuple[np.ndarray, ...], np.ndarray | None]:
    """The indices of a map as NumPy arrays over its domain, and the mask of its guards.

    Indices outside the mask are moved to 0. Raises IndexError for an index out of range.
    """
    grids = np.indices(index_map.domain, sparse=True) if index_map.domain else ()

    def value_of(atom: Atom) -> np.ndarray:
        if isinstance(atom, Axis):
            return grids[atom.name]  # type: ignore[index]
        assert isinstance(atom, Lookup)
        where = tuple(np.asarray(evaluate(index, value_of)) for index in atom.indices)
        operand = inputs[atom.operand]
        where = tuple(np.clip(w, 0, n - 1) for w, n in zip(where, operand.shape))
        return operand[where].astype(np.int64) if where else operand.astype(np.int64)

    mask: np.ndarray | None = np.asarray(False) if index_map.never else None
    for guard in index_map.guards:
        value = np.asarray(evaluate(guard.expr, value_of))
        if isinstance(guard, Within):
            holds = (value >= 0) & (value < guard.extent)
        else:
            holds = value % guard.divisor == 0
        mask = holds if mask is None else mask & holds
    indices = []
    for expr, extent in zip(index_map.indices, target):
        index = np.asarray(evaluate(expr, value_of))
        checked = index if mask is None else np.where(mask, index, 0)
        if checked.size and extent and (checked.min() < 0 or checked.max() >= extent):
            bad = int(checked.min() if checked.min() < 0 else checked.max())
            raise IndexError(f"index {bad} is out of range for a dimension of size {extent}")
        indices.append(checked)
    return tuple(indices), mask
