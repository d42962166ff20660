"""Sums, products and sorting."""

from __future__ import annotations

import math

import numpy as np

from metaop.onnx.exporting.rows.base import ROWS, Operands, Row, row
from metaop.operators import (
    attention,
    linear,
    linear_algebra,
    ordering,
    reduction,
    scan,
)


def _reduction(operator: str) -> Row:
    def write(o: Operands) -> str:
        dims, keep, dtype = o.attributes
        name = o.w.cast(o.name(0), o.type(0).dtype, dtype)
        return o.w.reduce(operator, name, dims, keep)

    return write


ROWS[reduction.sum] = _reduction("ReduceSum")
ROWS[reduction.mean] = _reduction("ReduceMean")
ROWS[reduction.prod] = _reduction("ReduceProd")


@row(reduction.extreme)
def _extreme(o: Operands) -> str:
    reducer, dims, keep = o.attributes
    return o.w.reduce("ReduceMax" if "max" in reducer else "ReduceMin", o.name(0), dims, keep)


@row(reduction.extreme_with_index)
def _extreme_with_index(o: Operands) -> list[str] | None:
    reducer, dim, keep = o.attributes
    if not o.ndim:
        return None
    kind = "Max" if "max" in reducer else "Min"
    values = o.w.reduce(f"Reduce{kind}", o.name(0), [dim], keep)
    return [values, o.w.node(f"Arg{kind}", o.name(0), axis=dim, keepdims=int(keep))]


@row(reduction.extreme_index)
def _extreme_index(o: Operands) -> str | None:
    reducer, dim, keep = o.attributes
    kind = "ArgMax" if "max" in reducer else "ArgMin"
    if dim is None:
        if keep:
            return None
        flat = o.w.node("Reshape", o.name(0), o.w.integers([-1]))
        return o.w.node(kind, flat, axis=0, keepdims=0)
    return o.w.node(kind, o.name(0), axis=dim, keepdims=int(keep)) if o.ndim else None


@row(reduction.logsumexp)
def _logsumexp(o: Operands) -> str:
    dims, keep = o.attributes
    return o.w.reduce("ReduceLogSumExp", o.name(0), dims, keep)


@row(scan.cumulative)
def _cumulative(o: Operands) -> str | None:
    function, dim, dtype = o.attributes
    if function != "add" or not o.ndim:
        return None
    name = o.w.cast(o.name(0), o.type(0).dtype, dtype)
    return o.w.node("CumSum", name, o.w.array(np.array(dim, np.int64)))


@row(ordering.topk)
def _topk(o: Operands) -> list[str] | None:
    count, dim, largest = o.attributes
    if not o.ndim:
        return None
    return o.w.several(
        "TopK", 2, o.name(0), o.w.integers([count]), axis=dim, largest=int(largest), sorted=1
    )


@row(ordering.sort)
def _sort(o: Operands) -> list[str] | None:
    dim, descending = o.attributes
    if not o.ndim:
        return None
    count = o.w.integers([o.type(0).shape[dim]])
    return o.w.several("TopK", 2, o.name(0), count, axis=dim, largest=int(descending), sorted=1)


# --- products -----------------------------------------------------------------------------------


@row(linear_algebra.matmul)
def _matmul(o: Operands) -> str:
    return o.w.node("MatMul", o.name(0), o.name(1))


@row(linear.linear)
def _linear(o: Operands) -> str | None:
    weight = o.type(1)
    if len(weight.shape) != 2:
        return None
    if o.ndim == 2:
        return o.w.node("Gemm", o.name(0), o.name(1), o.names[2], transB=1)
    product = o.w.node("MatMul", o.name(0), o.w.node("Transpose", o.name(1), perm=[1, 0]))
    bias = o.names[2]
    return product if bias is None else o.w.node("Add", product, bias)


@row(attention.attention)
def _attention(o: Operands) -> str | None:
    _, causal, scale, grouped = o.attributes
    if causal or grouped or o.names[4] is not None:
        return None
    return _mixed(o, scale)[0]


@row(attention.attention_with_weights)
def _attention_with_weights(o: Operands) -> list[str] | None:
    return None if o.names[4] is not None else _mixed(o, None)


def _mixed(o: Operands, scale: float | None) -> list[str]:
    w, query = o.w, o.type(0)
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    ndim = len(o.type(1).shape)
    order = [*range(ndim - 2), ndim - 1, ndim - 2]
    turned = w.node("Transpose", o.name(1), perm=order)
    scores = w.node("MatMul", o.name(0), turned)
    scores = w.node("Mul", scores, w.number(factor, query.dtype))
    mask = o.names[3]
    excluded = None
    if mask is not None and o.type(3).dtype.kind == "bool":
        excluded = w.node("Not", mask)
        scores = w.node("Where", mask, scores, w.number(-math.inf, query.dtype))
    elif mask is not None:
        scores = w.node("Add", scores, w.cast(mask, o.type(3).dtype, query.dtype))
    weights = w.node("Softmax", scores, axis=len(query.shape) - 1)
    if excluded is not None or mask is not None:
        # Fully masked rows give zeros.
        nothing = w.node("IsNaN", weights)
        weights = w.node("Where", nothing, w.number(0, query.dtype), weights)
    return [w.node("MatMul", weights, o.name(2)), weights]
