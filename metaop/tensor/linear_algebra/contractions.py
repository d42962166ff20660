"""Einstein sums and the products that are special cases of them; distances."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from string import ascii_lowercase, ascii_uppercase
from typing import Any

import numpy as np

from metaop.errors import ArgumentError, ArgumentTypeError, ShapeError
from metaop.operators import distances, linear_algebra
from metaop.operators import einsum as operators
from metaop.tensor.arguments import WHOLE, wrap_dim
from metaop.tensor.casting import casts_on_cpu, in_float32, in_widest_type
from metaop.tensor.core import Tensor, from_array, wrap
from metaop.tensor.promotion import result_type
from metaop.tensor.surface import in_every_form, method, public, synonym
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.recording import modes, record


@public(low_precision="einsum")
def einsum(*args: Any) -> Tensor:
    """The Einstein sum: `einsum("bik,bkj->bij", a, b)` is a batched matrix product.

    Letters that the right side lacks are summed; an ellipsis stands for leading dimensions that
    broadcast; a letter twice in one term takes the diagonal. Lists of numbers may follow the
    operands instead: `einsum(a, [0, 1, 2], b, [0, 2, 3], [0, 1, 3])`.

    Raises ShapeError where a letter has two sizes.

    >>> a, b = metaop.tensor([[1.0, 2.0], [3.0, 4.0]]), metaop.tensor([1.0, 10.0])
    >>> metaop.einsum("ij,j->i", a, b)
    tensor([21., 43.])
    """
    equation, tensors = equation_of(args)
    parsed = operators.parse(equation, [tensor.ndim for tensor in tensors])
    if modes.casts is None or operators.contracts(parsed):
        return _contracted(parsed, tensors)
    return _rearranged(parsed, tensors)


def _contracted(equation: operators.Equation, tensors: Sequence[Tensor]) -> Tensor:
    return wrap(record(operators.einsum, [tensor.call for tensor in tensors], (equation,)))


@casts_on_cpu(in_widest_type)
def _rearranged(equation: operators.Equation, tensors: Sequence[Tensor]) -> Tensor:
    return _contracted(equation, tensors)


def equation_of(args: Sequence[Any]) -> tuple[str, Sequence[Tensor]]:
    """The equation and the operands of either form of `einsum`'s arguments."""
    if len(args) < 2:
        raise ArgumentError(
            "einsum(): must specify an equation and at least one operand, or at least one operand "
            "and its list of subscripts",
            fix='write einsum("ij,jk->ik", a, b) or einsum(a, [0, 1], b, [1, 2], [0, 2])',
        )
    if isinstance(args[0], Tensor):
        left = ",".join(map(_spelled, args[1::2]))
        if len(args) % 2:
            return f"{left}->{_spelled(args[-1])}", args[:-1:2]
        return left, args[::2]
    return args[0], args[1] if isinstance(args[1], (list, tuple)) else args[1:]


def _spelled(subscripts: Sequence[Any]) -> str:
    """A list of subscripts as letters, in an order that keeps that of the numbers."""
    if isinstance(subscripts, Tensor) or not isinstance(subscripts, Sequence):
        raise ArgumentTypeError(
            "einsum(): each operand is followed by its list of subscripts, got "
            f"{type(subscripts).__name__}",
            fix="write einsum(a, [0, 1], b, [1, 2], [0, 2])",
        )
    for number in subscripts:
        if number is not ... and number not in range(52):
            raise ArgumentError(
                f"einsum(): the subscript {number!r} is not within the valid range [0, 52)",
                fix="number the dimensions from 0 to 51, or write ...",
            )
    letters = ascii_uppercase + ascii_lowercase
    return "".join("..." if number is ... else letters[number] for number in subscripts)


@public(method=True, out=True)
def outer(input: Tensor, vec2: Tensor) -> Tensor:
    """All products of the elements of two vectors: (N), (M) -> (N, M).

    >>> metaop.outer(metaop.tensor([1, 2]), metaop.tensor([3, 4]))
    tensor([[3, 4],
            [6, 8]])
    """
    if input.ndim != 1 or vec2.ndim != 1:
        raise ShapeError(
            f"outer: Expected 1-D arguments, but got {input.ndim}-D and {vec2.ndim}-D",
            fix="flatten them first",
        )
    return input.unsqueeze(1) * vec2


@public(method=True, out=True)
def inner(input: Tensor, other: Tensor) -> Tensor:
    """The sum of products over the last dimensions, which go: (…, K), (*, K) -> (…, *).

    >>> metaop.inner(metaop.tensor([[1, 2], [3, 4]]), metaop.tensor([1, 10]))
    tensor([21, 43])
    """
    if input.ndim == 0 or other.ndim == 0:
        return input * other
    if input.ndim == other.ndim == 1:
        return input.dot(other)
    dims = ([-1], [-1])
    return tensordot(input, other, dims)


@public(out=True)
def tensordot(a: Tensor, b: Tensor, dims: Any = 2) -> Tensor:
    """The sum of products over the given dimensions: the last of `a` and first of `b`, or lists.

    `dims` is their number, or a list of dimensions for each operand. Raises ShapeError where their
    sizes differ.

    >>> metaop.tensordot(metaop.tensor([[1, 2], [3, 4]]), metaop.tensor([1, 10]), 1)
    tensor([21, 43])
    """
    if isinstance(dims, WHOLE):
        left, right = list(range(a.ndim - dims, a.ndim)), list(range(dims))
    else:
        chosen = dims.tolist() if isinstance(dims, Tensor) else dims
        left = [wrap_dim(dim, a.ndim) for dim in _listed(chosen[0])]
        right = [wrap_dim(dim, b.ndim) for dim in _listed(chosen[1])]
    for i, j in zip(left, right):
        # What meets a dimension of extent 1 is summed before the product.
        if b.shape[j] == 1:
            a = a.sum(i, keepdim=True)
        elif a.shape[i] == 1:
            b = b.sum(j, keepdim=True)
        if a.shape[i] != b.shape[j]:
            raise ShapeError(
                f"tensordot: contracted dimensions need to match, but first has size "
                f"{a.shape[i]} in dim {i} and second has size {b.shape[j]} in dim {j}",
                fix="name the dimensions of equal size",
            )
    letters = [chr(ord("a") + k) for k in range(26)] + [chr(ord("A") + k) for k in range(26)]
    first = letters[: a.ndim]
    second = letters[a.ndim : a.ndim + b.ndim]
    for i, j in zip(left, right):
        second[j] = first[i]
    kept = [x for k, x in enumerate(first) if k not in left]
    kept += [x for k, x in enumerate(second) if k not in right]
    return einsum(f"{''.join(first)},{''.join(second)}->{''.join(kept)}", a, b)


def _listed(dims: Any) -> Sequence[int]:
    return [int(dims)] if isinstance(dims, WHOLE) else dims


@public(out=True)
def chain_matmul(*matrices: Tensor) -> Tensor:
    """The product of several matrices, in the cheapest order that pairs allow.

    Raises ShapeError where neighbours do not fit.

    >>> metaop.chain_matmul(metaop.ones(2, 3), metaop.ones(3, 4), metaop.ones(4, 1))
    tensor([[12.],
            [12.]])
    """
    letters = [chr(ord("a") + k) for k in range(len(matrices) + 1)]
    terms = ",".join(x + y for x, y in pairwise(letters))
    return einsum(f"{terms}->{letters[0]}{letters[-1]}", *matrices)


@public(method=True, out=True)
def kron(input: Tensor, other: Tensor) -> Tensor:
    """The Kronecker product: every element of `input` times all of `other`; sizes multiply.

    >>> metaop.kron(metaop.tensor([[1, 10]]), metaop.tensor([[1, 2], [3, 4]]))
    tensor([[ 1,  2, 10, 20],
            [ 3,  4, 30, 40]])
    """
    calls = input.call, other.call
    return wrap(record(linear_algebra.kron, calls, (result_type(input, other),)))


@public(method=True, out=True)
def cross(input: Tensor, other: Tensor, dim: int | None = None) -> Tensor:
    """The cross product of vectors along `dim` (the first of size 3 when None).

    Raises ShapeError where that size is not 3.

    >>> metaop.cross(metaop.tensor([1.0, 0.0, 0.0]), metaop.tensor([0.0, 1.0, 0.0]))
    tensor([0., 0., 1.])
    """
    if dim is None:
        dim = next((k for k, extent in enumerate(input.shape) if extent == 3), -1)
    if input.shape[dim] != 3 or other.shape[dim] != 3:
        raise ShapeError(
            f"cross: inputs dimension {dim} must have length 3. Got {list(input.shape)} and "
            f"{list(other.shape)}",
            fix="pass dim=",
        )
    following, before = (-1, dim), (-2, dim)
    return input.roll(*following) * other.roll(*before) - input.roll(*before) * other.roll(
        *following
    )


@public(method=True, precision=in_float32)
def trace(input: Tensor) -> Tensor:
    """The sum of the diagonal of a matrix; raises ShapeError for other numbers of dimensions.

    >>> metaop.trace(metaop.tensor([[1, 2], [3, 4]]))
    tensor(5)
    """
    if input.ndim != 2:
        raise ShapeError(f"trace: expected a matrix, but got {input.ndim} dimensions")
    return input.diagonal().sum()


@public(method=True, out=True)
def vdot(input: Tensor, other: Tensor) -> Tensor:
    """The sum of the products of two vectors of one size; of complex ones, the first conjugated.

    >>> metaop.vdot(metaop.tensor([1.0, 2.0]), metaop.tensor([3.0, 4.0]))
    tensor(11.)
    """
    return input.conj().dot(other)


@in_every_form()
def addr(input: Tensor, vec1: Tensor, vec2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """`beta * input + alpha * outer(vec1, vec2)`: (N, M), (N), (M) -> (N, M).

    >>> metaop.addr(metaop.ones(2, 2), metaop.tensor([1.0, 2.0]), metaop.tensor([3.0, 4.0]))
    tensor([[4., 5.],
            [7., 9.]])
    """
    product = outer(vec1, vec2)
    if result_type(input, product).kind == "bool":
        # Numbers count as True: sums of bools are "or".
        return (input & (beta != 0)) | (product & (alpha != 0))
    if alpha != 1 and alpha is not True:
        product = product * alpha
    return product if beta == 0 else (input if beta == 1 else input * beta) + product


@method()
def dist(input: Tensor, other: Tensor, p: float = 2) -> Tensor:
    """The `p`-norm of the difference of two tensors, whose shapes broadcast: one number.

    >>> metaop.tensor([3.0, 4.0]).dist(metaop.zeros(2)).item()
    5.0
    """
    return (input - other).norm(p)


_COMPUTE_MODES = (
    "use_mm_for_euclid_dist_if_necessary",
    "use_mm_for_euclid_dist",
    "donot_use_mm_for_euclid_dist",
)


@public(precision=in_float32, float32_on_cuda="pair_distances")
def cdist(
    x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: str = "use_mm_for_euclid_dist"
) -> Tensor:
    """All distances between rows in the `p`-norm: (…, M, K) and (…, N, K) -> (…, M, N).

    `compute_mode` chooses between PyTorch's kernels; it changes no result here.

    >>> metaop.cdist(metaop.tensor([[0.0, 0.0]]), metaop.tensor([[3.0, 4.0], [0.0, 1.0]]))
    tensor([[5., 1.]])
    """
    if compute_mode not in _COMPUTE_MODES:
        raise ArgumentError(
            f"{compute_mode} is not a valid value for compute_mode",
            fix=f"use one of {', '.join(_COMPUTE_MODES)}",
        )
    if x1.shape[-1] != x2.shape[-1]:
        raise ShapeError(
            f"cdist: X1 and X2 must have the same number of columns. X1: {x1.shape[-1]} X2: "
            f"{x2.shape[-1]}",
            fix="make the last dimensions equal",
        )
    return wrap(record(distances.pairwise, (x1.call, x2.call), (float(p),)))


@public(float32_on_cuda="pair_distances")
def pdist(input: Tensor, p: float = 2) -> Tensor:
    """The distances between all pairs of different rows, in the order of the upper triangle.

    `p` is the order of the norm: (N, M) becomes a vector of size N * (N - 1) / 2.

    >>> metaop.pdist(metaop.tensor([[0.0, 0.0], [3.0, 4.0], [3.0, 0.0]]))
    tensor([5., 3., 4.])
    """
    if input.ndim != 2:
        raise ShapeError(f"pdist: expected (N, M), got {list(input.shape)}", fix="use a matrix")
    if p < 0:
        raise ArgumentError(f"pdist: p must be 0 or more, got {p}", fix="use p=2")
    rows, others = np.triu_indices(input.shape[0], 1)
    places = from_array(rows * len(input) + others, dtypes.int64, input.device)
    return wrap(record(distances.pair_distances, (input.call, places.call), (float(p),)))


ger = synonym("ger", outer)
