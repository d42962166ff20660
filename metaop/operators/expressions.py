"""Small expressions on nodes that many operators are made of."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from metaop.elementwise.meta_op import apply, cast, where
from metaop.reduce.meta_op import reduce_axes
from metaop.reindex.reinterpret import imaginary_part, real_part
from metaop.unified_graph.access import IndexMap
from metaop.unified_graph.dtype import DType, promote
from metaop.unified_graph.node import Node, Scalar, Shape, index_node
from metaop.unified_graph.symbolic import as_float


def stop_gradient(node: Node) -> Node:
    """The value of `node`, without a gradient."""
    return apply("stop_gradient", node)


def in_compute_type(expansion: Callable[..., Any]) -> Callable[..., Any]:
    """Makes an expansion compute on 16-bit floats in float32, rounding only its results.

    Floating-point results get the type of the first operand.
    """

    @wraps(expansion)
    def widened(*arguments: Any) -> Any:
        return _rounded(expansion(*map(_widen, arguments)), arguments[0].dtype)

    return widened


def in_promoted_type(expansion: Callable[..., Any]) -> Callable[..., Any]:
    """`in_compute_type` whose results get the promoted type of the first two operands."""

    @wraps(expansion)
    def widened(*arguments: Any) -> Any:
        dtype = promote(arguments[0].dtype, arguments[1].dtype)
        return _rounded(expansion(*map(_widen, arguments)), dtype)

    return widened


def _rounded(results: Any, dtype: DType) -> Any:
    if dtype.compute is dtype:
        return results
    if isinstance(results, Node):
        return _narrow(results, dtype)
    return tuple(_narrow(result, dtype) for result in results)


def _widen(argument: Any) -> Any:
    return cast(argument, argument.dtype.compute) if isinstance(argument, Node) else argument


def _narrow(result: Node, dtype: DType) -> Node:
    return cast(result, dtype) if result.dtype.kind == "float" else result


def squared_modulus(node: Node) -> Node:
    """The squared modulus, which is real."""
    if not node.dtype.is_complex:
        return node * node
    real, imag = real_part(node), imaginary_part(node)
    return real * real + imag * imag


def index_along(shape: Shape, dim: int) -> Node:
    """The int64 tensor of `shape` that holds each element's index along `dim`."""
    return index_node(IndexMap.axes(shape)[dim], shape)


def mean(node: Node, dims: Sequence[int], keepdim: bool = False) -> Node:
    """The average over `dims`; NaN over no elements."""
    count = math.prod(node.shape[dim] for dim in dims)
    total = reduce_axes("add", node, dims, keepdim)
    return total / as_float(count)


def reduce_loss(loss: Node, reduction: str) -> Node:
    """A loss per element reduced as its `reduction` argument says: none, mean or sum."""
    dims = range(loss.ndim)
    if reduction == "none":
        return loss
    if reduction == "sum":
        return reduce_axes("add", loss, dims)
    return mean(loss, dims)


def clip(node: Node, low: Scalar, high: Scalar) -> Node:
    """`node` clamped to `low … high`, with gradient zero at and beyond the limits."""
    return where(node <= low, low, where(node >= high, high, node))
