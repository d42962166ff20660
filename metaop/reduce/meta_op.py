"""The reduce meta-operator: every element of the input is combined into one of the result."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from metaop.reduce.reducers import REDUCERS, Reducer
from metaop.reindex.meta_op import evaluate_map
from metaop.unified_graph import index_expr
from metaop.unified_graph.access import Access, IndexMap
from metaop.unified_graph.node import MetaOp, Node, Shape, constant

# The type in which the reference adds up.
_ACCUMULATED = {"float": np.float64, "complex": np.complex128}


@dataclass(frozen=True)
class Reduce(MetaOp):
    """`y[map(i)] = y[map(i)] ⊕ x[i]` where the guards of `map` hold.

    The domain of the map is the shape of the first input; the other inputs are the index tensors
    that the map looks up. Elements that nothing is written to hold the reducer's identity.

    `is_sorted`: the map looks up where slices along the first axis go, in ascending order, and does
    nothing else. The last input (rows of the result + 1,) then says at which slice each row begins,
    which serves schedules only.
    """

    reducer: Reducer
    map: IndexMap
    is_sorted: bool = False
    name: ClassVar[str] = "reduce"

    def access(self, node: Node) -> Access:
        source = node.inputs[0]
        identity = IndexMap.identity(source.shape)
        return Access(source.shape, (identity,), self.map, self.reducer.name)

    def reference(self, node: Node, inputs: Sequence[np.ndarray]) -> np.ndarray:
        source = inputs[0]
        wide = _ACCUMULATED.get(node.dtype.kind, node.dtype.numpy)
        result = np.full(node.size, self.reducer.identity(node.dtype), wide)
        if source.size and node.size and not self.map.never:
            indices, mask = evaluate_map(self.map, node.shape, inputs)
            offset = linear_offsets(indices, node.shape, source.shape)
            values = source.astype(wide)
            if mask is not None:
                chosen = np.broadcast_to(mask, source.shape)
                offset, values = offset[chosen], values[chosen]
            with np.errstate(all="ignore"):
                self.reducer.scatter(result, offset, values)
        with np.errstate(all="ignore"):
            return result.astype(node.dtype.numpy).reshape(node.shape)

    def describe(self, node: Node) -> str:
        return f"reduce {self.reducer} {'sorted ' * self.is_sorted}{self.map}"

    def index_operands(self, node: Node) -> tuple[Node, ...]:
        """The index tensors that the map looks up."""
        return node.inputs[1:-1] if self.is_sorted else node.inputs[1:]


def linear_offsets(indices: Sequence[np.ndarray], target: Shape, domain: Shape) -> np.ndarray:
    """The row-major element number in `target` that every point of `domain` is mapped to."""
    offset: np.ndarray = np.zeros((), np.int64)
    for index, extent in zip(indices, target):
        offset = offset * extent + index
    return np.broadcast_to(offset, domain)


def reduce_with_map(
    reducer: str, source: Node, index_map: IndexMap, shape: Shape, operands: Sequence[Node] = ()
) -> Node:
    """The reduce node that combines `source[i]` into element `index_map(i)` of `shape`.

    A map that is a mere permutation of the elements costs nothing: it becomes the source itself.
    `operands` are the index tensors that the map looks up, numbered from 1.
    """
    row = REDUCERS[reducer]
    if index_map.never or source.size == 0:
        return constant(row.identity(source.dtype), source.dtype, shape)
    if index_map.is_identity and index_map.domain == tuple(shape):
        return source
    return Node(Reduce(row, index_map), (source, *operands), tuple(shape), source.dtype)


def reduce_rows(
    reducer: str, source: Node, rows: Node, count: int, starts: Node | None = None
) -> Node:
    """`result[rows[i]] ⊕= source[i]` over the first axis, for a result of `count` rows.

    If `rows` ascend, `starts` may say where those of each row of the result begin.
    """
    places = list(IndexMap.axes(source.shape))
    places[0] = index_expr.lookup(1, [places[0]], count)
    index_map, shape = IndexMap(source.shape, places), (count, *source.shape[1:])
    if starts is None or source.size == 0:
        return reduce_with_map(reducer, source, index_map, shape, (rows,))
    op = Reduce(REDUCERS[reducer], index_map, is_sorted=True)
    return Node(op, (source, rows, starts), shape, source.dtype)


def reduce_axes(reducer: str, source: Node, dims: Sequence[int], keepdim: bool = False) -> Node:
    """`source` reduced over the dimensions in `dims` (non-negative); the others stay.

    With `keepdim` the reduced dimensions stay with extent 1.
    """
    # A symbol is in no set, whatever its value: dimensions are plain numbers.
    reduced = {operator.index(k) for k in dims}
    if not reduced:
        return source
    axes = IndexMap.axes(source.shape)
    indices = []
    shape = []
    for k, extent in enumerate(source.shape):
        if k not in reduced:
            indices.append(axes[k])
            shape.append(extent)
        elif keepdim:
            indices.append(axes[k] * 0)
            shape.append(1)
    index_map = IndexMap(source.shape, indices)
    return reduce_with_map(reducer, source, index_map, tuple(shape))
