"""Linear maps with integer weights and a scale per group."""

from __future__ import annotations

import math

from metaop.elementwise.meta_op import apply, cast
from metaop.errors import ShapeError
from metaop.operators.expressions import index_along
from metaop.reduce.meta_op import reduce_axes
from metaop.reindex.views import broadcast_to, reshape, select, unsqueeze
from metaop.unified_graph.composite import composite
from metaop.unified_graph.dtype import float32, int8, uint8
from metaop.unified_graph.node import Node


@composite
def linear_of_groups(input: Node, weight: Node, scale: Node, bits: int) -> Node:
    """`input @ W` of (…, in) and a weight in groups along the inputs: (…, out).

    `scale` is (groups, out). With 8 bits, `weight` is int8 (in, out). With 4 bits, it is uint8
    (in/2, out): the low halves of a group's bytes hold its first numbers, the high halves the rest,
    each plus 8. Numbers are unpacked inside the sum.
    """
    inputs = weight.shape[0] * 8 // bits
    if input.ndim == 0 or input.shape[-1] != inputs:
        raise ShapeError(
            f"linear_of_groups: input {list(input.shape)} does not fit {inputs} inputs",
            fix="the last dimension of input must be the inputs of the weight",
        )
    lead, (groups, outputs) = input.shape[:-1], scale.shape
    packed = reshape(weight, (groups, weight.shape[0] // groups, outputs))
    left, factors = cast(input, float32), cast(scale, float32)
    if bits == 4 and math.prod(lead) == 1:
        # A byte is read once for both of its numbers.
        lower, upper = _numbers(packed, 0), _numbers(packed, 4)
        split = reshape(left, (groups, 2, packed.shape[1], 1))
        product = lower * select(split, 1, 0) + upper * select(split, 1, 1)
        total = reduce_axes("add", product * unsqueeze(factors, 1), (0, 1))
        return cast(reshape(total, (*lead, outputs)), input.dtype)
    # Broadcast to all rows first, so that numbers are unpacked where the contraction packs panels.
    halves = 8 // bits
    shape = (*lead, groups, halves, packed.shape[1], outputs)
    right = broadcast_to(unsqueeze(packed, 1), shape)
    if bits == 4:
        right = _numbers(right, cast(index_along((2, 1, 1), 0) * 4, uint8))
    right = cast(right, float32)
    if groups > 1:
        right = right * reshape(factors, (groups, 1, 1, outputs))
    product = reshape(left, (*lead, groups, halves, packed.shape[1], 1)) * right
    total = reduce_axes("add", product, range(len(lead), len(lead) + 3))
    return cast(total if groups > 1 else total * reshape(factors, (outputs,)), input.dtype)


def _numbers(packed: Node, shift: Node | int) -> Node:
    """The 4-bit numbers of bytes that begin at bit `shift`, in float32."""
    half = apply("bitwise_and", apply("right_shift", packed, shift), 15)
    return cast(cast(half, int8) - 8, float32)
