"""Norms of tensors and normalisation to a norm."""

from __future__ import annotations

import math
from typing import Any

from metaop.errors import ArgumentError, DTypeError, ShapeError
from metaop.operators import reduction as operators
from metaop.tensor.arguments import wrap_dim
from metaop.tensor.core import Tensor, wrap
from metaop.tensor.functions.selection import where
from metaop.tensor.linear_algebra.decompositions import svdvals
from metaop.tensor.options import Dimensions, reduced_dimensions
from metaop.tensor.surface import in_every_form, public
from metaop.unified_graph.dtype import DType
from metaop.unified_graph.recording import record


def vector_norm(
    x: Tensor,
    ord: float = 2,
    dim: Dimensions = None,
    keepdim: bool = False,
    *,
    dtype: DType | None = None,
) -> Tensor:
    """The `ord`-norm of all elements, or over `dim`: 0, 1, 2, inf, -inf or any number.

    The dimensions `dim` go, or have size 1 with `keepdim`. 0 counts the elements that are not 0;
    inf and -inf are the largest and the smallest magnitude.

    Of complex numbers, magnitudes count: the result is real.

    >>> metaop.linalg.vector_norm(metaop.tensor([3.0, -4.0])).item()
    5.0
    """
    dtype = dtype or x.dtype
    if not dtype.is_differentiable:
        raise DTypeError(
            "linalg.vector_norm: Expected a floating point or complex tensor as input. Got "
            f"{dtype.name}",
            fix="convert with .float()",
        )
    dims = reduced_dimensions(dim, x.ndim)
    if (ord < 0 or ord == math.inf) and any(x.shape[k] == 0 for k in dims):
        raise ShapeError(
            f"linalg.vector_norm: no norm of order {ord} over no elements, of {list(x.shape)}",
            fix="check .numel() first",
        )
    return wrap(record(operators.vector_norm, (x.call,), (float(ord), dims, keepdim, dtype)))


def matrix_norm(
    A: Tensor,
    ord: Any = "fro",
    dim: Any = (-2, -1),
    keepdim: bool = False,
    *,
    dtype: DType | None = None,
) -> Tensor:
    """The matrix norm "fro", "nuc", 1, -1, 2, -2, inf or -inf over two dimensions.

    "fro" is the root of the sum of squares, "nuc" the sum of the singular values; 1 and inf are the
    largest sums of a column and of a row, 2 the largest singular value, and negative orders the
    smallest of these. Raises ArgumentError for other orders.

    >>> A = metaop.tensor([[1.0, -2.0], [3.0, 4.0]])
    >>> metaop.linalg.matrix_norm(A, 1), metaop.linalg.matrix_norm(A, float("inf"))
    (tensor(6.), tensor(7.))
    """
    if dtype is not None:
        A = A.to(dtype)
    rows, columns = (wrap_dim(one, A.ndim) for one in dim)
    if ord == "fro":
        return vector_norm(A, 2, (rows, columns), keepdim)
    if ord in (1, -1, math.inf, -math.inf):
        summed, kept = (rows, columns) if ord in (1, -1) else (columns, rows)
        sums = A.abs().sum(summed, True)
        if ord > 0 and not A.shape[kept]:
            return sums.sum((rows, columns), keepdim)
        result = sums.amax(kept, True) if ord > 0 else sums.amin(kept, True)
    elif ord in ("nuc", 2, -2):
        values = svdvals(A.movedim((rows, columns), (-2, -1)))
        if ord == "nuc" or (ord == 2 and not values.shape[-1]):
            result = values.sum(-1)
        else:
            result = values.amax(-1) if ord == 2 else values.amin(-1)
        for position in sorted((rows, columns)):
            result = result.unsqueeze(position)
    else:
        raise ArgumentError(
            f"linalg.matrix_norm: Order {ord} not supported.",
            fix="use 'fro', 'nuc', 1, -1, 2, -2, inf or -inf",
        )
    return result if keepdim else result.squeeze((rows, columns))


@public(method=True, out=True, float32_on_cuda="vector_norm")
def norm(
    input: Tensor,
    p: Any = "fro",
    dim: Dimensions = None,
    keepdim: bool = False,
    dtype: DType | None = None,
) -> Tensor:
    """The `p`-norm of all elements, or over `dim`; "fro" is 2, "nuc" the sum of singular values.

    The dimensions are removed, or have size 1 with `keepdim`.

    >>> metaop.norm(metaop.tensor([3.0, 4.0])), metaop.norm(metaop.tensor([3.0, -4.0]), 1)
    (tensor(5.), tensor(7.))
    """
    if p == "nuc":
        if dim is None and input.ndim != 2:
            raise ShapeError(f"norm: 'nuc' takes matrices, got {list(input.shape)}", fix="pass dim")
        return matrix_norm(input, "nuc", (-2, -1) if dim is None else dim, keepdim)
    order = 2.0 if p is None or p == "fro" else float(p)
    return vector_norm(input, order, dim, keepdim, dtype=dtype)


@in_every_form()
def renorm(input: Tensor, p: float, dim: int, maxnorm: float) -> Tensor:
    """Slices along `dim` whose `p`-norm exceeds `maxnorm` scaled down to it; the shape stays.

    >>> metaop.renorm(metaop.tensor([[3.0, 4.0], [0.3, 0.4]]), 2, 0, 1.0)
    tensor([[0.6000, 0.8000],
            [0.3000, 0.4000]])
    """
    if input.ndim < 2:
        raise ShapeError(
            f"renorm: input needs at least 2 dimensions, got {input.ndim} dimensions",
            fix="use nn.functional.normalize for vectors",
        )
    others = [k for k in range(input.ndim) if k != wrap_dim(dim, input.ndim)]
    lengths = vector_norm(input, p, others, True)
    return input * where(lengths > maxnorm, maxnorm / (lengths + 1e-7), 1.0)
