"""Matrix products and their relatives: each is one sum over one product of two operands."""

from __future__ import annotations

from metaop.elementwise.meta_op import broadcast_shapes, cast
from metaop.errors import ShapeError
from metaop.operators.linear import require_one_dtype
from metaop.reduce.meta_op import reduce_axes
from metaop.reindex.views import reshape, transpose, unsqueeze
from metaop.unified_graph.composite import composite
from metaop.unified_graph.dtype import DType
from metaop.unified_graph.node import Node


@composite
def matmul(left: Node, right: Node) -> Node:
    """The matrix product with PyTorch's rank rules: (…, M, K) and (…, K, N) -> (…, M, N).

    A vector on the left is a row, one on the right a column; its dimension disappears.
    """
    require_one_dtype("matmul", input=left, other=right)
    _check_matmul(left, right)
    compute = left.dtype.compute
    rows, columns = cast(left, compute), cast(right, compute)
    if right.ndim > 1:
        columns = transpose(columns, right.ndim - 2, right.ndim - 1)
        if left.ndim > 1:
            rows = unsqueeze(rows, left.ndim - 1)
            columns = unsqueeze(columns, right.ndim - 2)
    product = rows * columns
    return cast(reduce_axes("add", product, (product.ndim - 1,)), left.dtype)


def _check_matmul(left: Node, right: Node) -> None:
    if left.ndim == 0 or right.ndim == 0:
        raise ShapeError(
            f"both arguments to matmul need to be at least 1D, but they are {left.ndim}D and "
            f"{right.ndim}D",
            fix="use * for numbers",
        )
    inner = right.shape[-2] if right.ndim > 1 else right.shape[0]
    if left.shape[-1] != inner:
        raise ShapeError(
            f"matmul: mat1 and mat2 shapes cannot be multiplied ({list(left.shape)} and "
            f"{list(right.shape)})",
            fix="the last size of the first has to be the last but one of the second",
        )
    broadcast_shapes("matmul", left.shape[:-2], right.shape[:-2])


@composite
def add_product(
    source: Node | None, left: Node, right: Node, beta: Node | None, alpha: Node | None
) -> Node:
    """`beta * source + alpha * (left @ right)`; absent factors are 1, an absent source 0."""
    product = matmul(left, right)
    if alpha is not None:
        product = product * alpha
    if source is None:
        return product
    return product + (source if beta is None else source * beta)


@composite
def add_batched_products(
    source: Node | None, left: Node, right: Node, beta: Node | None, alpha: Node | None
) -> Node:
    """`beta * source + alpha * sum_b(left[b] @ right[b])`."""
    rows = unsqueeze(cast(left, left.dtype.compute), 2)
    columns = unsqueeze(transpose(cast(right, left.dtype.compute), 1, 2), 1)
    product = cast(reduce_axes("add", rows * columns, (0, 3)), left.dtype)
    if alpha is not None:
        product = product * alpha
    if source is None:
        return product
    return product + (source if beta is None else source * beta)


@composite
def kron(left: Node, right: Node, dtype: DType) -> Node:
    """The Kronecker product in `dtype`: blocks of `right` times each element of `left`."""
    rank = max(left.ndim, right.ndim)
    outer = (1,) * (rank - left.ndim) + left.shape
    inner = (1,) * (rank - right.ndim) + right.shape
    wide = reshape(cast(left, dtype), tuple(n for extent in outer for n in (extent, 1)))
    narrow = reshape(cast(right, dtype), tuple(n for extent in inner for n in (1, extent)))
    return reshape(wide * narrow, tuple(m * n for m, n in zip(outer, inner)))
