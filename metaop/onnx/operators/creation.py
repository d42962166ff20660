"""Operators that create tensors: constants, ranges, random numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import metaop
from metaop.errors import UnsupportedError
from metaop.onnx.table import operator
from metaop.onnx.values import Host, has_tensor_type, integers, numpy_type, tensor_type
from metaop.tensor.core import Tensor
from metaop.unified_graph.dtype import DType


@operator("ConstantOfShape")
def constant_of_shape(input: Host, *, value: Any = None) -> Any:
    """A constant tensor; small integer ones stay on the host, where shapes are computed."""
    fill = np.zeros(1, np.float32) if value is None else np.asarray(value)
    shape = integers(input) if np.size(input) else ()
    count = int(np.prod(shape, dtype=float))
    if not has_tensor_type(fill) or (fill.dtype.kind != "f" and count <= 64):
        return np.full(shape, fill.reshape(-1)[0], fill.dtype)
    kind = tensor_type_of(fill)
    return metaop.full(shape, fill.reshape(-1)[0].item(), dtype=kind)


def tensor_type_of(array: np.ndarray) -> DType:
    """The type of tensors for an array."""
    from metaop.unified_graph import dtype as dtypes

    found = dtypes.from_numpy_dtype(array.dtype)
    assert found is not None
    return found


@operator("Range")
def ranges(start: Host, limit: Host, delta: Host) -> Any:
    """Numbers from `start` up to, but excluding, `limit`."""
    first, last, step = (np.asarray(one).reshape(-1)[0] for one in (start, limit, delta))
    kind = np.asarray(start).dtype
    count = max(0, int(np.ceil((float(last) - float(first)) / float(step))))
    found = (first.astype(np.float64) + np.arange(count) * step.astype(np.float64)).astype(kind)
    if kind.kind != "f":
        found = (np.asarray(first, kind) + np.arange(count, dtype=kind) * step).astype(kind)
    return found


@operator("EyeLike")
def eye_like(x: Any, *, dtype: int | None = None, k: int = 0) -> Any:
    """1 on a diagonal, in the shape of another matrix."""
    own = x.dtype.numpy if isinstance(x, Tensor) else x.dtype
    kind = own if dtype is None else numpy_type(dtype)
    array = np.eye(x.shape[0], x.shape[1], k=k, dtype=kind)
    return metaop.from_numpy(array) if has_tensor_type(array) else array


def _generator(seed: float | None) -> metaop.Generator | None:
    if seed is None:
        return None
    generator = metaop.Generator()
    generator.manual_seed(int(np.float32(seed).view(np.uint32)))
    return generator


def _random_type(dtype: int | None, like: Any = None) -> DType:
    own = like.dtype if isinstance(like, Tensor) and like.dtype.kind == "float" else metaop.float32
    found = own if dtype is None else tensor_type(dtype)
    if found is None or found.kind != "float":
        raise UnsupportedError(f"random numbers of the type {dtype}", fix="ask for floats")
    return found


@operator("RandomUniform")
def random_uniform(
    *,
    shape: Sequence[int],
    dtype: int = 1,
    low: float = 0.0,
    high: float = 1.0,
    seed: float | None = None,
) -> Tensor:
    """Uniform random numbers in [low, high)."""
    kind = _random_type(dtype)
    return low + (high - low) * metaop.rand(tuple(shape), dtype=kind, generator=_generator(seed))


@operator("RandomUniformLike")
def random_uniform_like(
    x: Any,
    *,
    dtype: int | None = None,
    low: float = 0.0,
    high: float = 1.0,
    seed: float | None = None,
) -> Tensor:
    """Uniform random numbers in [low, high), in the shape of a tensor."""
    kind = _random_type(dtype, x)
    return low + (high - low) * metaop.rand(tuple(x.shape), dtype=kind, generator=_generator(seed))


@operator("RandomNormal")
def random_normal(
    *,
    shape: Sequence[int],
    dtype: int = 1,
    mean: float = 0.0,
    scale: float = 1.0,
    seed: float | None = None,
) -> Tensor:
    """Normally distributed numbers."""
    kind = _random_type(dtype)
    return mean + scale * metaop.randn(tuple(shape), dtype=kind, generator=_generator(seed))


@operator("RandomNormalLike")
def random_normal_like(
    x: Any,
    *,
    dtype: int | None = None,
    mean: float = 0.0,
    scale: float = 1.0,
    seed: float | None = None,
) -> Tensor:
    """Normally distributed numbers, in the shape of a tensor."""
    kind = _random_type(dtype, x)
    return mean + scale * metaop.randn(tuple(x.shape), dtype=kind, generator=_generator(seed))


@operator("Bernoulli")
def bernoulli(x: Tensor, *, dtype: int | None = None, seed: float | None = None) -> Tensor:
    """Bernoulli samples with the probabilities of a tensor."""
    kind = x.dtype if dtype is None else tensor_type(dtype)
    return metaop.bernoulli(x, generator=_generator(seed)).to(kind)


@operator("Multinomial")
def multinomial(
    x: Tensor, *, dtype: int = 6, sample_size: int = 1, seed: float | None = None
) -> Tensor:
    """Classes drawn by their log-probabilities."""
    chosen = metaop.multinomial(
        metaop.softmax(x, -1), sample_size, replacement=True, generator=_generator(seed)
    )
    return chosen.to(tensor_type(dtype))
