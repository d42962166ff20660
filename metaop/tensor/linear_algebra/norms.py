"""Norms of tensors and normalisation to a norm."""

from __future__ import annotations

import math
from typing import Any

from metaop.errors import DTypeError, ShapeError
from metaop.operators import reduction as operators
from metaop.tensor.arguments import wrap_dim
from metaop.tensor.core import Tensor, wrap
from metaop.tensor.functions.selection import where
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


@public(method=True, out=True, float32_on_cuda="vector_norm")
def norm(
    input: Tensor,
    p: Any = "fro",
    dim: Dimensions = None,
    keepdim: bool = False,
    dtype: DType | None = None,
) -> Tensor:
    """The `p`-norm of all elements, or over `dim`; "fro" is 2, "nuc" the sum of singular values.

    The dimensions go, or have size 1 with `keepdim`.

    >>> metaop.norm(metaop.tensor([3.0, 4.0])), metaop.norm(metaop.tensor([3.0, -4.0]), 1)
    (tensor(5.), tensor(7.))
    """
    if p == "nuc":
        from metaop.linalg import matrix_norm

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
