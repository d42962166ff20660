"""Affine maps of the last dimension."""

from __future__ import annotations

from metaop.elementwise.meta_op import cast
from metaop.errors import DTypeError, ShapeError
from metaop.reduce.meta_op import reduce_axes
from metaop.reindex.views import reshape, transpose, unsqueeze
from metaop.unified_graph.composite import composite
from metaop.unified_graph.node import Node


def require_one_dtype(operator: str, **operands: Node | None) -> None:
    """Raises DTypeError unless all given operands have the same dtype."""
    found = {name: node.dtype for name, node in operands.items() if node is not None}
    if len(set(found.values())) > 1:
        listed = ", ".join(f"{name} {dtype.name}" for name, dtype in found.items())
        raise DTypeError(
            f"{operator}: operands must have one dtype, got {listed}",
            fix="convert them with .to(dtype)",
        )


@composite
def linear(input: Node, weight: Node, bias: Node | None) -> Node:
    """`input @ weight.T + bias`: (…, in), (out, in), (out) -> (…, out)."""
    require_one_dtype("linear", input=input, weight=weight, bias=bias)
    if input.ndim == 0 or weight.ndim not in (1, 2) or input.shape[-1] != weight.shape[-1]:
        raise ShapeError(
            f"linear: input {list(input.shape)} does not fit weight {list(weight.shape)}",
            fix="the last dimension of input must be the last one of weight (out, in)",
        )
    compute = input.dtype.compute
    left = cast(input, compute)
    if weight.ndim == 2:
        left = unsqueeze(left, input.ndim - 1)
    product = left * cast(weight, compute)
    result = cast(reduce_axes("add", product, [product.ndim - 1]), input.dtype)
    return result if bias is None else result + bias


@composite
def bilinear(left: Node, right: Node, weight: Node, bias: Node | None) -> Node:
    """`left W right + bias`: (…, a), (…, b), (out, a, b), (out) -> (…, out)."""
    require_one_dtype("bilinear", input1=left, input2=right, weight=weight, bias=bias)
    outputs, first, second = weight.shape
    if left.shape[:-1] != right.shape[:-1] or (left.shape[-1], right.shape[-1]) != (first, second):
        raise ShapeError(
            f"bilinear: inputs {list(left.shape)} and {list(right.shape)} do not fit weight "
            f"{list(weight.shape)}",
            fix="inputs are (…, a) and (…, b) with equal leading dimensions, weight (out, a, b)",
        )
    lead = left.shape[:-1]
    rows = reshape(left, (*lead, 1, 1, first))
    flipped = reshape(weight, (outputs, first, second))
    # Contract the first operand, then the second: two contractions instead of one triple product.
    columns = reduce_axes("add", _swap_last(flipped) * rows, [len(lead) + 2])
    result = reduce_axes("add", columns * unsqueeze(right, len(lead)), [len(lead) + 1])
    return result if bias is None else result + bias


def _swap_last(node: Node) -> Node:
    return transpose(node, node.ndim - 2, node.ndim - 1)
