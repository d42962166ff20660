"""The frequencies of a transform's elements, and their order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from metaop.tensor.arguments import WHOLE
from metaop.tensor.core import Tensor
from metaop.tensor.functions.ranges import arange
from metaop.tensor.functions.rearranging import roll
from metaop.tensor.promotion import defaults
from metaop.unified_graph.dtype import DType


def fftfreq(
    n: int,
    d: float = 1.0,
    *,
    dtype: DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """The frequencies of `fft` of `n` samples that are `d` apart; negative ones come last.

    They are in periods per unit of `d`: hertz if d is in seconds.

    >>> metaop.fft.fftfreq(4, d=0.5)
    tensor([ 0.0000,  0.5000, -1.0000, -0.5000])
    """
    numbers = arange(n, dtype=dtype or defaults.dtype, device=device)
    numbers = numbers - n * (numbers >= (n + 1) // 2)
    return (numbers / (n * d)).requires_grad_(requires_grad)


def rfftfreq(
    n: int,
    d: float = 1.0,
    *,
    dtype: DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """The frequencies of `rfft` of `n` samples that are `d` apart: n // 2 + 1 of them.

    They are in periods per unit of `d`: hertz if d is in seconds.

    >>> metaop.fft.rfftfreq(4, d=0.5)
    tensor([0.0000, 0.5000, 1.0000])
    """
    numbers = arange(n // 2 + 1, dtype=dtype or defaults.dtype, device=device)
    return (numbers / (n * d)).requires_grad_(requires_grad)


def fftshift(input: Tensor, dim: int | Sequence[int] | None = None) -> Tensor:
    """The zero frequency moved to the middle of `dim` (of all dimensions when None).

    >>> metaop.fft.fftshift(metaop.fft.fftfreq(4, d=0.25))
    tensor([-2., -1.,  0.,  1.])
    """
    return _shifted(input, dim, 1)


def ifftshift(input: Tensor, dim: int | Sequence[int] | None = None) -> Tensor:
    """The inverse of `fftshift`; the two differ where a size is odd.

    >>> metaop.fft.ifftshift(metaop.tensor([-1.0, 0.0, 1.0]))
    tensor([ 0.,  1., -1.])
    """
    return _shifted(input, dim, -1)


def _shifted(input: Tensor, dim: int | Sequence[int] | None, sign: int) -> Tensor:
    listed = range(input.ndim) if dim is None else (dim,) if isinstance(dim, WHOLE) else dim
    dims = tuple(listed)
    shifts = tuple(sign * (input.shape[d] // 2) for d in dims)
    return roll(input, shifts, dims)
