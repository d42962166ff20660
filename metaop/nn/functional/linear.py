"""Affine maps over the last dimension."""

from __future__ import annotations

from metaop.nn.functional.arguments import optional
from metaop.operators import linear as operators
from metaop.tensor.core import Tensor, wrap
from metaop.unified_graph.recording import record


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`input @ weight.T + bias`: (…, in), (out, in), (out) -> (…, out).

    Raises ShapeError when the sizes do not match.

    >>> F.linear(metaop.tensor([1.0, 2.0]), metaop.tensor([[3.0, 4.0]]), metaop.tensor([0.5]))
    tensor([11.5000])
    """
    calls = (input.call, weight.call, None if bias is None else bias.call)
    return wrap(record(operators.linear, calls))


def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`input1 @ weight[o] @ input2` plus the bias for every output o.

    The shapes are (…, a), (…, b), (out, a, b), (out) -> (…, out).

    >>> weight = metaop.tensor([[[1.0, 0.0], [0.0, 1.0]]])
    >>> F.bilinear(metaop.tensor([1.0, 2.0]), metaop.tensor([3.0, 4.0]), weight)
    tensor([11.])
    """
    calls = (input1.call, input2.call, weight.call, optional(bias))
    return wrap(record(operators.bilinear, calls))
