"""Operators that reduce or scan along dimensions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import metaop
from metaop.onnx.operators.shaping import shape_of
from metaop.onnx.table import Node, operator
from metaop.onnx.values import Host, integers
from metaop.tensor.core import Tensor
from metaop.tensor.functions.reductions import amax, amin, logsumexp

Reducer = Callable[[Tensor, Sequence[int], bool], Any]


def _product(x: Tensor, dims: Sequence[int], keep: bool) -> Any:
    for dim in sorted(dims, reverse=True):
        x = metaop.prod(x, dim, keepdim=keep)
    return x


def _extreme(function: Callable[..., Any], lowest: bool) -> Reducer:
    def reduce(x: Tensor, dims: Sequence[int], keep: bool) -> Any:
        if x.dtype.kind == "bool":
            return reduce(x.to(metaop.uint8), dims, keep).to(metaop.bool)
        if all(shape_of(x)[dim] for dim in dims):
            return function(x, dims, keep)
        # The maximum of nothing is the smallest number of the type.
        shape = [1 if k in dims else n for k, n in enumerate(shape_of(x)) if keep or k not in dims]
        return metaop.full(shape, x.dtype.lowest if lowest else x.dtype.highest, dtype=x.dtype)

    return reduce


def _sum(x: Tensor, dims: Sequence[int], keep: bool) -> Any:
    return metaop.sum(x, dims, keepdim=keep, dtype=x.dtype)


_REDUCERS: dict[str, tuple[Reducer, Callable[[Any], Any] | None]] = {
    "ReduceSum": (_sum, None),
    "ReduceMean": (lambda x, dims, keep: _mean(x, dims, keep), None),
    "ReduceProd": (lambda x, dims, keep: _product(x, dims, keep).to(x.dtype), None),
    "ReduceMax": (_extreme(amax, True), None),
    "ReduceMin": (_extreme(amin, False), None),
    "ReduceL1": (lambda x, dims, keep: _sum(metaop.abs(x), dims, keep), metaop.abs),
    "ReduceL2": (lambda x, dims, keep: _norm(x, dims, keep), metaop.abs),
    "ReduceLogSum": (lambda x, dims, keep: metaop.log(_sum(x, dims, keep)), metaop.log),
    "ReduceLogSumExp": (lambda x, dims, keep: logsumexp(x, dims, keep), None),
    "ReduceSumSquare": (lambda x, dims, keep: _sum(x * x, dims, keep), lambda x: x * x),
}


def _mean(x: Tensor, dims: Sequence[int], keep: bool) -> Any:
    if x.dtype.kind == "float":
        return metaop.mean(x, dims, keepdim=keep)
    count = int(np.prod([shape_of(x)[dim] for dim in dims]))
    return metaop.div(_sum(x, dims, keep), count, rounding_mode="trunc").to(x.dtype)


def _norm(x: Tensor, dims: Sequence[int], keep: bool) -> Any:
    wide = x if x.dtype.kind == "float" else x.to(metaop.float32)
    return metaop.sqrt(_sum(wide * wide, dims, keep)).to(x.dtype)


def _enter(name: str, reducer: Reducer, of_one: Callable[[Any], Any] | None) -> None:
    def reduce(
        x: Tensor,
        axes: Host | None = None,
        *,
        keepdims: int = 1,
        noop_with_empty_axes: int = 0,
    ) -> Tensor:
        ndim = len(x.shape)
        if axes is None or np.size(axes) == 0:
            if noop_with_empty_axes:
                return x if of_one is None else of_one(x)
            dims = list(range(ndim))
        else:
            dims = sorted(axis % max(ndim, 1) for axis in integers(axes))
        if not dims or not ndim:
            return x if of_one is None else of_one(x)
        return reducer(x, dims, bool(keepdims))

    operator(name)(reduce)


for _name, (_reducer, _of_one) in _REDUCERS.items():
    _enter(_name, _reducer, _of_one)


def _place(x: Tensor, axis: int, keepdims: int, last: int, largest: bool) -> Tensor:
    if x.dtype.kind == "bool":
        x = x.to(metaop.uint8)
    find = metaop.argmax if largest else metaop.argmin
    if not last:
        return find(x, axis, keepdim=bool(keepdims))
    return shape_of(x)[axis] - 1 - find(metaop.flip(x, [axis]), axis, keepdim=bool(keepdims))


@operator("ArgMax")
def place_of_largest(
    x: Tensor, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0
) -> Tensor:
    """Where the largest element is; of equal ones the first, or the last."""
    return _place(x, axis, keepdims, select_last_index, True)


@operator("ArgMin")
def place_of_smallest(
    x: Tensor, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0
) -> Tensor:
    """Where the smallest element is; of equal ones the first, or the last."""
    return _place(x, axis, keepdims, select_last_index, False)


def _cumulative(x: Tensor, dim: int, exclusive: int, reverse: int, product: bool) -> Tensor:
    extent = shape_of(x)[dim]
    turned = metaop.flip(x, [dim]) if reverse else x
    run = metaop.cumprod if product else metaop.cumsum
    found = run(turned, dim, dtype=x.dtype)
    if exclusive:
        first = metaop.full_like(found.narrow(dim, 0, min(1, extent)), 1 if product else 0)
        found = metaop.cat([first, found.narrow(dim, 0, max(extent - 1, 0))], dim)
    return metaop.flip(found, [dim]) if reverse else found


@operator("CumSum")
def cumulative_sum(x: Tensor, axis: Host, *, exclusive: int = 0, reverse: int = 0) -> Tensor:
    """Sums of all elements up to each."""
    return _cumulative(x, integers(axis)[0], exclusive, reverse, False)


@operator("CumProd")
def cumulative_product(x: Tensor, axis: Host, *, exclusive: int = 0, reverse: int = 0) -> Tensor:
    """Products of all elements up to each."""
    return _cumulative(x, integers(axis)[0], exclusive, reverse, True)


def along(x: Tensor, axis: int | None, version: int, function: Callable[[Tensor, int], Any]) -> Any:
    """Applies a function along a dimension; before version 13 along all dimensions from it on."""
    if version >= 13 or not len(x.shape):
        return function(x, -1 if axis is None else axis)
    shape = shape_of(x)
    first = (1 if axis is None else axis) % len(shape)
    flat = x.reshape((int(np.prod(shape[:first])), int(np.prod(shape[first:]))))
    return function(flat, 1).reshape(shape)


@operator("Softmax")
def softmax(x: Tensor, *, axis: int | None = None, node: Node) -> Tensor:
    """Exponentials divided by their sum along a dimension."""
    return along(x, axis, node.version, metaop.softmax)


@operator("LogSoftmax")
def log_softmax(x: Tensor, *, axis: int | None = None, node: Node) -> Tensor:
    """The logarithm of the softmax."""
    return along(x, axis, node.version, metaop.log_softmax)


@operator("LpNormalization")
def normalised(x: Tensor, *, axis: int = -1, p: int = 2) -> Tensor:
    """Divides by the norm; vectors of norm 0 stay 0."""
    norm = metaop.sum(metaop.abs(x), [axis], keepdim=True)
    if p == 2:
        norm = metaop.sqrt(metaop.sum(x * x, [axis], keepdim=True))
    return metaop.where(norm == 0, 0 * x, x / norm)


@operator("Einsum")
def einsum(*terms: Tensor, equation: str) -> Tensor:
    """A sum of products, by the letters of an equation."""
    return metaop.einsum(equation.replace(" ", ""), *terms)


@operator("MatMul")
def matmul(a: Tensor, b: Tensor) -> Tensor:
    """The product of matrices, batch by batch."""
    return metaop.matmul(a, b)


@operator("Gemm")
def general_product(
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Tensor:
    """alpha a b + beta c, for optionally transposed matrices."""
    is_linear = c is not None and len(c.shape) == 1 and not transA
    if is_linear and alpha == beta == 1 and shape_of(c)[0] == shape_of(b)[0 if transB else 1]:
        return metaop.nn.functional.linear(a, b if transB else b.t(), c)
    found = metaop.matmul(a.t() if transA else a, b.t() if transB else b)
    found = found if alpha == 1 else _scaled(found, alpha)
    if c is None:
        return found
    return found + (c if beta == 1 else _scaled(c, beta))


def _scaled(x: Tensor, factor: float) -> Tensor:
    return (x * factor).to(x.dtype)


@operator("Det")
def determinant(x: Tensor) -> Tensor:
    """The determinant of each matrix."""
    return metaop.det(x)
