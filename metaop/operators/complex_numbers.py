"""Complex numbers and their parts."""

from __future__ import annotations

import math

from metaop.elementwise.meta_op import apply, where
from metaop.reindex.reinterpret import as_numbers, as_pairs, imaginary_part, real_part
from metaop.reindex.views import concatenate, unsqueeze
from metaop.unified_graph.composite import composite
from metaop.unified_graph.node import Node


@composite
def pairs_of(source: Node) -> Node:
    """Real and imaginary parts along a new last dimension."""
    return as_pairs(source)


@composite
def numbers_of(source: Node) -> Node:
    """The pairs along the last dimension as complex numbers."""
    return as_numbers(source)


@composite
def joined(real: Node, imag: Node) -> Node:
    """Complex numbers from their parts, of one shape and type."""
    parts = [unsqueeze(part, part.ndim) for part in (real, imag)]
    return as_numbers(concatenate(parts, real.ndim))


@composite
def angle(source: Node) -> Node:
    """The angle of real numbers in the complex plane: 0 or pi; NaN stays NaN; the gradient is 0."""
    if source.dtype.is_complex:
        return apply("atan2", imaginary_part(source), real_part(source))
    # The product keeps NaN, with a gradient of 0; infinity times 0 would be NaN.
    return where(source < 0, math.pi, where(apply("isnan", source), source * 0.0, 0.0))
