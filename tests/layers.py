"""Layers whose input may have any size: functions of a library and its tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

SIZES = (12, 17, 23, 30, 25, 19, 14, 27)
# A layer gets PyTorch or metaop, its functions, an input, and the size that varies.
Layer = Callable[[Any, Any, Any, int], Any]


def windows(T: Any, F: Any, x: Any, n: int) -> Any:
    """Attention within windows of 4 x 4, as in a network for images of any size."""
    height, width = (extent // 4 for extent in x.shape[2:])
    x = x[:, :, : height * 4, : width * 4]
    parts = x.reshape(2, 8, height, 4, width, 4).permute(0, 2, 4, 3, 5, 1).reshape(-1, 16, 8)
    parts = F.scaled_dot_product_attention(parts, parts, parts)
    return parts.reshape(2, height, width, 4, 4, 8).permute(0, 5, 1, 3, 2, 4)


def rotary(T: Any, F: Any, x: Any, n: int) -> Any:
    angles = T.outer(T.arange(n).float(), 1 / (100 ** (T.arange(8).float() / 8)))
    even, odd = x[..., ::2], x[..., 1::2]
    turned = even * angles.cos() - odd * angles.sin(), even * angles.sin() + odd * angles.cos()
    return T.stack(turned, -1).flatten(-2)


def cross(T: Any, F: Any, x: Any, n: int) -> Any:
    return F.scaled_dot_product_attention(x, x[:, : n // 2], x[:, : n // 2])


def half(x: Any) -> Any:
    """Every second row and column, as a layer with stride 2 leaves them."""
    return x[:, :, ::2, ::2] * 2


IMAGES: dict[str, Layer] = {
    "average pool": lambda T, F, x, n: F.avg_pool2d(x, 2),
    "average pool with padding": lambda T, F, x, n: F.avg_pool2d(x, 3, 2, 1),
    "average pool of what is inside": lambda T, F, x, n: F.avg_pool2d(
        x, 3, 1, 1, count_include_pad=False
    ),
    "average pool rounded up": lambda T, F, x, n: F.avg_pool2d(x, 3, 2, ceil_mode=True),
    "maximum pool": lambda T, F, x, n: F.max_pool2d(x, 3, 2, 1),
    "power pool": lambda T, F, x, n: F.lp_pool2d(x.abs() + 0.1, 2, 2),
    "adaptive pool": lambda T, F, x, n: F.adaptive_avg_pool2d(x, 1),
    "twice as large": lambda T, F, x, n: F.interpolate(x, scale_factor=2),
    "twice as large and smooth": lambda T, F, x, n: F.interpolate(
        x, scale_factor=2, mode="bilinear"
    ),
    "aligned corners": lambda T, F, x, n: F.interpolate(
        x, scale_factor=2, mode="bilinear", align_corners=True
    ),
    "cubic": lambda T, F, x, n: F.interpolate(x, scale_factor=1.5, mode="bicubic"),
    "as large as before": lambda T, F, x, n: F.interpolate(half(x), size=x.shape[2:]) + x,
    "as large as before, exactly": lambda T, F, x, n: F.interpolate(
        half(x), size=x.shape[2:], mode="nearest-exact"
    ),
    "as large as before and smooth": lambda T, F, x, n: F.interpolate(
        half(x), size=x.shape[2:], mode="bilinear"
    ),
    "half as large": lambda T, F, x, n: F.interpolate(x, scale_factor=0.5, mode="bilinear"),
    "pixel shuffle": lambda T, F, x, n: F.pixel_shuffle(x, 2),
    "unfolded": lambda T, F, x, n: F.unfold(x, 3, padding=1),
    "group norm": lambda T, F, x, n: F.group_norm(x, 2),
    "instance norm": lambda T, F, x, n: F.instance_norm(x),
    "response norm": lambda T, F, x, n: F.local_response_norm(x, 3),
    "layer norm of all": lambda T, F, x, n: F.layer_norm(x, x.shape[1:]),
    "reflected": lambda T, F, x, n: F.pad(x, (2, 1, 2, 1), mode="reflect"),
    "circular": lambda T, F, x, n: F.pad(x, (2, 1, 2, 1), mode="circular"),
    "rolled": lambda T, F, x, n: T.roll(x, (-2, 3), (2, 3)),
    "gated": lambda T, F, x, n: F.glu(x, 1),
    "squeeze and excite": lambda T, F, x, n: x * x.mean((2, 3), keepdim=True).sigmoid(),
    "deviations": lambda T, F, x, n: x.std((2, 3)),
    "gram": lambda T, F, x, n: x.flatten(2) @ x.flatten(2).transpose(1, 2) / (n * n),
    "differences": lambda T, F, x, n: (x[..., 1:] - x[..., :-1]).abs().mean((0, 1)),
    "windows": windows,
}
SEQUENCES: dict[str, Layer] = {
    "causal attention": lambda T, F, x, n: F.scaled_dot_product_attention(x, x, x, is_causal=True),
    "cross attention": cross,
    "rotary": rotary,
    "cumulative": lambda T, F, x, n: x.cumsum(1),
    "largest": lambda T, F, x, n: x.topk(4, 1)[0],
    "median": lambda T, F, x, n: x.median(1)[0],
    "last halves": lambda T, F, x, n: T.cat([x[:, n // 2 :], x[:, : n // 2]], 1),
    "lower triangle": lambda T, F, x, n: T.tril(x @ x.transpose(1, 2)),
    "repeated": lambda T, F, x, n: x.repeat_interleave(3, 1),
    "spectrum": lambda T, F, x, n: T.fft.rfft(x, dim=1).abs(),
    "normalised": lambda T, F, x, n: F.normalize(x, dim=1),
    "distances": lambda T, F, x, n: T.cdist(x + 1, x * 2),
}


def image(numbers: np.random.Generator, n: int) -> np.ndarray:
    return numbers.standard_normal((2, 8, n, n + 3))


def sequence(numbers: np.random.Generator, n: int) -> np.ndarray:
    return numbers.standard_normal((3, n, 16))


CASES = [
    *((layer, image, name) for name, layer in IMAGES.items()),
    *((layer, sequence, name) for name, layer in SEQUENCES.items()),
]
