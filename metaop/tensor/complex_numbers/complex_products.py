"""Products of complex numbers: of elements, of vectors, and what is linear in both factors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from metaop.tensor.arguments import wrap_dim
from metaop.tensor.complex_numbers.complex_tensor import (
    ComplexTensor,
    as_complex,
    complex,
    view_as_complex,
)
from metaop.tensor.core import Tensor
from metaop.tensor.functions.joining import cat
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.dtype import complex64, complex128


def both(left: Any, right: Any) -> tuple[ComplexTensor, ComplexTensor]:
    """Two operands of one complex type; numbers and real tensors take that of the other."""
    kinds = [x.dtype for x in (left, right) if isinstance(x, Tensor)]
    wide = any(k in (complex128, dtypes.float64) for k in kinds)
    dtype = complex128 if wide else complex64
    return as_complex(left, dtype), as_complex(right, dtype)


def bilinear(function: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Any, Any], ComplexTensor]:
    """A product of complex tensors from the product of real ones."""

    def product(input: Any, other: Any) -> ComplexTensor:
        a, b = both(input, other)
        real = function(a.real, b.real) - function(a.imag, b.imag)
        return complex(real, function(a.real, b.imag) + function(a.imag, b.real))

    return product


def with_bias(function: Callable[..., Tensor]) -> Callable[..., ComplexTensor]:
    """`linear` or a convolution, function(input, weight, bias, …), of complex tensors."""

    def product(
        input: Any, weight: Any, bias: Any = None, *args: Any, **options: Any
    ) -> ComplexTensor:
        found = bilinear(lambda x, w: function(x, w, None, *args, **options))(input, weight)
        if bias is None:
            return found
        # A convolution puts the channels before its spatial dimensions.
        spatial = weight.ndim - 2
        shaped = bias.reshape(-1, *(1,) * spatial)
        return found + shaped

    return product


def prod(input: ComplexTensor, dim: int | None = None, keepdim: bool = False) -> ComplexTensor:
    """The product of all elements, or over `dim`: neighbouring halves are multiplied in turn."""
    if dim is None or not input.ndim:
        input, dim, keepdim = view_as_complex(input._pair.reshape(-1, 2)), 0, False
    position = wrap_dim(dim, input.ndim)
    pair = input._pair.movedim(position, 0)
    if not pair.shape[0]:
        ones = pair.new_ones((1, *pair.shape[1:-1]))
        pair = complex(ones, ones * 0)._pair
    while (count := pair.shape[0]) > 1:
        half = count // 2
        first, second = (view_as_complex(pair.narrow(0, at, half)) for at in (0, half))
        multiplied = _multiplied(first, second)._pair
        pair = cat([multiplied, pair.narrow(0, 2 * half, count - 2 * half)])
    found = pair.movedim(0, position)
    return view_as_complex(found if keepdim else found.squeeze(position))


_multiplied = bilinear(lambda x, y: x * y)


def dot(input: Any, tensor: Any) -> ComplexTensor:
    """The sum of the products of two vectors."""
    return bilinear(lambda x, y: x.dot(y))(input, tensor)


def vdot(input: Any, other: Any) -> ComplexTensor:
    """`dot` with the conjugate of the first vector."""
    return dot(as_complex(input).conj(), other)
