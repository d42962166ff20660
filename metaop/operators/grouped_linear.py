"""Linear maps whose weights are whole numbers with a scale for each group."""

from __future__ import annotations

import math

from metaop.elementwise.meta_op import apply, cast
from metaop.errors import ShapeError
from metaop.operators.expressions import index_along
from metaop.reduce.meta_op import reduce_axes
from metaop.reindex.views import reshape, select, unsqueeze
from metaop.unified_graph.composite import composite
from metaop.unified_graph.dtype import float32, int8, uint8
from metaop.unified_graph.node import Node, Shape


@composite
def linear_of_groups(input: Node, weight: Node, scale: Node, bits: int) -> Node:
    """`input @ W` of (…, in) and a weight in groups along the inputs: (…, out).

    `scale` is (groups, out). With 8 bits `weight` is int8 (in, out); with 4 bits uint8 (in/2, out),
    where the lower halves of the bytes of a group are its first numbers, the upper ones the rest,
    each 8 larger. Numbers are unpacked inside of the sum.
    """
    inputs = weight.shape[0] * 8 // bits
    if input.ndim == 0 or input.shape[-1] != inputs:
        raise ShapeError(
            f"linear_of_groups: input {list(input.shape)} does not fit {inputs} inputs",
            fix="the last dimension of input must be the inputs of the weight",
        )
    lead, (groups, outputs) = input.shape[:-1], scale.shape
    packed = reshape(weight, (groups, weight.shape[0] // groups, outputs))
    left, factors = cast(input, float32), unsqueeze(cast(scale, float32), 1)
    if bits == 8:
        total = _contracted(left, cast(packed, float32), factors, lead)
    elif math.prod(lead) == 1:
        # Both numbers of a byte are used where it is read.
        lower, upper = _numbers(packed, 0), _numbers(packed, 4)
        halves = reshape(left, (groups, 2, packed.shape[1], 1))
        product = lower * select(halves, 1, 0) + upper * select(halves, 1, 1)
        total = reshape(reduce_axes("add", product * factors, (0, 1)), (*lead, outputs))
    else:
        shape = (groups, 2, packed.shape[1], outputs)
        shift = cast(index_along(shape, 1) * 4, uint8)
        total = _contracted(left, _numbers(unsqueeze(packed, 1), shift), factors, lead)
    return cast(total, input.dtype)


def _numbers(packed: Node, shift: Node | int) -> Node:
    """The numbers in the halves of bytes from the bits on that `shift` tells, float32."""
    half = apply("bitwise_and", apply("right_shift", packed, shift), 15)
    return cast(cast(half, int8) - 8, float32)


def _contracted(left: Node, numbers: Node, factors: Node, lead: Shape) -> Node:
    """The sum over groups (groups, …, out) of the products with a left factor (…, in)."""
    groups, *split, outputs = numbers.shape
    right = numbers
    if groups > 1:
        right = numbers * reshape(factors, (groups, *(1 for _ in split), outputs))
    product = reshape(left, (*lead, groups, *split, 1)) * right
    first = len(lead)
    total = reduce_axes("add", product, range(first, first + 1 + len(split)))
    return total if groups > 1 else total * reshape(factors, (outputs,))
