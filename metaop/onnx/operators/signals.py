"""Fourier transforms and windows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import metaop
from metaop.onnx.operators.pointwise import converted_array
from metaop.onnx.operators.shaping import shape_of
from metaop.onnx.table import operator
from metaop.onnx.values import Host, has_tensor_type, numpy_type
from metaop.tensor.core import Tensor


def _rotations(count: int, outputs: int, inverse: bool) -> tuple[np.ndarray, np.ndarray]:
    """Cosines and sines (inputs, outputs) of a discrete Fourier transform."""
    turns = np.outer(np.arange(count), np.arange(outputs)) % count
    angles = 2 * math.pi * turns / count
    return np.cos(angles), np.sin(angles) if inverse else -np.sin(angles)


def transformed(x: Tensor, count: int, onesided: bool, inverse: bool) -> Tensor:
    """The transform of (…, n, 1 or 2) along the second to last dimension, by matrix products.

    The last dimension holds real and imaginary parts. The result of an inverse onesided transform
    is real.
    """
    extent, parts = shape_of(x)[-2:]
    if onesided and inverse:
        # The other half is the reversed conjugate of the given one.
        half = count // 2 + 1
        x = x.narrow(-2, 0, half)
        rest = metaop.flip(x.narrow(-2, 1, count - half), [-2])
        x = metaop.cat([x, rest * metaop.tensor([1.0, -1.0], dtype=x.dtype)], -2)
    elif extent > count:
        x = x.narrow(-2, 0, count)
    elif extent < count:
        x = metaop.nn.functional.pad(x, [0, 0, 0, count - extent])
    outputs = count // 2 + 1 if onesided and not inverse else count
    cosines, sines = (metaop.tensor(one).to(x.dtype) for one in _rotations(count, outputs, inverse))
    real = x.select(-1, 0)
    turned, other = metaop.matmul(real, cosines), metaop.matmul(real, sines)
    if parts == 2:
        imaginary = x.select(-1, 1)
        turned = turned - metaop.matmul(imaginary, sines)
        other = other + metaop.matmul(imaginary, cosines)
    if inverse:
        turned, other = turned / count, other / count
        if onesided:
            return turned.unsqueeze(-1)
    return metaop.stack([turned, other], -1)


@operator("DFT", since=20)
def fourier_transform(
    x: Tensor,
    dft_length: Host | None = None,
    axis: Host | None = None,
    *,
    inverse: int = 0,
    onesided: int = 0,
) -> Tensor:
    """The Fourier transform along a dimension, an input since version 20."""
    ndim = len(x.shape)
    dim = int(np.asarray(-2 if axis is None else axis).reshape(-1)[0]) % ndim
    count = shape_of(x)[dim]
    if onesided and inverse:
        count = 2 * (count - 1)
    if dft_length is not None:
        count = int(np.asarray(dft_length).reshape(-1)[0])
    moved = metaop.movedim(x, dim, -2)
    found = transformed(moved, count, bool(onesided), bool(inverse))
    return metaop.movedim(found, -2, dim)


@operator("DFT", since=17)
def fourier_transform_17(
    x: Tensor,
    dft_length: Host | None = None,
    *,
    axis: int = 1,
    inverse: int = 0,
    onesided: int = 0,
) -> Tensor:
    """`fourier_transform` of version 17: the dimension is an attribute, 1 by default."""
    return fourier_transform(x, dft_length, np.array(axis), inverse=inverse, onesided=onesided)


@operator("STFT")
def short_time_transform(
    signal: Tensor,
    frame_step: Host,
    window: Tensor | None = None,
    frame_length: Host | None = None,
    *,
    onesided: int = 1,
) -> Tensor:
    """Transforms of frames (N, frames, bins, 2) of a signal (N, T, 1 or 2)."""
    step = int(np.asarray(frame_step).reshape(-1)[0])
    if frame_length is not None:
        size = int(np.asarray(frame_length).reshape(-1)[0])
    else:
        assert window is not None
        size = shape_of(window)[0]
    if len(signal.shape) == 2:
        signal = signal.unsqueeze(-1)
    frames = signal.unfold(1, size, step).permute((0, 1, 3, 2))
    if window is not None:
        frames = frames * window.reshape((-1, 1))
    return transformed(frames, size, bool(onesided), False)


def _cosines(size: Host, periodic: int, dtype: int, numbers: tuple[float, ...]) -> Any:
    count = int(np.asarray(size).reshape(-1)[0])
    turns = np.arange(count) / max(1, count if periodic else count - 1)
    found = sum(a * np.cos(2 * math.pi * k * turns) for k, a in enumerate(numbers))
    array = converted_array(np.asarray(found, np.float64), numpy_type(dtype))
    return metaop.from_numpy(array) if has_tensor_type(array) else array


@operator("HannWindow")
def hann_window(size: Host, *, output_datatype: int = 1, periodic: int = 1) -> Any:
    """A raised cosine."""
    return _cosines(size, periodic, output_datatype, (0.5, -0.5))


@operator("HammingWindow")
def hamming_window(size: Host, *, output_datatype: int = 1, periodic: int = 1) -> Any:
    """A raised cosine that does not end at 0."""
    return _cosines(size, periodic, output_datatype, (25 / 46, -21 / 46))


@operator("BlackmanWindow")
def blackman_window(size: Host, *, output_datatype: int = 1, periodic: int = 1) -> Any:
    """A sum of two cosines."""
    return _cosines(size, periodic, output_datatype, (0.42, -0.5, 0.08))


@operator("MelWeightMatrix")
def mel_weights(
    num_mel_bins: Host,
    dft_length: Host,
    sample_rate: Host,
    lower_edge_hertz: Host,
    upper_edge_hertz: Host,
    *,
    output_datatype: int = 1,
) -> Any:
    """Triangles over the bins of a transform, at equal distances on the mel scale."""
    bins, length, rate, low, high = (
        float(np.asarray(one).reshape(-1)[0])
        for one in (num_mel_bins, dft_length, sample_rate, lower_edge_hertz, upper_edge_hertz)
    )
    count = int(length) // 2 + 1
    low_mel, high_mel = (2595 * math.log10(1 + hertz / 700) for hertz in (low, high))
    step = (high_mel - low_mel) / (bins + 2)
    mels = np.arange(int(bins) + 2) * step + low_mel
    hertz = 700 * (10 ** (mels / 2595) - 1)
    edges = ((length + 1) * hertz // rate).astype(int)
    found = np.zeros((count, int(bins)), np.float64)
    for k in range(int(bins)):
        first, centre, last = edges[k : k + 3]
        if centre == first:
            found[centre, k] = 1
        else:
            rising = np.arange(first, centre + 1)
            found[rising, k] = (rising - first) / (centre - first)
        if last > centre:
            falling = np.arange(centre, last)
            found[falling, k] = (last - falling) / (last - centre)
    array = converted_array(found, numpy_type(output_datatype))
    return metaop.from_numpy(array) if has_tensor_type(array) else array
