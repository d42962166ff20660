"""Powers and the exponential of square matrices."""

from __future__ import annotations

import math

from metaop.errors import ShapeError
from metaop.tensor.casting import as_given
from metaop.tensor.core import Tensor
from metaop.tensor.functions.ranges import eye
from metaop.tensor.linear_algebra.decompositions import inv
from metaop.tensor.surface import public

# Of the polynomial that approximates the exponential.
_DEGREE = 18


@public(method=True, out=True)
def matrix_power(A: Tensor, n: int) -> Tensor:
    """The `n`-th power of a square matrix by repeated squaring; a negative one of its inverse.

    A is (…, N, N), and so is the result.

    >>> metaop.linalg.matrix_power(metaop.tensor([[1.0, 1.0], [0.0, 1.0]]), 5)
    tensor([[1., 5.],
            [0., 1.]])
    """
    if n < 0:
        return matrix_power(inv(A), -n)
    if n == 0:
        identity = eye(A.shape[-1], dtype=A.dtype, device=A.device).expand(A.shape)
        # The gradient is 0, but there is one.
        return A * 0 + identity
    result: Tensor | None = None
    while n:
        if n % 2:
            result = A if result is None else result @ A
        n //= 2
        if n:
            A = A @ A
    assert result is not None
    return result


@public(method=True, precision=as_given)
def matrix_exp(A: Tensor) -> Tensor:
    """The matrix exponential: a Taylor polynomial of degree 18 of A scaled down, then squared.

    The norm is scaled so that the remainder is below half a unit in the last place (P. Bader,
    S. Blanes and F. Casas, "Computing the matrix exponential with an optimized Taylor polynomial
    approximation", 2019, table 2); each squaring doubles the error.

    A is (…, N, N), and so is the result.

    >>> metaop.linalg.matrix_exp(metaop.tensor([[0.0, 1.0], [0.0, 0.0]]))
    tensor([[1., 1.],
            [0., 1.]])
    """
    if A.ndim < 2 or A.shape[-1] != A.shape[-2]:
        raise ShapeError(
            f"linalg.matrix_exp: A must be batches of square matrices, but it is {list(A.shape)}",
            fix="pass square matrices",
        )
    squarings = _squarings(A)
    scaled = A / 2.0**squarings
    result = _taylor(scaled)
    for step in range(int(squarings.max()) if A.numel() else 0):
        result = (result @ result).where(step < squarings, result)
    return result


def _taylor(A: Tensor) -> Tensor:
    """The Taylor polynomial of the exponential, as a polynomial in the fourth power of A.

    Its coefficients are polynomials of the lower powers, so that seven products are enough (M.
    Paterson and L. Stockmeyer, "On the number of nonscalar multiplications necessary to evaluate
    polynomials", 1973).
    """
    square = A @ A
    powers = [eye(A.shape[-1], dtype=A.dtype, device=A.device), A, square, A @ square]
    fourth = square @ square
    result: Tensor | None = None
    for first in range(_DEGREE - _DEGREE % 4, -1, -4):
        count = min(4, _DEGREE + 1 - first)
        terms = [powers[k] / math.factorial(first + k) for k in range(count)]
        part = sum(terms[1:], terms[0])
        result = part if result is None else fourth @ result + part
    assert result is not None
    return result


def _squarings(A: Tensor) -> Tensor:
    """How often the exponential of each matrix, scaled down, is squared: (…, N, N) -> (…, 1, 1).

    Each matrix has a number of its own: more than it needs would cost its accuracy. A matrix with
    elements that are not finite is not scaled; its exponential is not finite in any case.
    """
    limit = 1.09 if A.dtype.part.itemsize == 8 else 3.01
    sizes = A.detach().abs().sum(-2, True)
    sizes = sizes.amax(-1, True) if A.shape[-1] else sizes.sum(-1, True)
    return (sizes / limit).log2().ceil().clamp(min=0.0).nan_to_num(0.0, 0.0, 0.0)
