"""Fourier transforms over one, two and any number of dimensions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from metaop.codegen.llvm.runtime import runtime
from metaop.errors import ArgumentError, ShapeError
from metaop.tensor.arguments import wrap_dim, wrap_dims
from metaop.tensor.core import Tensor, from_array
from metaop.tensor.functions.joining import cat
from metaop.tensor.host.host_function import host_function
from metaop.tensor.linear_algebra.decompositions import Cotangents
from metaop.tensor.promotion import defaults

Norm = str | None
Dims = Sequence[int] | int | None


def _transformed(x: Tensor, dims: tuple[int, ...], sign: int, scale: float) -> Tensor:
    """`scale * sum(x * exp(sign * 2 pi i k n / N))` over `dims` of complex numbers."""
    found: np.ndarray = x.detach()._array()
    if dims and sign < 0:
        found = _on_host("fftn", found, axes=dims)
    elif dims:
        found = _on_host("ifftn", found, axes=dims, norm="forward")

    def backward(
        inputs: Sequence[Tensor], results: Sequence[Tensor], cotangents: Cotangents
    ) -> Cotangents:
        assert cotangents[0] is not None
        return [_transformed(cotangents[0], dims, -sign, scale)]

    return host_function([x], [_scaled(found, scale)], backward)[0]


def _half_transformed(x: Tensor, dim: int, scale: float) -> Tensor:
    """The first half of `_transformed` of real numbers, without the conjugates."""
    found = _on_host("rfft", x.detach()._array(), axis=dim)
    size = x.shape[dim]

    def backward(
        inputs: Sequence[Tensor], results: Sequence[Tensor], cotangents: Cotangents
    ) -> Cotangents:
        assert cotangents[0] is not None
        return [_real_transformed(cotangents[0] / _occurrences(x, size, dim), dim, size, scale)]

    return host_function([x], [_scaled(found, scale)], backward)[0]


def _real_transformed(x: Tensor, dim: int, size: int, scale: float) -> Tensor:
    """`_transformed` with sign 1 of `size` Hermitian numbers, of which `x` is the first half."""
    found = _on_host("irfft", x.detach()._array(), n=size, axis=dim, norm="forward")

    def backward(
        inputs: Sequence[Tensor], results: Sequence[Tensor], cotangents: Cotangents
    ) -> Cotangents:
        assert cotangents[0] is not None
        return [_half_transformed(cotangents[0], dim, scale) * _occurrences(x, size, dim)]

    return host_function([x], [_scaled(found, scale)], backward)[0]


def _on_host(transform: str, array: np.ndarray, **options: Any) -> np.ndarray:
    """A transform of SciPy, which is loaded when it is needed; float32 stays float32."""
    import scipy.fft

    found = getattr(scipy.fft, transform)(array, workers=runtime().get_num_threads(), **options)
    return np.asarray(found)


def _scaled(array: np.ndarray, scale: float) -> np.ndarray:
    return array if scale == 1 else array * array.real.dtype.type(scale)


def _occurrences(like: Tensor, size: int, dim: int) -> Tensor:
    """How often each of the first half of `size` Hermitian numbers is among them: 1 or 2."""
    counts = np.full(size // 2 + 1, 2.0, like.dtype.part.numpy)
    counts[0] = 1
    if size % 2 == 0:
        counts[-1] = 1
    counts = counts.reshape(-1, *[1] * (like.ndim - 1 - dim))
    return from_array(counts, like.dtype.part).to(device=like.device)


def _scale(norm: Norm, sign: int, count: int) -> float:
    if norm not in (None, "backward", "ortho", "forward"):
        raise ArgumentError(f"Invalid normalization mode: {norm!r}", fix="use 'ortho'")
    if norm == "ortho":
        return 1 / math.sqrt(count)
    return 1 / count if (norm == "forward") == (sign < 0) else 1.0


def _complex(x: Tensor, sizes: Sequence[int], dims: tuple[int, ...], sign: int, norm: Norm) -> Any:
    """The transform over `dims`, which are first trimmed or zero-padded to `sizes`."""
    if any(size < 1 for size in sizes):
        raise ShapeError(f"Invalid number of data points ({min(sizes)}) specified")
    whole = _as_complex(x)
    for dim, size in zip(dims, sizes):
        whole = _resized(whole, dim, size)
    return _transformed(whole, dims, sign, _scale(norm, sign, math.prod(sizes)))


def _as_complex(x: Tensor) -> Tensor:
    """The tensor in the complex type of its width; integers in that of the default type."""
    return x.to((x if x.dtype.is_differentiable else defaults).dtype.whole)


def _resized(x: Tensor, dim: int, size: int) -> Tensor:
    extent = x.shape[dim]
    if size <= extent:
        return x if size == extent else x.narrow(dim, 0, size)
    shape = list(x.shape)
    shape[dim] = size - extent
    return cat([x, x.new_zeros(shape)], dim)


def _from_half(x: Tensor, size: int, dim: int, norm: Norm) -> Tensor:
    """The real inverse transform of the first half of a Hermitian spectrum."""
    if size < 1:
        raise ShapeError(f"Invalid number of data points ({size}) specified")
    half = _resized(_as_complex(x), dim, size // 2 + 1)
    return _real_transformed(half, dim, size, _scale(norm, 1, size))


def _half(x: Tensor, size: int, dim: int, norm: Norm) -> Any:
    """The first half of the spectrum of a real tensor."""
    if x.dtype.is_complex:
        raise ArgumentError("rfft expects a real input tensor, but got a complex one", fix="fft")
    if size < 1:
        raise ShapeError(f"Invalid number of data points ({size}) specified")
    real = x.to((x if x.dtype.is_differentiable else defaults).dtype.whole.part)
    return _half_transformed(_resized(real, dim, size), dim, _scale(norm, -1, size))


def _chosen(x: Tensor, s: Sequence[int] | None, dim: Dims) -> tuple[list[int], tuple[int, ...]]:
    """The sizes and the dimensions of a transform; -1 means the current size."""
    if dim is None:
        dims = tuple(range(x.ndim if s is None else len(s)))
        dims = dims if s is None else tuple(x.ndim - len(s) + k for k in dims)
    else:
        dims = wrap_dims(dim, x.ndim)
    extents = [x.shape[k] for k in dims]
    if s is None:
        return extents, dims
    if len(s) != len(dims):
        raise ArgumentError("When given, dim and shape arguments must have the same length")
    return [extent if size == -1 else size for size, extent in zip(s, extents)], dims


def fft(input: Tensor, n: int | None = None, dim: int = -1, norm: Norm = None) -> Tensor:
    """The discrete Fourier transform along `dim`, cut or padded with zeros to `n` elements.

    The result is complex, element k the sum of x[j] exp(-2πi j k / n). `norm` divides by nothing
    ("backward", None), by n ("forward") or by its root ("ortho"). Raises ShapeError for n below 1.

    >>> metaop.fft.fft(metaop.tensor([1.0, 2.0, 3.0, 4.0])).real
    tensor([10., -2., -2., -2.])
    """
    place = wrap_dim(dim, input.ndim)
    return _complex(input, (input.shape[place] if n is None else n,), (place,), -1, norm)


def ifft(input: Tensor, n: int | None = None, dim: int = -1, norm: Norm = None) -> Tensor:
    """The inverse of `fft`; it divides by n unless `norm` says otherwise.

    The dimension `dim` is cut or padded to size `n` first.

    >>> metaop.fft.ifft(metaop.tensor([10.0, -2.0, -2.0, -2.0])).real
    tensor([1., 3., 3., 3.])
    """
    place = wrap_dim(dim, input.ndim)
    return _complex(input, (input.shape[place] if n is None else n,), (place,), 1, norm)


def rfft(input: Tensor, n: int | None = None, dim: int = -1, norm: Norm = None) -> Tensor:
    """The first n // 2 + 1 elements of `fft` of a real tensor: the others are their conjugates.

    The dimension `dim` of size n becomes n // 2 + 1. Raises ArgumentError for complex tensors.

    >>> metaop.fft.rfft(metaop.tensor([1.0, 2.0, 3.0, 4.0])).real
    tensor([10., -2., -2.])
    """
    place = wrap_dim(dim, input.ndim)
    return _half(input, input.shape[place] if n is None else n, place, norm)


def irfft(input: Tensor, n: int | None = None, dim: int = -1, norm: Norm = None) -> Tensor:
    """The inverse of `rfft`: `n` real elements, 2 * (extent - 1) when not given.

    >>> metaop.fft.irfft(metaop.fft.rfft(metaop.tensor([1.0, 2.0, 3.0, 4.0])))
    tensor([1., 2., 3., 4.])
    """
    place = wrap_dim(dim, input.ndim)
    return _from_half(input, 2 * (input.shape[place] - 1) if n is None else n, place, norm)


_INVERSE = {None: "forward", "backward": "forward", "forward": "backward", "ortho": "ortho"}


def hfft(input: Tensor, n: int | None = None, dim: int = -1, norm: Norm = None) -> Tensor:
    """The real transform of a signal that is Hermitian in time, given by its first half.

    The result has `n` elements along `dim`, 2 * (extent - 1) when not given.

    >>> metaop.fft.hfft(metaop.tensor([1.0, 2.0, 3.0]))
    tensor([ 8., -2.,  0., -2.])
    """
    place = wrap_dim(dim, input.ndim)
    size = 2 * (input.shape[place] - 1) if n is None else n
    return _from_half(_as_complex(input).conj(), size, place, _INVERSE[norm])


def ihfft(input: Tensor, n: int | None = None, dim: int = -1, norm: Norm = None) -> Tensor:
    """The inverse of `hfft`: n // 2 + 1 complex elements of a real tensor of size n along `dim`.

    >>> metaop.fft.ihfft(metaop.tensor([8.0, -2.0, 0.0, -2.0])).real
    tensor([1., 2., 3.])
    """
    place = wrap_dim(dim, input.ndim)
    return _half(input, input.shape[place] if n is None else n, place, _INVERSE[norm]).conj()


def fftn(
    input: Tensor, s: Sequence[int] | None = None, dim: Dims = None, norm: Norm = None
) -> Tensor:
    """The transform over several dimensions, cut or padded to the sizes `s`.

    `dim` names them; without it they are all, or as many of the last ones as `s` has sizes. Raises
    ArgumentError if `s` and `dim` differ in length.

    >>> metaop.fft.fftn(metaop.tensor([[1.0, 2.0], [3.0, 4.0]])).real
    tensor([[10., -2.],
            [-4.,  0.]])
    """
    return _complex(input, *_chosen(input, s, dim), -1, norm)


def ifftn(
    input: Tensor, s: Sequence[int] | None = None, dim: Dims = None, norm: Norm = None
) -> Tensor:
    """The inverse of `fftn`: it takes the same sizes and dimensions.

    >>> metaop.fft.ifftn(metaop.tensor([[10.0, -2.0], [-4.0, 0.0]])).real
    tensor([[1., 2.],
            [3., 4.]])
    """
    return _complex(input, *_chosen(input, s, dim), 1, norm)


def rfftn(
    input: Tensor, s: Sequence[int] | None = None, dim: Dims = None, norm: Norm = None
) -> Tensor:
    """`fftn` of a real tensor, without the redundant conjugates: half of the last dimension.

    >>> metaop.fft.rfftn(metaop.ones(2, 4)).shape
    metaop.Size([2, 3])
    """
    sizes, dims = _chosen(input, s, dim)
    return _complex(_half(input, sizes[-1], dims[-1], norm), sizes[:-1], dims[:-1], -1, norm)


def irfftn(
    input: Tensor, s: Sequence[int] | None = None, dim: Dims = None, norm: Norm = None
) -> Tensor:
    """The inverse of `rfftn`; the last size is 2 * (extent - 1) when not given.

    >>> metaop.fft.irfftn(metaop.fft.rfftn(metaop.tensor([[1.0, 2.0], [3.0, 4.0]])))
    tensor([[1., 2.],
            [3., 4.]])
    """
    sizes, dims = _real_sizes(input, s, dim)
    return _from_half(_complex(input, sizes[:-1], dims[:-1], 1, norm), sizes[-1], dims[-1], norm)


def hfftn(
    input: Tensor, s: Sequence[int] | None = None, dim: Dims = None, norm: Norm = None
) -> Tensor:
    """The real transform of a signal that is Hermitian in time over several dimensions.

    The last size is 2 * (extent - 1) when `s` is not given.

    >>> metaop.fft.hfftn(metaop.ones(2, 3))
    tensor([[8., 0., 0., 0.],
            [0., 0., 0., 0.]])
    """
    sizes, dims = _real_sizes(input, s, dim)
    inner = _complex(input, sizes[:-1], dims[:-1], -1, norm)
    return _from_half(inner.conj(), sizes[-1], dims[-1], _INVERSE[norm])


def ihfftn(
    input: Tensor, s: Sequence[int] | None = None, dim: Dims = None, norm: Norm = None
) -> Tensor:
    """The inverse of `hfftn`: the last dimension, of size n, becomes n // 2 + 1.

    >>> metaop.fft.ihfftn(metaop.ones(2, 4)).real
    tensor([[1., 0., 0.],
            [0., 0., 0.]])
    """
    sizes, dims = _chosen(input, s, dim)
    inner = _half(input, sizes[-1], dims[-1], _INVERSE[norm]).conj()
    return _complex(inner, sizes[:-1], dims[:-1], 1, norm)


def _real_sizes(x: Tensor, s: Sequence[int] | None, dim: Dims) -> tuple[list[int], tuple[int, ...]]:
    sizes, dims = _chosen(x, s, dim)
    if s is None or s[-1] == -1:
        sizes[-1] = 2 * (x.shape[dims[-1]] - 1)
    return sizes, dims


def _over_two(function: Callable[..., Tensor], of_ones: float) -> Callable[..., Tensor]:
    """The form of a transform for two dimensions; its first element of a matrix of 2 x 2 ones."""

    def transform(
        input: Tensor,
        s: Sequence[int] | None = None,
        dim: Sequence[int] = (-2, -1),
        norm: Norm = None,
    ) -> Tensor:
        return function(input, s, dim, norm)

    name = function.__name__[:-1] + "2"
    transform.__name__ = transform.__qualname__ = name
    transform.__doc__ = (
        f"`{function.__name__}` over two dimensions, the last ones by default.\n\n"
        f">>> metaop.fft.{name}(metaop.ones(2, 2)).real[0, 0].item()\n{of_ones}"
    )
    return transform


fft2, ifft2, rfft2, irfft2, hfft2, ihfft2 = map(
    _over_two, (fftn, ifftn, rfftn, irfftn, hfftn, ihfftn), (4.0, 1.0) * 3
)
