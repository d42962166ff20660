"""Window functions of signal processing, and matrices built from vectors."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np

from metaop.errors import ShapeError
from metaop.tensor.core import Tensor, from_array
from metaop.tensor.functions.creation import ones, zeros
from metaop.tensor.functions.joining import cat, meshgrid, stack
from metaop.tensor.functions.ranges import arange
from metaop.tensor.options import DeviceLike, device_of
from metaop.tensor.promotion import defaults
from metaop.tensor.sharded.placing import placeable_from_host
from metaop.tensor.surface import public
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.dtype import DType


def _made(
    values: Callable[[int], np.ndarray],
    length: int,
    dtype: DType | None,
    device: DeviceLike,
    requires_grad: bool,
) -> Tensor:
    """The window of some `values` of a length, which is 1 where that is a single element."""
    dtype = dtype or defaults.dtype
    if length <= 1:
        return ones(length, dtype=dtype, device=device, requires_grad=requires_grad)
    found = from_array(values(length).astype(dtype.numpy), dtype).to(device=device_of(device))
    return found.requires_grad_() if requires_grad else found


def _cosines(weights: Sequence[float], periodic: bool) -> Callable[[int], np.ndarray]:
    """A sum of cosines over one period; a periodic window lacks the repeated last sample."""

    def values(length: int) -> np.ndarray:
        angle = np.arange(length) * (2 * math.pi / (length if periodic else length - 1))
        terms = [(-1) ** k * weight * np.cos(k * angle) for k, weight in enumerate(weights)]
        return np.sum(terms, 0)

    return values


@public()
@placeable_from_host
def hann_window(
    window_length: int,
    periodic: bool = True,
    *,
    dtype: DType | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """Half a cosine wave, 0 at the ends: a tensor of length `window_length`.

    Periodic ones leave out the last of one element more.

    >>> metaop.hann_window(4)
    tensor([0.0000, 0.5000, 1.0000, 0.5000])
    """
    values = _cosines((0.5, 0.5), periodic)
    return _made(values, window_length, dtype, device, requires_grad)


@public()
@placeable_from_host
def hamming_window(
    window_length: int,
    periodic: bool = True,
    alpha: float = 0.54,
    beta: float = 0.46,
    *,
    dtype: DType | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """`alpha - beta * cos(t)` over one period: a tensor of length `window_length`.

    >>> metaop.hamming_window(4)
    tensor([0.0800, 0.5400, 1.0000, 0.5400])
    """
    values = _cosines((alpha, beta), periodic)
    return _made(values, window_length, dtype, device, requires_grad)


@public()
@placeable_from_host
def blackman_window(
    window_length: int,
    periodic: bool = True,
    *,
    dtype: DType | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """Three cosine terms, 0 at the ends: a tensor of length `window_length`.

    >>> metaop.blackman_window(4)[1:]
    tensor([0.3400, 1.0000, 0.3400])
    """
    values = _cosines((0.42, 0.5, 0.08), periodic)
    return _made(values, window_length, dtype, device, requires_grad)


@public()
@placeable_from_host
def bartlett_window(
    window_length: int,
    periodic: bool = True,
    *,
    dtype: DType | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """A triangle, 0 at the ends: a tensor of length `window_length`.

    >>> metaop.bartlett_window(4)
    tensor([0.0000, 0.5000, 1.0000, 0.5000])
    """

    def values(length: int) -> np.ndarray:
        period = length if periodic else length - 1
        return np.asarray(1 - np.abs(2 * np.arange(length) / period - 1))

    return _made(values, window_length, dtype, device, requires_grad)


@public()
@placeable_from_host
def kaiser_window(
    window_length: int,
    periodic: bool = True,
    beta: float = 12.0,
    *,
    dtype: DType | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """The Kaiser window of shape `beta`: a tensor of length `window_length`.

    It is made of Bessel functions; the larger beta, the narrower.

    >>> metaop.kaiser_window(3, periodic=False, beta=2.0)
    tensor([0.4387, 1.0000, 0.4387])
    """

    def values(length: int) -> np.ndarray:
        return np.kaiser(length + periodic, beta)[:length]

    return _made(values, window_length, dtype, device, requires_grad)


@public()
def cartesian_prod(*tensors: Tensor) -> Tensor:
    """All combinations of the elements of M vectors, one a row: (N, M).

    >>> metaop.cartesian_prod(metaop.tensor([1, 2]), metaop.tensor([3, 4]))
    tensor([[1, 3],
            [1, 4],
            [2, 3],
            [2, 4]])
    """
    if len(tensors) == 1:
        return tensors[0]
    grids = meshgrid(*tensors, indexing="ij")
    return stack([grid.reshape(-1) for grid in grids], 1)


@public()
def combinations(input: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    """All choices of `r` elements of a vector, one a row: (N, r).

    Elements are chosen once each, or several times `with_replacement`.

    >>> metaop.combinations(metaop.tensor([1, 2, 3]))
    tensor([[1, 2],
            [1, 3],
            [2, 3]])
    """
    if input.ndim != 1:
        raise ShapeError(
            f"combinations: Expect a 1D vector, but got shape {list(input.shape)}", fix="flatten it"
        )
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    chosen = itertools.chain.from_iterable(choose(range(input.shape[0]), r))
    places = np.fromiter(chosen, np.int64)
    rows = len(places) // r if r else 1
    index = from_array(places.reshape(rows, r), dtypes.int64)
    return input[index]


@public()
def block_diag(*tensors: Tensor) -> Tensor:
    """Matrices along the diagonal of a larger one, zeros elsewhere; their sizes add up.

    >>> metaop.block_diag(metaop.tensor([[1, 2]]), metaop.tensor([[3]]))
    tensor([[1, 2, 0],
            [0, 0, 3]])
    """
    matrices = [x.reshape(1, -1) if x.ndim < 2 else x for x in tensors]
    width = sum(x.shape[1] for x in matrices)
    rows, before = [], 0
    for x in matrices:
        left = zeros(x.shape[0], before, dtype=x.dtype, device=x.device)
        before += x.shape[1]
        right = zeros(x.shape[0], width - before, dtype=x.dtype, device=x.device)
        rows.append(cat([left, x, right], 1))
    return cat(rows, 0)


@public()
def vander(x: Tensor, N: int | None = None, increasing: bool = False) -> Tensor:
    """The powers of a vector as the columns of a matrix, the highest first unless `increasing`.

    The shape is (M, N), N being the vector's length M if not given.

    >>> metaop.vander(metaop.tensor([2, 3]), 3)
    tensor([[4, 2, 1],
            [9, 3, 1]])
    """
    if x.ndim != 1:
        raise ShapeError(
            f"vander: x must be a one-dimensional tensor, got {list(x.shape)}",
            fix="use linalg.vander for batches",
        )
    count = x.shape[0] if N is None else N
    exponents = arange(count, device=x.device)
    return x.unsqueeze(-1) ** (exponents if increasing else count - 1 - exponents)
