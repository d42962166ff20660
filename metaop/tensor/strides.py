"""Strides: what the storage layout of a view would be, derived from its index map.

A tensor that is no view is row-major. A view reads the row-major storage of its base at an offset
that is an expression of its axes: where that is affine its coefficients are the strides, and
where it is not, no strided view exists and PyTorch copies.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph import index_expr
from metaop.unified_graph.composite import Composite
from metaop.unified_graph.index_expr import Axis
from metaop.unified_graph.node import Node, Shape, input_node

Steps = tuple[tuple[Composite, tuple[Any, ...]], ...]
Layout = tuple[tuple[int, ...], int]


def contiguous_strides(shape: Shape) -> tuple[int, ...]:
    """The row-major strides of `shape`, in elements."""
    strides = []
    step = 1
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return tuple(reversed(strides))


def apply_steps(source: Node, steps: Steps) -> Node:
    """The node that view operators make of `source`."""
    for step, attributes in steps:
        source = step(source, *attributes)
    return source


@lru_cache(maxsize=4096)
def view_layout(base: Shape, steps: Steps) -> Layout | None:
    """Strides and offset of the view that `steps` make of a row-major base.

    None when the elements do not lie at constant distances.
    """
    source = input_node(0, base, dtypes.float32)
    seen = apply_steps(source, steps)
    shape = seen.shape
    if seen is source or seen.size == 0:
        return contiguous_strides(shape), 0
    offset = index_expr.linear_offset(seen.op.map.indices, base)  # type: ignore[attr-defined]
    coefficients: dict[int, int] = {}
    for atom, coefficient in offset.terms:
        if not isinstance(atom, Axis):
            return None
        coefficients[atom.name] = coefficient  # type: ignore[index]
    strides: list[int] = []
    following = 1
    for dim in reversed(range(len(shape))):
        if shape[dim] == 1:
            strides.append(following)
        else:
            strides.append(coefficients.get(dim, 0))
            following = strides[-1] * shape[dim]
    return tuple(reversed(strides)), offset.constant


def is_row_major(shape: Shape, strides: tuple[int, ...]) -> bool:
    """Whether the elements lie behind each other in row-major order."""
    if 0 in shape:
        return True
    dense = contiguous_strides(shape)
    return all(n == 1 or a == b for n, a, b in zip(shape, strides, dense))


def has_overlap(base: Shape, steps: Steps) -> bool:
    """Whether a view shows an element at several indices because a dimension was expanded."""
    layout = view_layout(base, steps)
    if layout is None:
        return False
    shape = apply_steps(input_node(0, base, dtypes.float32), steps).shape
    return 0 not in shape and any(n > 1 and s == 0 for n, s in zip(shape, layout[0]))
