"""Views: tensors that share the storage of another one under another shape."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import numpy as np

from metaop.errors import ArgumentError, DimensionError, ShapeError
from metaop.operators import basic
from metaop.operators import shaping as operators
from metaop.tensor.arguments import infer_size, sizes, wrap_dim, wrap_dims
from metaop.tensor.core import Tensor, from_array, wrap
from metaop.tensor.core import view as view_of
from metaop.tensor.functions.complex_numbers import conj
from metaop.tensor.storage import owner_and_layout
from metaop.tensor.strides import view_layout
from metaop.tensor.surface import attribute, method, public, synonym
from metaop.unified_graph.dtype import DType, from_python_type
from metaop.unified_graph.node import Shape
from metaop.unified_graph.recording import record


@public(method=True)
def reshape(input: Tensor, *shape: Any) -> Tensor:
    """The elements in row-major order under another shape (one size may be -1).

    It is a view if the layout allows one, otherwise a copy. Raises ShapeError if the numbers of
    elements differ.

    >>> metaop.reshape(metaop.arange(6), (2, -1))
    tensor([[0, 1, 2],
            [3, 4, 5]])
    """
    return _reshaped(input, infer_size(sizes(shape), input.numel()))


def _reshaped(input: Tensor, shape: Shape) -> Tensor:
    step = (operators.reshape, (shape,))
    if input._base is None or view_layout(input._base._shape, (*input._steps, step)):
        return view_of(input, *step)
    return wrap(record(operators.reshape, (input.call,), (shape,)))


@method()
def view(input: Tensor, *shape: Any) -> Tensor:
    """`reshape` that never copies; raises ShapeError if the layout does not allow a view.

    With a dtype, it reinterprets the bytes as another type. Values of different types share no
    memory here, so the result is a copy without a gradient; writes to it do not change `input`.
    """
    if len(shape) == 1 and isinstance(dtype := from_python_type(shape[0]) or shape[0], DType):
        return alias(input) if dtype is input.dtype else _bytes_as(input, dtype)
    extents = infer_size(sizes(shape), input.numel())
    step = (operators.reshape, (extents,))
    if input._base is not None and not view_layout(input._base._shape, (*input._steps, step)):
        strides = owner_and_layout(input)[1][0]
        raise ShapeError(
            f"view: size {list(extents)} is not compatible with input tensor's size "
            f"{list(input.shape)} and stride {list(strides)} (at least one dimension spans "
            "across two contiguous subspaces)",
            fix="use .reshape(...) instead",
        )
    return view_of(input, *step)


def _bytes_as(input: Tensor, dtype: DType) -> Tensor:
    """The bytes of `input` as another type; the last dimension grows or shrinks as needed."""
    old, new = input.dtype.itemsize, dtype.itemsize
    if old != new and not input.ndim:
        raise ShapeError(
            f"view: a 0-d {input.dtype.name} cannot be read as {dtype.name} (different element "
            "sizes)",
            fix="give it a dimension with .reshape(1)",
        )
    if old < new and input.shape[-1] * old % new:
        raise ShapeError(
            f"view: size {input.shape[-1]} of the last dimension must be divisible by "
            f"{new // old} to read {input.dtype.name} as {dtype.name}",
            fix="pad or slice the last dimension",
        )
    array = np.ascontiguousarray(input.detach()._array()).view(dtype.numpy)
    return from_array(array.copy(), dtype).to(device=input.device)


@method()
def view_as(input: Tensor, other: Tensor) -> Tensor:
    """`view` with the shape of `other`."""
    return view(input, other.shape)


@method()
def reshape_as(input: Tensor, other: Tensor) -> Tensor:
    """`reshape` to the shape of `other`."""
    return reshape(input, other.shape)


def alias(input: Tensor) -> Tensor:
    """A view of the whole tensor, as another object."""
    return view_of(input, basic.alias)


@public(method=True)
def flatten(input: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """Dimensions `start_dim` to `end_dim` merged into one; all of them by default.

    >>> metaop.flatten(metaop.zeros(2, 3, 4), 1).shape
    metaop.Size([2, 12])
    """
    shape = input._shape
    first, last = wrap_dim(start_dim, len(shape)), wrap_dim(end_dim, len(shape))
    if first > last:
        raise ShapeError("flatten() has invalid args: start_dim cannot come after end_dim")
    if not shape:
        return _reshaped(input, (1,))
    if first == last:
        return input
    merged = 1
    for extent in shape[first : last + 1]:
        merged *= extent
    return _reshaped(input, (*shape[:first], merged, *shape[last + 1 :]))


@public(method=True)
def ravel(input: Tensor) -> Tensor:
    """All elements in one dimension, in row-major order.

    >>> metaop.ravel(metaop.tensor([[1, 2], [3, 4]]))
    tensor([1, 2, 3, 4])
    """
    return _reshaped(input, (input.numel(),))


@public(method=True)
def unflatten(input: Tensor, dim: int, sizes: Sequence[int]) -> Tensor:
    """Dimension `dim` divided into several of `sizes` (one may be -1).

    Raises ShapeError if their product is not its size.

    >>> metaop.unflatten(metaop.zeros(2, 6), 1, (3, -1)).shape
    metaop.Size([2, 3, 2])
    """
    shape = input._shape
    dim = wrap_dim(dim, len(shape))
    inner = infer_size(tuple(sizes), shape[dim])
    return _reshaped(input, (*shape[:dim], *inner, *shape[dim + 1 :]))


@public(method=True)
def squeeze(input: Tensor, dim: int | Sequence[int] | None = None) -> Tensor:
    """Removes the dimensions of extent 1 (all, or those in `dim`).

    >>> metaop.squeeze(metaop.zeros(1, 2, 1)).shape, metaop.squeeze(metaop.zeros(1, 2, 1), 0).shape
    (metaop.Size([2]), metaop.Size([2, 1]))
    """
    shape = input._shape
    candidates = range(len(shape)) if dim is None else wrap_dims(dim, len(shape))
    dropped = {k for k in candidates if shape and shape[k] == 1}
    kept = tuple([extent for k, extent in enumerate(shape) if k not in dropped])
    return view_of(input, operators.reshape, (kept,))


@public(method=True)
def unsqueeze(input: Tensor, dim: int) -> Tensor:
    """Adds a dimension of extent 1 at `dim`.

    >>> metaop.unsqueeze(metaop.zeros(2, 3), 1).shape
    metaop.Size([2, 1, 3])
    """
    shape = input._shape
    dim = wrap_dim(dim, len(shape) + 1)
    return view_of(input, operators.reshape, ((*shape[:dim], 1, *shape[dim:]),))


@public(method=True)
def permute(input: Tensor, *dims: Any) -> Tensor:
    """The dimensions in another order: dimension `k` of the result is `dims[k]`; a view.

    >>> metaop.permute(metaop.zeros(2, 3, 4), (2, 0, 1)).shape
    metaop.Size([4, 2, 3])
    """
    order = sizes(dims)
    ndim = len(input._shape)
    if len(order) != ndim:
        raise ShapeError(
            f"permute: number of dimensions in the tensor input does not match the length of the "
            f"desired ordering of dimensions i.e. input.dim() = {ndim} is not equal to "
            f"len(dims) = {len(order)}"
        )
    return view_of(input, operators.permute, (wrap_dims(order, ndim),))


@public(method=True)
def transpose(input: Tensor, dim0: int, dim1: int) -> Tensor:
    """Two dimensions exchanged; a view.

    >>> metaop.transpose(metaop.tensor([[1, 2, 3], [4, 5, 6]]), 0, 1)
    tensor([[1, 4],
            [2, 5],
            [3, 6]])
    """
    ndim = len(input._shape)
    order = list(range(ndim))
    first, second = wrap_dim(dim0, ndim), wrap_dim(dim1, ndim)
    if ndim:
        order[first], order[second] = second, first
    return view_of(input, operators.permute, (tuple(order),))


@public(method=True)
def t(input: Tensor) -> Tensor:
    """Transposes a matrix; vectors and numbers stay as they are.

    Raises ShapeError for more than two dimensions.

    >>> metaop.t(metaop.tensor([[1, 2], [3, 4]]))
    tensor([[1, 3],
            [2, 4]])
    """
    if input.ndim > 2:
        raise ShapeError(
            f"t() expects a tensor with <= 2 dimensions, but self is {input.ndim}D",
            fix="use .mT or .transpose(-2, -1)",
        )
    return transpose(input, 0, 1) if input.ndim == 2 else alias(input)


@attribute("mT")
def matrices_transposed(input: Tensor) -> Tensor:
    """The last two dimensions exchanged."""
    return transpose(input, -2, -1)


@public(method=True)
@attribute("mH")
def adjoint(input: Tensor) -> Tensor:
    """The last two dimensions exchanged, and complex numbers conjugated: (…, M, N) -> (…, N, M).

    >>> metaop.adjoint(metaop.tensor([[1, 2], [3, 4]]))
    tensor([[1, 3],
            [2, 4]])
    """
    return conj(transpose(input, -2, -1))


@public(method=True)
def movedim(input: Tensor, source: int | Sequence[int], destination: int | Sequence[int]) -> Tensor:
    """Dimensions `source` moved to `destination`; the others keep their order.

    >>> metaop.movedim(metaop.zeros(2, 3, 4), 0, -1).shape
    metaop.Size([3, 4, 2])
    """
    ndim = len(input._shape)
    sources, places = wrap_dims(source, ndim), wrap_dims(destination, ndim)
    if len(sources) != len(places):
        raise ShapeError(
            f"movedim: Invalid source or destination dims: source ({list(sources)}) and "
            f"destination ({list(places)}) should contain the same number of elements"
        )
    rest = iter([k for k in range(ndim) if k not in sources])
    moved = dict(zip(places, sources))
    order = tuple([moved[k] if k in moved else next(rest) for k in range(ndim)])
    return view_of(input, operators.permute, (order,))


@method()
def expand(input: Tensor, *size: Any) -> Tensor:
    """Dimensions of extent 1 repeated without copying; -1 keeps a size."""
    wanted = sizes(size)
    shape = input._shape
    leading = len(wanted) - len(shape)
    if leading < 0:
        raise ShapeError(
            f"expand: the number of sizes provided ({len(wanted)}) must be greater or equal to "
            f"the number of dimensions in the tensor ({len(shape)})"
        )
    result = []
    for position, extent in enumerate(wanted):
        own = shape[position - leading] if position >= leading else 1
        if extent == -1 and position >= leading:
            extent = own
        elif extent < 0 or (own != 1 and own != extent):
            raise ShapeError(
                f"The expanded size of the tensor ({extent}) must match the existing size ({own}) "
                f"at non-singleton dimension {position}. Target sizes: {list(wanted)}. "
                f"Tensor sizes: {list(shape)}"
            )
        result.append(extent)
    return view_of(input, basic.expand, (tuple(result),))


@method()
def expand_as(input: Tensor, other: Tensor) -> Tensor:
    """`expand` to the shape of `other`."""
    return expand(input, other.shape)


@public(method=True)
def broadcast_to(input: Tensor, size: Sequence[int]) -> Tensor:
    """The tensor repeated to the shape `size` without a copy: `expand` under NumPy's name.

    >>> metaop.broadcast_to(metaop.tensor([1, 2]), (2, 2))
    tensor([[1, 2],
            [1, 2]])
    """
    return expand(input, tuple(size))


@public(method=True)
def narrow(input: Tensor, dim: int, start: int | Tensor, length: int) -> Tensor:
    """`length` elements of dimension `dim` from `start` (negative counts from the end).

    >>> metaop.narrow(metaop.arange(5), 0, 1, 3)
    tensor([1, 2, 3])
    """
    shape = input._shape
    dim = wrap_dim(dim, len(shape))
    extent = shape[dim]
    start = int(start)
    if not -extent <= start <= extent:
        raise DimensionError(
            f"start out of range (expected to be in range of [{-extent}, {extent}], but got "
            f"{start})"
        )
    start = start + extent if start < 0 else start
    if length < 0 or start + length > extent:
        raise ShapeError(
            f"narrow: start ({start}) + length ({length}) exceeds dimension size ({extent})"
        )
    return view_of(input, operators.narrow, (dim, start, length))


@public(method=True)
def select(input: Tensor, dim: int, index: int) -> Tensor:
    """Element `index` of dimension `dim`, which is removed; a view.

    >>> metaop.select(metaop.tensor([[1, 2], [3, 4]]), 1, 0)
    tensor([1, 3])
    """
    shape = input._shape
    if not shape:
        raise DimensionError("select() cannot be applied to a 0-dim tensor.")
    dim = wrap_dim(dim, len(shape))
    extent = shape[dim]
    index = int(index)
    if not -extent <= index < extent:
        raise DimensionError(
            f"select(): index {index} out of range for tensor of size {list(shape)} at "
            f"dimension {dim}"
        )
    return view_of(input, operators.select, (dim, index % extent))


@public(method=True)
def diagonal(input: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """The diagonal of dimensions `dim1` and `dim2`, as a new last dimension; a view.

    `offset` counts diagonals upwards from the main one.

    >>> x = metaop.tensor([[1, 2], [3, 4]])
    >>> metaop.diagonal(x), metaop.diagonal(x, 1)
    (tensor([1, 4]), tensor([2]))
    """
    ndim = len(input._shape)
    first, second = wrap_dim(dim1, ndim), wrap_dim(dim2, ndim)
    if first == second:
        raise ShapeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    return view_of(input, operators.diagonal, (offset, first, second))


@method()
def unfold(input: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """All windows of `size` elements along `dimension`, `step` apart, as a last dimension."""
    if not input._shape:
        return expand(unsqueeze(input, 0), size)
    dimension = wrap_dim(dimension, len(input._shape))
    extent = input._shape[dimension]
    if size > extent or size < 0:
        raise ShapeError(
            f"maximum size for tensor at dimension {dimension} is {extent} but size is {size}"
        )
    if step <= 0:
        raise ArgumentError(f"step is {step} but must be > 0")
    return view_of(input, operators.unfold, (dimension, size, step))


@public(method=True)
def swapaxes(input: Tensor, axis0: int, axis1: int) -> Tensor:
    """Two dimensions exchanged: `transpose` under NumPy's name.

    >>> metaop.swapaxes(metaop.zeros(2, 3), 0, 1).shape
    metaop.Size([3, 2])
    """
    return transpose(input, axis0, axis1)


def _in_place_form(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The form of a view function that changes the shape of the tensor itself."""

    @wraps(function)
    def method(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return input._show_as(*function(input, *args, **kwargs)._steps[-1])

    return method


squeeze_ = method("squeeze_")(_in_place_form(squeeze))
unsqueeze_ = method("unsqueeze_")(_in_place_form(unsqueeze))
transpose_ = method("transpose_")(_in_place_form(transpose))
swapdims_ = method("swapdims_")(transpose_)
swapaxes_ = method("swapaxes_")(_in_place_form(swapaxes))
t_ = method("t_")(_in_place_form(t))


@public(method=True)
def clone(input: Tensor, *, memory_format: object = None) -> Tensor:
    """A copy with storage of its own, of the same shape; gradients flow through.

    >>> x = metaop.ones(2)
    >>> metaop.clone(x).add_(1), x
    (tensor([2., 2.]), tensor([1., 1.]))
    """
    return wrap(record(basic.clone, (input.call,)))


@attribute("H")
def conjugate_transpose(input: Tensor) -> Tensor:
    """The transpose of a matrix, with complex numbers conjugated."""
    return conj(reversed_dims(input))


@attribute("T")
def reversed_dims(input: Tensor) -> Tensor:
    """The dimensions in reverse order: the transpose of a matrix."""
    return permute(input, tuple(reversed(range(input.ndim))))


moveaxis = synonym("moveaxis", movedim)
swapdims = synonym("swapdims", transpose)
