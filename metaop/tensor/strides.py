"""Strides: the storage layout that a view would have, derived from its index map.

A tensor that is not a view is row-major. A view reads the row-major storage of its base at an
offset that is an expression of its axes. If that is affine, its coefficients are the strides. If it
is not, no strided view exists, and PyTorch copies.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from metaop.operators.complex_numbers import numbers_of, pairs_of
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph import index_expr
from metaop.unified_graph.composite import Composite
from metaop.unified_graph.index_expr import Axis
from metaop.unified_graph.interning import with_plain_numbers
from metaop.unified_graph.node import Input, Node, Shape, input_node

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
        source = step(source, *with_plain_numbers(attributes))
    return source


@lru_cache(maxsize=4096)
def view_layout(base: Shape, steps: Steps) -> Layout | None:
    """Strides and offset of the view that `steps` make of a row-major base.

    They are counted in elements of the view: complex numbers hold two of their parts. None when
    the elements do not lie at constant distances.
    """
    shape, layout = base, (contiguous_strides(base), 0)
    start = 0
    for position, (step, _) in enumerate((*steps, (None, ()))):
        if step is not None and step not in (pairs_of, numbers_of):
            continue
        seen = apply_steps(input_node(0, shape, dtypes.float32), steps[start:position])
        found = _layout_of(seen, layout)
        if found is None:
            return None
        shape, layout, start = seen.shape, found, position + 1
        strides, offset = layout
        if step is pairs_of:
            shape = (*shape, 2)
            layout = (*(2 * stride for stride in strides), 1), 2 * offset
        elif step is numbers_of:
            if strides[-1] != 1 or offset % 2 or any(stride % 2 for stride in strides[:-1]):
                return None
            shape = shape[:-1]
            layout = tuple(stride // 2 for stride in strides[:-1]), offset // 2
    return layout


def _layout_of(seen: Node, layout: Layout) -> Layout | None:
    """Strides and offset of a reindex of an input that has a layout."""
    shape = seen.shape
    if isinstance(seen.op, Input):
        return layout
    if seen.size == 0:
        return contiguous_strides(shape), 0
    source, start = layout
    indices = seen.op.map.indices  # type: ignore[attr-defined]
    offset = index_expr.constant(start)
    for index, stride in zip(indices, source):
        offset = offset + index * stride
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


@lru_cache(maxsize=4096)
def has_overlap(base: Shape, steps: Steps) -> bool:
    """Whether a view shows an element at several indices because a dimension was expanded."""
    layout = view_layout(base, steps)
    if layout is None:
        return False
    shape = apply_steps(input_node(0, base, dtypes.float32), steps).shape
    return 0 not in shape and any(n > 1 and s == 0 for n, s in zip(shape, layout[0]))
