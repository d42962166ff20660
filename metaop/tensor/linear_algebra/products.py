"""Products of vectors, matrices and batches of matrices."""

from __future__ import annotations

from metaop.errors import ShapeError
from metaop.operators import linear_algebra as operators
from metaop.tensor.casting import as_given
from metaop.tensor.core import Tensor, wrap
from metaop.tensor.promotion import Number, number_call
from metaop.tensor.surface import in_every_form, public
from metaop.unified_graph.composite import Composite
from metaop.unified_graph.recording import Call, record


@public(method=True, out=True, low_precision="matmul")
def matmul(input: Tensor, other: Tensor) -> Tensor:
    """The matrix product: (…, M, K) and (…, K, N) -> (…, M, N); vectors lose their dimension.

    Dimensions before the last two broadcast. Raises ShapeError where K differs.

    >>> metaop.matmul(metaop.tensor([[1.0, 2.0], [3.0, 4.0]]), metaop.tensor([1.0, 10.0]))
    tensor([21., 43.])
    """
    return wrap(record(operators.matmul, (input.call, other.call)))


def _product(name: str, ranks: tuple[int, int], input: Tensor, other: Tensor) -> Tensor:
    _check_ranks(name, ranks, input, other)
    return wrap(record(operators.matmul, (input.call, other.call)))


def _check_ranks(name: str, ranks: tuple[int, int], input: Tensor, other: Tensor) -> None:
    found = (input.ndim, other.ndim)
    if found != ranks:
        raise ShapeError(
            f"{name}: expected tensors with {ranks[0]} and {ranks[1]} dimensions, got shapes "
            f"{list(input.shape)} and {list(other.shape)}",
            fix="use matmul, which takes any number of dimensions",
        )
    if ranks == (3, 3) and input.shape[0] != other.shape[0]:
        raise ShapeError(
            f"{name}: batch sizes differ: {list(input.shape)} and {list(other.shape)}",
            fix="use matmul, which broadcasts",
        )


@public(method=True, out=True, low_precision="matmul")
def mm(input: Tensor, mat2: Tensor) -> Tensor:
    """The product of two matrices, of which the first may be sparse: (M, K), (K, N) -> (M, N).

    Raises ShapeError for other numbers of dimensions.

    >>> metaop.mm(metaop.tensor([[1.0, 2.0]]), metaop.tensor([[3.0], [4.0]]))
    tensor([[11.]])
    """
    return _product("mm", (2, 2), input, mat2)


@public(method=True, out=True, low_precision="matmul")
def bmm(input: Tensor, mat2: Tensor) -> Tensor:
    """The products of two batches of matrices: (B, M, K), (B, K, N) -> (B, M, N).

    Raises ShapeError for other numbers of dimensions.

    >>> metaop.bmm(metaop.ones(2, 1, 3), metaop.ones(2, 3, 1)).flatten()
    tensor([3., 3.])
    """
    return _product("bmm", (3, 3), input, mat2)


@public(method=True, out=True, precision=as_given, low_precision="matmul")
def mv(input: Tensor, vec: Tensor) -> Tensor:
    """A matrix times a vector: (M, K), (K) -> (M).

    >>> metaop.mv(metaop.tensor([[1.0, 2.0], [3.0, 4.0]]), metaop.tensor([1.0, 10.0]))
    tensor([21., 43.])
    """
    return _product("mv", (2, 1), input, vec)


@public(method=True, out=True, precision=as_given, low_precision="matmul")
def dot(input: Tensor, tensor: Tensor) -> Tensor:
    """The sum of the products of two vectors; raises ShapeError for others, and other lengths.

    >>> metaop.dot(metaop.tensor([1.0, 2.0]), metaop.tensor([3.0, 4.0]))
    tensor(11.)
    """
    return _product("dot", (1, 1), input, tensor)


def _added(
    name: str,
    step: Composite,
    ranks: tuple[int, int],
    operands: tuple[Tensor, Tensor, Tensor],
    beta: Number,
    alpha: Number,
) -> Tensor:
    input, left, right = operands
    _check_ranks(name, ranks, left, right)
    dtype, device = left.dtype, left.device

    def factor(number: Number) -> Call | None:
        return None if number == 1 else number_call(number, dtype, device)

    # With a factor of 0 even NaN in the input must not show.
    source = None if beta == 0 else input.call
    scale = None if source is None else factor(beta)
    calls = (source, left.call, right.call, scale, factor(alpha))
    result = wrap(record(step, calls))
    return result


@in_every_form(low_precision="add_product")
def addmm(
    input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Number = 1, alpha: Number = 1
) -> Tensor:
    """`beta * input + alpha * (mat1 @ mat2)`: `input` broadcasts to (M, N).

    >>> metaop.addmm(metaop.ones(1), metaop.tensor([[1.0, 2.0]]), metaop.tensor([[3.0], [4.0]]))
    tensor([[12.]])
    """
    step = operators.add_product
    return _added("addmm", step, (2, 2), (input, mat1, mat2), beta, alpha)


@in_every_form(in_place_function=True, precision=as_given, low_precision="add_product")
def addmv(
    input: Tensor, mat: Tensor, vec: Tensor, *, beta: Number = 1, alpha: Number = 1
) -> Tensor:
    """`beta * input + alpha * (mat @ vec)`: (M), (M, K), (K) -> (M), where `input` broadcasts.

    The size of `input` is M or 1.

    >>> metaop.addmv(metaop.ones(1), metaop.tensor([[1.0, 2.0]]), metaop.tensor([3.0, 4.0]))
    tensor([12.])
    """
    return _added("addmv", operators.add_product, (2, 1), (input, mat, vec), beta, alpha)


@in_every_form(low_precision="add_product")
def baddbmm(
    input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Number = 1, alpha: Number = 1
) -> Tensor:
    """`beta * input + alpha * (batch1 @ batch2)` for every matrix of the batch.

    `input` broadcasts to (B, M, N), the batches are (B, M, K) and (B, K, N).

    >>> metaop.baddbmm(metaop.ones(1), metaop.ones(2, 1, 3), metaop.ones(2, 3, 1)).flatten()
    tensor([4., 4.])
    """
    operands = (input, batch1, batch2)
    return _added("baddbmm", operators.add_product, (3, 3), operands, beta, alpha)


@in_every_form(low_precision="add_batched_products")
def addbmm(
    input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Number = 1, alpha: Number = 1
) -> Tensor:
    """`beta * input + alpha * sum(batch1 @ batch2)`, summed over the batch.

    `input` broadcasts to (M, N), the batches are (B, M, K) and (B, K, N).

    >>> metaop.addbmm(metaop.ones(1), metaop.ones(2, 1, 3), metaop.ones(2, 3, 1))
    tensor([[7.]])
    """
    operands = (input, batch1, batch2)
    return _added("addbmm", operators.add_batched_products, (3, 3), operands, beta, alpha)
