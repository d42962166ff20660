"""Normalisations, and dropout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import metaop
from metaop.nn import functional as F
from metaop.onnx.operators.shaping import shape_of
from metaop.onnx.table import Node, operator
from metaop.onnx.values import Host
from metaop.tensor.core import Tensor


@operator("BatchNormalization")
def batch_norm(
    x: Tensor,
    scale: Tensor,
    b: Tensor,
    mean: Tensor,
    var: Tensor,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    training_mode: int = 0,
    spatial: int = 1,
    node: Node,
) -> Any:
    """Batch normalisation by the statistics in the file, or in training mode by the batch's.

    In training mode further results are the running statistics, of which `momentum` is kept.
    """
    dtype = x.dtype
    if not training_mode:
        if dtype is mean.dtype:
            return F.batch_norm(x, mean, var, scale, b, False, 0.0, epsilon)
        wide = x.to(mean.dtype)
        scale, b = scale.to(mean.dtype), b.to(mean.dtype)
        return F.batch_norm(wide, mean, var, scale, b, False, 0.0, epsilon).to(dtype)
    dims = [k for k in range(len(x.shape)) if k != 1]
    moment = metaop.mean(x, dims)
    spread = metaop.var(x, dims, unbiased=False)
    found = F.batch_norm(x, moment, spread, scale, b, False, 0.0, epsilon)
    kept, new = momentum, 1 - momentum
    return found, mean * kept + moment * new, var * kept + spread * new


@operator("InstanceNormalization")
def instance_norm(x: Tensor, scale: Tensor, b: Tensor, *, epsilon: float = 1e-5) -> Tensor:
    """Normalises each channel of each sample."""
    return F.instance_norm(x, weight=scale, bias=b, eps=epsilon)


@operator("GroupNormalization")
def group_norm(
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    *,
    num_groups: int,
    epsilon: float = 1e-5,
    stash_type: int = 1,
    node: Node,
) -> Tensor:
    """Group normalisation; before version 21 scale and bias are per group, then per channel."""
    if node.version < 21:
        each = shape_of(x)[1] // num_groups
        scale, bias = (metaop.repeat_interleave(one, each) for one in (scale, bias))
    return F.group_norm(x, num_groups, scale, bias, epsilon)


def _from(x: Tensor, axis: int) -> tuple[int, ...]:
    return shape_of(x)[axis % len(x.shape) :]


@operator("LayerNormalization")
def layer_norm(
    x: Tensor,
    scale: Tensor,
    b: Tensor | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
    node: Node,
) -> Any:
    """Layer normalisation; further results are the mean and the inverse standard deviation."""
    dims = _from(x, axis)
    if shape_of(scale) == dims and (b is None or shape_of(b) == dims):
        found = F.layer_norm(x, dims, scale, b, epsilon)
    else:
        found = F.layer_norm(x, dims, None, None, epsilon) * scale
        found = found if b is None else found + b
    if not node.wants(1) and not node.wants(2):
        return found
    over = list(range(axis % len(x.shape), len(x.shape)))
    wide = x.to(metaop.float32) if stash_type == 1 else x
    mean = metaop.mean(wide, over, keepdim=True)
    spread = metaop.var(wide, over, unbiased=False, keepdim=True)
    return found, mean, metaop.rsqrt(spread + epsilon)


@operator("RMSNormalization SimplifiedLayerNormalization")
def rms_norm(
    x: Tensor, scale: Tensor, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Tensor:
    """Divides by the root mean square of the last dimensions, from `axis` on."""
    dims = _from(x, axis)
    if shape_of(scale) == dims and x.dtype is scale.dtype:
        return F.rms_norm(x, dims, scale, epsilon)
    return F.rms_norm(x, dims, None, epsilon) * scale


@operator("MeanVarianceNormalization")
def mean_variance_norm(x: Tensor, *, axes: Sequence[int] = (0, 2, 3)) -> Tensor:
    """Normalises to mean 0 and variance 1 over some dimensions."""
    centred = x - metaop.mean(x, list(axes), keepdim=True)
    spread = metaop.sqrt(metaop.mean(centred * centred, list(axes), keepdim=True))
    return centred / (spread + 1e-9)


@operator("LRN")
def local_response_norm(
    x: Tensor, *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0
) -> Tensor:
    """Divides by a power of the sum of squares of neighbouring channels."""
    channels = shape_of(x)[1]
    before = (size - 1) // 2
    rest = [0, 0] * (len(x.shape) - 2)
    squares = F.pad(x * x, [*rest, before, size - 1 - before])
    total: Any = sum(squares.narrow(1, k, channels) for k in range(size))
    return x / (bias + alpha / size * total) ** beta


@operator("Dropout")
def dropout(
    x: Tensor,
    ratio: Host | None = None,
    training_mode: Host | None = None,
    *,
    seed: int | None = None,
    node: Node,
) -> Any:
    """The identity, unless the file requests training; the second result is the mask."""
    share = 0.5 if ratio is None else float(np.asarray(ratio).reshape(-1)[0])
    is_training = training_mode is not None and bool(np.asarray(training_mode).reshape(-1)[0])
    if not is_training or node.version < 12 or share == 0:
        return (x, metaop.ones_like(x, dtype=metaop.bool)) if node.wants(1) else x
    generator = None if seed is None else metaop.Generator().manual_seed(seed)
    kept = metaop.rand(tuple(x.shape), generator=generator) >= share
    return metaop.where(kept, x / (1 - share), 0 * x), kept
