"""Kernels: the nodes that one loop nest computes, and the box of loops that they share.

A kernel iterates over a box of axes, some of which may be reduced. A *row* is one point of the
kept axes. Values of a kernel are either *element-level* (one per point of the box) or *row-level*
(one per row): results of reductions, and what is computed from them alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from metaop.reduce.meta_op import Reduce
from metaop.unified_graph import index_expr
from metaop.unified_graph.access import IndexMap
from metaop.unified_graph.index_expr import Axis, IndexExpr
from metaop.unified_graph.node import Node, Shape

if TYPE_CHECKING:
    from metaop.fusion.recognise import Contraction
    from metaop.fusion.triangles import Triangle

Indices = tuple[IndexExpr, ...]


@lru_cache(maxsize=1024)
def box_axes(shape: Shape) -> Indices:
    """The axes of a kernel's box: `i0`, `i1`, … (the constant 0 where the extent is 1)."""
    return tuple([index_expr.axis(f"i{k}", extent) for k, extent in enumerate(shape)])


@dataclass(eq=False)
class Kernel:
    """A group of nodes computed by one launch.

    `shape` is the box, `reduced` its reduced axes, `roots` the nodes that get a buffer, in
    topological order. `scatter` marks a kernel whose one root writes through index operands,
    `alone` one with nests of its own: an order of rows, or a user's kernel, whose roots are its
    results; `contraction` describes the first root when that is a sum of products worth a packed
    schedule, `scan` when it reduces a triangle.
    """

    shape: Shape
    reduced: frozenset[int]
    roots: list[Node] = field(default_factory=list)
    scatter: bool = False
    alone: bool = False
    contraction: Contraction | None = None
    scan: Triangle | None = None
    # Roots that nothing outside the kernel reads.
    private: set[Node] = field(default_factory=set)

    @property
    def kind(self) -> str:
        """The kind of schedule: alone, scatter, contraction or rows."""
        if self.alone or self.scatter:
            return "alone" if self.alone else "scatter"
        return "rows" if self.contraction is None else "contraction"

    @property
    def takes_maps_alone(self) -> bool:
        """Whether only maps of the first root's result join the kernel."""
        return self.contraction is not None or self.scan is not None

    @property
    def kept(self) -> tuple[int, ...]:
        return tuple(k for k in range(len(self.shape)) if k not in self.reduced)

    @property
    def rows(self) -> int:
        total = 1
        for k in self.kept:
            total *= self.shape[k]
        return total

    def indices_of(self, root: Node) -> Indices | None:
        """Where a root is written, in the kernel's axes; None if it does not fit the box."""
        axes = box_axes(self.shape)
        if isinstance(root.op, Reduce) and self.reduced == reduced_axes(root):
            if root.inputs[0].shape == self.shape:
                return row_indices(root, axes)
        if root.shape == self.shape:
            return axes
        if self.takes_maps_alone and root.shape == self.roots[0].shape:
            return row_indices(self.roots[0], axes)
        # Row-level: the kept axes in order; axes of extent 1 may be added or dropped.
        kept = [k for k in self.kept if self.shape[k] != 1]
        longer = [d for d, extent in enumerate(root.shape) if extent != 1]
        if [self.shape[k] for k in kept] != [root.shape[d] for d in longer]:
            return None
        at = [index_expr.constant(0)] * root.ndim
        for k, d in zip(kept, longer):
            at[d] = axes[k]
        return tuple(at)


def row_indices(reduce_node: Node, axes: Sequence[IndexExpr]) -> Indices:
    """The index map of a plain reduction in the axes of its kernel."""
    op = reduce_node.op
    assert isinstance(op, Reduce)
    return tuple(
        expr.substitute(lambda atom: axes[atom.name] if isinstance(atom, Axis) else None)  # type: ignore
        for expr in op.map.indices
    )


def reduced_axes(node: Node) -> frozenset[int] | None:
    """The axes that a reduction drops, if it only drops and reorders axes.

    None for scatters and for maps with guards, strides or offsets.
    """
    op = node.op
    if not isinstance(op, Reduce) or op.map.is_guarded or len(node.inputs) > 1:
        return None
    axes = IndexMap.axes(op.map.domain)
    kept: list[int] = []
    for expr, extent in zip(op.map.indices, node.shape):
        if expr.is_constant:
            if expr.constant or extent != 1:
                return None
            continue
        if expr not in axes:
            return None
        position = axes.index(expr)
        if position in kept or op.map.domain[position] != extent:
            return None
        kept.append(position)
    return frozenset(
        k for k, extent in enumerate(op.map.domain) if k not in kept and extent != 1
    ) or (frozenset(range(len(axes))) - frozenset(kept))
