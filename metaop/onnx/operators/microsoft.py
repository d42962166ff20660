"""Fused operators of onnxruntime (com.microsoft) that published networks use."""

from __future__ import annotations

from typing import Any

import metaop
from metaop.nn import functional as F
from metaop.onnx.operators.shaping import shape_of
from metaop.onnx.table import MICROSOFT, Node, operator
from metaop.tensor.core import Tensor


@operator("Gelu", domain=MICROSOFT)
def gelu(x: Tensor) -> Tensor:
    """x times the normal distribution function of x."""
    return F.gelu(x)


@operator("FastGelu", domain=MICROSOFT)
def fast_gelu(x: Tensor, bias: Tensor | None = None) -> Tensor:
    """Gelu by its approximation with tanh."""
    return F.gelu(x if bias is None else x + bias, approximate="tanh")


@operator("BiasGelu", domain=MICROSOFT)
def bias_gelu(x: Tensor, bias: Tensor) -> Tensor:
    """Gelu of a sum."""
    return F.gelu(x + bias)


@operator("QuickGelu", domain=MICROSOFT)
def quick_gelu(x: Tensor, *, alpha: float = 1.702) -> Tensor:
    """x sigmoid(alpha x)."""
    return x * metaop.sigmoid(alpha * x)


@operator("SkipLayerNormalization", domain=MICROSOFT)
def skip_layer_norm(
    x: Tensor,
    skip: Tensor,
    gamma: Tensor,
    beta: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    epsilon: float = 1e-12,
    node: Node,
) -> Any:
    """The normalised sum of two tensors; the fourth result is the sum."""
    total = x + skip if bias is None else x + skip + bias
    found = F.layer_norm(total, shape_of(gamma), gamma, beta, epsilon)
    return (found, None, None, total) if node.wants(3) else found


@operator("FusedMatMul", domain=MICROSOFT)
def fused_matmul(
    a: Tensor,
    b: Tensor,
    *,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
    transBatchA: int = 0,
    transBatchB: int = 0,
) -> Tensor:
    """alpha a b, for optionally transposed matrices."""
    if transBatchA or transBatchB:
        a, b = (
            metaop.movedim(one, 0, -2) if t else one
            for one, t in ((a, transBatchA), (b, transBatchB))
        )
    a = a.transpose(-1, -2) if transA else a
    b = b.transpose(-1, -2) if transB else b
    return alpha * metaop.matmul(a, b)
