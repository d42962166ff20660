"""Affine maps of the last dimension."""

from __future__ import annotations

from metaop.nn.functional.arguments import optional
from metaop.operators import linear as operators
from metaop.tensor.core import Tensor, wrap
from metaop.unified_graph.recording import record


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`input @ weight.T + bias`: (…, in), (out, in), (out) -> (…, out)."""
    calls = (input.call, weight.call, None if bias is None else bias.call)
    return wrap(record(operators.linear, calls))


def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`input1 @ weight[o] @ input2` for every output o: (…, a), (…, b), (out, a, b) -> (…, out)."""
    calls = (input1.call, input2.call, weight.call, optional(bias))
    return wrap(record(operators.bilinear, calls))
