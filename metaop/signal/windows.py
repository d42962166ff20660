"""Window functions, as in `torch.signal.windows`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from metaop.errors import ArgumentError
from metaop.tensor.core import Tensor, from_array
from metaop.tensor.promotion import defaults
from metaop.unified_graph.dtype import DType

__all__ = [
    "bartlett",
    "blackman",
    "cosine",
    "exponential",
    "gaussian",
    "general_cosine",
    "general_hamming",
    "hamming",
    "hann",
    "kaiser",
    "nuttall",
]


def _window(
    M: int,
    formula: Callable[[np.ndarray, int], np.ndarray],
    sym: bool,
    dtype: DType | None,
    layout: Any,
    device: Any,
    requires_grad: bool,
) -> Tensor:
    """The samples `formula(k, period)` for k = 0 … M - 1."""
    if M < 0:
        raise ArgumentError(f"Requires non-negative window length, got M={M}")
    dtype = dtype or defaults.dtype
    period = M - 1 if sym else M
    values = formula(np.arange(M, dtype=np.float64), period) if M > 1 else np.ones(M)
    result = from_array(np.asarray(values).astype(dtype.numpy), dtype).to(device=device)
    return result.requires_grad_() if requires_grad else result


def general_cosine(
    M: int,
    *,
    a: Iterable[float],
    sym: bool = True,
    dtype: DType | None = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """A sum of cosines with the weights `a` and alternating signs: a window of length `M`.

    >>> metaop.signal.windows.general_cosine(3, a=[0.5, 0.5])
    tensor([0., 1., 0.])
    """
    weights = list(a)

    def formula(k: np.ndarray, period: int) -> np.ndarray:
        angle = k * (2 * math.pi / period)
        terms = [(-1) ** j * weight * np.cos(j * angle) for j, weight in enumerate(weights)]
        return np.sum(terms, 0)

    return _window(M, formula, sym, dtype, layout, device, requires_grad)


def general_hamming(M: int, *, alpha: float = 0.54, sym: bool = True, **options: Any) -> Tensor:
    """`alpha - (1 - alpha) cos(t)` over one period: a window of length `M`.

    >>> metaop.signal.windows.general_hamming(3, alpha=0.75)
    tensor([0.5000, 1.0000, 0.5000])
    """
    return general_cosine(M, a=(alpha, 1 - alpha), sym=sym, **options)


def hamming(M: int, *, sym: bool = True, **options: Any) -> Tensor:
    """`0.54 - 0.46 cos(t)` over one period: a window of length `M`.

    >>> metaop.signal.windows.hamming(3)
    tensor([0.0800, 1.0000, 0.0800])
    """
    return general_hamming(M, sym=sym, **options)


def hann(M: int, *, sym: bool = True, **options: Any) -> Tensor:
    """Half a cosine wave, 0 at the ends: a window of length `M`.

    >>> metaop.signal.windows.hann(3)
    tensor([0., 1., 0.])
    """
    return general_hamming(M, alpha=0.5, sym=sym, **options)


def blackman(M: int, *, sym: bool = True, **options: Any) -> Tensor:
    """Three cosine terms, 0 at the ends: a window of length `M`.

    >>> metaop.signal.windows.blackman(5)[1:4]
    tensor([0.3400, 1.0000, 0.3400])
    """
    return general_cosine(M, a=(0.42, 0.5, 0.08), sym=sym, **options)


def nuttall(M: int, *, sym: bool = True, **options: Any) -> Tensor:
    """Four cosine terms with small side lobes: a window of length `M`.

    >>> metaop.signal.windows.nuttall(3)
    tensor([3.6280e-04, 1.0000e+00, 3.6280e-04])
    """
    weights = (0.3635819, 0.4891775, 0.1365995, 0.0106411)
    return general_cosine(M, a=weights, sym=sym, **options)


def _offered(
    M: int, formula: Callable[[np.ndarray, int], np.ndarray], sym: bool, options: dict[str, Any]
) -> Tensor:
    dtype, layout, device = (options.pop(name, None) for name in ("dtype", "layout", "device"))
    requires_grad = options.pop("requires_grad", False)
    if options:
        raise TypeError(f"a window has no option {next(iter(options))!r}")
    return _window(M, formula, sym, dtype, layout, device, requires_grad)


def bartlett(M: int, *, sym: bool = True, **options: Any) -> Tensor:
    """A triangle, 0 at the ends: a window of length `M`.

    >>> metaop.signal.windows.bartlett(5)
    tensor([0.0000, 0.5000, 1.0000, 0.5000, 0.0000])
    """
    return _offered(M, lambda k, period: 1 - np.abs(2 * k / period - 1), sym, options)


def cosine(M: int, *, sym: bool = True, **options: Any) -> Tensor:
    """Half a sine wave: a window of length `M`.

    >>> metaop.signal.windows.cosine(3)
    tensor([0.5000, 1.0000, 0.5000])
    """

    def formula(k: np.ndarray, period: int) -> np.ndarray:
        return np.sin((k + 0.5) * math.pi / (period + 1))

    return _offered(M, formula, sym, options)


def exponential(
    M: int, *, center: float | None = None, tau: float = 1.0, sym: bool = True, **options: Any
) -> Tensor:
    """`exp(-|k - center| / tau)`: a window of length `M`.

    >>> metaop.signal.windows.exponential(3)
    tensor([0.3679, 1.0000, 0.3679])
    """
    if tau <= 0:
        raise ArgumentError(f"Tau must be positive, got: {tau} instead.")
    if sym and center is not None:
        raise ArgumentError("Center must be None for symmetric windows")

    def formula(k: np.ndarray, period: int) -> np.ndarray:
        middle = period / 2 if center is None else center
        return np.exp(-np.abs(k - middle) / tau)

    return _offered(M, formula, sym, options)


def gaussian(M: int, *, std: float = 1.0, sym: bool = True, **options: Any) -> Tensor:
    """A normal density without its factor: a window of length `M`.

    `std` is its standard deviation, in samples.

    >>> metaop.signal.windows.gaussian(3)
    tensor([0.6065, 1.0000, 0.6065])
    """
    if std <= 0:
        raise ArgumentError(f"Standard deviation must be positive, got: {std} instead.")

    def formula(k: np.ndarray, period: int) -> np.ndarray:
        return np.exp(-0.5 * ((k - period / 2) / std) ** 2)

    return _offered(M, formula, sym, options)


def kaiser(M: int, *, beta: float = 12.0, sym: bool = True, **options: Any) -> Tensor:
    """A window of modified Bessel functions; `beta` trades width for side lobes; of length `M`.

    >>> metaop.signal.windows.kaiser(3, beta=2.0)
    tensor([0.4387, 1.0000, 0.4387])
    """
    if beta < 0:
        raise ArgumentError(f"beta must be non-negative, got: {beta} instead.")

    def formula(k: np.ndarray, period: int) -> np.ndarray:
        inside = np.maximum(1 - (2 * k / period - 1) ** 2, 0)
        return np.i0(beta * np.sqrt(inside)) / np.i0(beta)

    return _offered(M, formula, sym, options)
