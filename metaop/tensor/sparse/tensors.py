"""Sparse tensors: indices and values, and operations on them by gathers and scatters.

A sparse tensor is a pair of ordinary ones. Its coordinates are not differentiated. They are host
data, or, in a gradient, a tensor that the host reads when it needs them. The values are a tensor
like any other, so every operation is differentiable with respect to them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from numbers import Number
from typing import Any, NoReturn

import numpy as np

from metaop.differentiation.tape import Cotangent
from metaop.differentiation.unsummed import Unsummed, summed
from metaop.dist.sbp import BROADCAST
from metaop.errors import ArgumentError, GradientError, ShapeError, UnsupportedError
from metaop.operators.segments import sum_of_rows
from metaop.tensor.arguments import wrap_dims
from metaop.tensor.core import Tensor, from_array, wrap
from metaop.tensor.operands import no_sparse_form
from metaop.tensor.printing import sparse_text_of
from metaop.tensor.size import Size
from metaop.tensor.sparse.layouts import layout, sparse_coo, sparse_csc, sparse_csr
from metaop.tensor.writing import convert_for_write
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.dtype import DType
from metaop.unified_graph.recording import modes, record
from metaop.unified_graph.tensor_type import TensorType


class SparseTensor:
    """A tensor that stores only some of its elements.

    `coordinates` are (sparse dimensions, count), `values` (count, …); further dimensions of the
    values are dense. Values are sorted by row in CSR layout and where they are coalesced, by column
    in CSC layout. Made by `metaop.sparse_coo_tensor`, `sparse_csr_tensor`, `sparse_csc_tensor` and
    `to_sparse`.

    >>> x = metaop.tensor([[0.0, 2.0], [0.0, 0.0]]).to_sparse()
    >>> x.indices(), x.values(), x.shape
    (tensor([[0],
            [1]]), tensor([2.]), metaop.Size([2, 2]))
    """

    is_sparse = True
    # Operators whose left operand is a tensor or an array defer to this class.
    __array_priority__ = 2000
    __array_ufunc__ = None

    def __init__(
        self,
        coordinates: np.ndarray | Tensor,
        values: Tensor,
        size: Sequence[int],
        kind: layout = sparse_coo,
        is_coalesced: bool = False,
    ) -> None:
        self._given = coordinates
        self._held: Any = values
        self.shape = Size(int(extent) for extent in size)
        self.layout = kind
        # Whether no coordinates come twice.
        self._ordered = is_coalesced or self._nnz() < 2
        # What was found out about the coordinates: index tensors on the device, and their order.
        self._known: dict[Any, Any] = {}

    # --- what it is -----------------------------------------------------------------------------

    @property
    def dtype(self) -> DType:
        return self._held.dtype

    @property
    def device(self) -> Any:
        return self._held.device

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def requires_grad(self) -> bool:
        return self._held.requires_grad

    @property
    def is_sparse_csr(self) -> bool:
        return self.layout is sparse_csr

    @property
    def is_leaf(self) -> bool:
        return self._held.is_leaf

    @property
    def grad(self) -> SparseTensor | None:
        """The gradient of the values, with the same coordinates."""
        gradient = self._held.grad
        return None if gradient is None else self._with(gradient)

    def requires_grad_(self, requires_grad: bool = True) -> SparseTensor:
        self._held.requires_grad_(requires_grad)
        return self

    @property
    def is_cuda(self) -> bool:
        return self._held.is_cuda

    def dim(self) -> int:
        return self.ndim

    ndimension = dim

    def numel(self) -> int:
        return self.shape.numel()

    nelement = numel

    def size(self, dim: int | None = None) -> Any:
        return self.shape if dim is None else self.shape[dim]

    def sparse_dim(self) -> int:
        return self._given.shape[0]

    def dense_dim(self) -> int:
        return self.ndim - self.sparse_dim()

    def _nnz(self) -> int:
        return self._given.shape[1]

    def is_coalesced(self) -> bool:
        return self._ordered

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        if self.is_sparse_csr:
            parts = {"crow_indices": self.crow_indices(), "col_indices": self.col_indices()}
        elif self.layout is sparse_csc:
            parts = {"ccol_indices": self.ccol_indices(), "row_indices": self.row_indices()}
        else:
            parts = {"indices": self._indices()}
        return sparse_text_of(self, {**parts, "values": self._held})

    # --- its parts ------------------------------------------------------------------------------

    @cached_property
    def _coordinates(self) -> np.ndarray:
        given = self._given
        return given.numpy(force=True) if isinstance(given, Tensor) else given

    @property
    def call(self) -> NoReturn:
        raise UnsupportedError(
            f"expected a dense tensor, got a sparse one of size {list(self.shape)}",
            fix="call .to_dense() first",
        )

    def as_unsummed(self) -> Unsummed:
        """The same tensor in the form of gradients: rows still to be summed."""
        kind = TensorType(tuple(self.shape), self.dtype, self.device)
        return Unsummed(self._indices().call, self._held.call, kind)

    def _index(self, array: np.ndarray) -> Tensor:
        index = from_array(np.ascontiguousarray(array), dtypes.int64)
        return index.to(self.device)

    def _axis(self, dim: int) -> Tensor:
        """The coordinates along one dimension."""
        if dim not in self._known:
            self._known[dim] = self._index(self._coordinates[dim])
        return self._known[dim]

    @property
    def _is_sorted(self) -> bool:
        """Whether the values of each row are together, row after row."""
        if "sorted" not in self._known:
            rows = self._coordinates[0]
            self._known["sorted"] = bool((rows[1:] >= rows[:-1]).all())
        return self._known["sorted"]

    def _starts(self, dim: int) -> Tensor:
        """Where the values of each row or column begin, if they are sorted by it."""
        key = "starts", dim
        if key not in self._known:
            counts = np.bincount(self._coordinates[dim], minlength=self.shape[dim])
            self._known[key] = self._index(np.concatenate(([0], np.cumsum(counts))))
        return self._known[key]

    def _linear(self) -> np.ndarray:
        """The place of each value, counted row by row through the sparse dimensions."""
        if not self._nnz():
            return np.zeros(0, np.int64)
        places = np.ravel_multi_index(tuple(self._coordinates), self.shape[: self.sparse_dim()])
        return np.asarray(places, np.int64)

    def _at(self, positions: np.ndarray) -> Any:
        """The values at some positions among them."""
        return self._held.index_select(0, self._index(positions))

    def _indices(self) -> Tensor:
        given = self._given
        return given if isinstance(given, Tensor) else self._index(given)

    def _values(self) -> Tensor:
        return self._held

    def _require_coalesced(self, name: str) -> None:
        if not self._ordered:
            raise ArgumentError(
                f"Cannot get {name} on an uncoalesced tensor", fix="call .coalesce() first"
            )

    def indices(self) -> Tensor:
        """The coordinates (dimensions, count) of a coalesced tensor."""
        self._require_coalesced("indices")
        return self._indices()

    def values(self) -> Tensor:
        """The values (count, …) of a coalesced tensor."""
        self._require_coalesced("values")
        return self._held

    def crow_indices(self) -> Tensor:
        """The offset at which each row begins in the values, and the end of the last row."""
        self._require_layout("crow_indices", sparse_csr)
        return self._starts(0).clone()

    def col_indices(self) -> Tensor:
        """The column of each value."""
        self._require_layout("col_indices", sparse_csr)
        return self._index(self._coordinates[1])

    def ccol_indices(self) -> Tensor:
        """The offset at which each column begins in the values, and the end of the last column."""
        self._require_layout("ccol_indices", sparse_csc)
        return self._starts(1).clone()

    def row_indices(self) -> Tensor:
        """The row of each value."""
        self._require_layout("row_indices", sparse_csc)
        return self._index(self._coordinates[0])

    def _require_layout(self, name: str, kind: layout) -> None:
        if self.layout is not kind:
            compressed = "row" if kind is sparse_csr else "column"
            raise ArgumentError(
                f"{name} expected sparse compressed {compressed} tensor layout but got "
                f"{self.layout}",
                fix=f"call .to_{kind._name}() first",
            )

    def _with(self, values: Any) -> SparseTensor:
        found = SparseTensor(self._given, values, self.shape, self.layout, self._ordered)
        if found.device == self.device:
            # What is known of the coordinates is true of both, and of what either finds out later.
            found._known = self._known
        return found

    # --- other forms ----------------------------------------------------------------------------

    def coalesce(self) -> SparseTensor:
        """The tensor with sorted, unique coordinates; values with equal coordinates are summed."""
        if self._ordered and self.layout is not sparse_csc:
            return self
        extents = self.shape[: len(self._coordinates)]
        unique, where = np.unique(self._linear(), return_inverse=True)
        coordinates = np.stack(np.unravel_index(unique, extents)).astype(np.int64)
        values = self._held.new_zeros((len(unique), *self._held.shape[1:]))
        values = values.index_add(0, self._index(where.reshape(-1)), self._held)
        return SparseTensor(coordinates, values, self.shape, sparse_coo, True)

    def to_dense(self, dtype: DType | None = None) -> Tensor:
        """The dense tensor, with zeros where nothing is stored."""
        dense = wrap(summed(self.as_unsummed()))
        return dense if dtype is None else dense.to(dtype)

    def to_sparse(
        self, sparse_dim: int | None = None, *, layout: layout | None = None
    ) -> SparseTensor:
        """The tensor in COO layout, or in another `layout`: `sparse_csr` or `sparse_csc`.

        Raises ArgumentError for any other layout, and for a `sparse_dim` that is not the tensor's.
        """
        forms = {None: self._to_coo, sparse_coo: self._to_coo}
        forms |= {sparse_csr: self.to_sparse_csr, sparse_csc: self.to_sparse_csc}
        if sparse_dim not in (None, len(self._coordinates)) or layout not in forms:
            raise ArgumentError(
                f"to_sparse of a sparse tensor: sparse_dim={sparse_dim}, layout={layout}",
                fix=f"use sparse_dim={len(self._coordinates)}, and sparse_coo, sparse_csr or "
                "sparse_csc",
            )
        return forms[layout]()

    def _to_coo(self) -> SparseTensor:
        ordered = self.coalesce() if self.layout is sparse_csc else self
        return SparseTensor(
            ordered._coordinates, ordered._held, self.shape, sparse_coo, self._ordered
        )

    to_sparse_coo = to_sparse

    def to_sparse_csr(self) -> SparseTensor:
        """The matrix in CSR layout."""
        _require_matrix("to_sparse_csr", self)
        ordered = self.coalesce()
        return SparseTensor(ordered._coordinates, ordered._held, self.shape, sparse_csr, True)

    def to_sparse_csc(self) -> SparseTensor:
        """The matrix in CSC layout."""
        _require_matrix("to_sparse_csc", self)
        if self.layout is sparse_csc:
            return self
        ordered = self.coalesce()
        order = np.argsort(ordered._coordinates[1], kind="stable")
        values = ordered._held.index_select(0, self._index(order))
        return SparseTensor(ordered._coordinates[:, order], values, self.shape, sparse_csc, True)

    def to(self, *args: Any, **options: Any) -> SparseTensor:
        """The tensor with its values in another dtype or on another device."""
        return self._with(self._held.to(*args, **options))

    def cuda(self, device: Any = None, non_blocking: bool = False) -> SparseTensor:
        return self._with(self._held.cuda(device))

    def cpu(self) -> SparseTensor:
        return self._with(self._held.cpu())

    def detach(self) -> SparseTensor:
        return self._with(self._held.detach())

    def detach_(self) -> SparseTensor:
        """Detaches the values from their gradient history, in place."""
        self._held.detach_()
        return self

    def zero_(self) -> SparseTensor:
        """Removes all stored elements."""
        values = self._held.new_zeros((0, *self._held.shape[1:]))
        places = np.zeros((self.sparse_dim(), 0), np.int64)
        return self._become("zero_", SparseTensor(places, values, self.shape, self.layout, True))

    def _become(self, name: str, found: SparseTensor) -> SparseTensor:
        """Takes the elements of another tensor: what the function `name` does in place.

        Raises GradientError for a leaf that requires grad, and DTypeError for a higher kind.
        """
        if modes.gradients and self.is_leaf and self.requires_grad:
            raise GradientError(
                f"{name}: a leaf Variable that requires grad is being used in an in-place "
                "operation.",
                fix="compute out of place, or inside metaop.no_grad()",
            )
        values = wrap(convert_for_write(found._held, self.dtype, name))
        size, kind = found.shape, self.layout
        other = found if found.layout is kind else found.to_sparse(layout=kind)
        given, is_ordered = other._given, other._ordered
        self.__dict__.clear()
        SparseTensor.__init__(self, given, values, size, kind, is_ordered)
        return self

    def clone(self) -> SparseTensor:
        return self._with(self._held.clone())

    def t(self) -> SparseTensor:
        """The transposed matrix: of CSR in CSC layout and the reverse, of others in COO layout."""
        _require_matrix("t", self)
        rows, columns = self.shape
        kind = {sparse_csr: sparse_csc, sparse_csc: sparse_csr}.get(self.layout, sparse_coo)
        is_ordered = self._ordered and kind is not sparse_coo
        turned = np.ascontiguousarray(self._coordinates[::-1])
        return SparseTensor(turned, self._held, (columns, rows), kind, is_ordered)

    T = property(t)

    @property
    def mT(self) -> SparseTensor:
        return self.transpose(-2, -1)

    # --- computing ------------------------------------------------------------------------------

    def __neg__(self) -> SparseTensor:
        return self._with(-self._held)

    def __abs__(self) -> SparseTensor:
        return self.abs()

    def __pow__(self, exponent: Any) -> SparseTensor:
        return self.pow(exponent)

    def __floordiv__(self, other: Any) -> SparseTensor:
        return self.div(other, rounding_mode="floor")

    def _compared(self, other: Any) -> Any:
        if isinstance(other, (Number, Tensor, SparseTensor)):
            raise no_sparse_form("comparison")
        return NotImplemented

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _compared
    __hash__ = object.__hash__

    def __mul__(self, other: Any) -> SparseTensor:
        """The product with a number, or elementwise with a tensor, which broadcasts if dense.

        Raises ShapeError if the result is larger than the sparse tensor.
        """
        if isinstance(other, SparseTensor):
            return _product_of_stored(self, other)
        if isinstance(other, Tensor) and other.ndim:
            other = self._at_stored(other)
        return self._with(self._held * other)

    __rmul__ = __mul__

    def _at_stored(self, other: Any) -> Any:
        """The elements of a dense tensor, broadcast to this shape, where this one stores some."""
        shape = (*(1,) * (self.ndim - other.ndim), *other.shape)
        if len(shape) != self.ndim or any(n not in (1, m) for n, m in zip(shape, self.shape)):
            raise ShapeError(
                f"mul: a sparse tensor {list(self.shape)} and one of {list(other.shape)}"
            )
        whole = other.expand(self.shape)
        return whole[tuple(self._axis(dim) for dim in range(self.sparse_dim()))]

    def __truediv__(self, other: Any) -> SparseTensor:
        return self.div(other)

    def __rtruediv__(self, other: Any) -> NoReturn:
        raise no_sparse_form("division by a sparse tensor")

    def _of_unique(self) -> SparseTensor:
        """The tensor in the same layout, with each of its coordinates once."""
        return self if self._ordered else self.coalesce()

    def __add__(self, other: Any) -> Any:
        """The sum with another sparse tensor (sparse) or with a dense one (dense).

        Unless both are coalesced, the result concatenates their elements.
        """
        if not isinstance(other, SparseTensor):
            if not getattr(other, "ndim", 0):
                raise UnsupportedError(
                    "the sum of a sparse tensor and a number would not be sparse",
                    fix="call .to_dense() first",
                )
            return self.to_dense() + other
        if tuple(other.shape) != tuple(self.shape) or len(other._coordinates) != len(
            self._coordinates
        ):
            raise ShapeError(f"add: sparse tensors of {list(self.shape)} and {list(other.shape)}")
        found = wrap_gradient(self.as_unsummed().joined(other.as_unsummed()))
        if self.layout is not sparse_coo:
            return found.to_sparse(layout=self.layout)
        return found.coalesce() if self._ordered and other._ordered else found

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self + -other

    def __rsub__(self, other: Any) -> Any:
        return -self + other

    def matmul(self, other: Any) -> Any:
        """The product with a dense matrix or vector (dense), or with a sparse matrix (sparse)."""
        return sparse_matmul(self, other)

    __matmul__ = mm = spmm = mv = matmul

    def __rmatmul__(self, other: Tensor) -> Tensor:
        return sparse_matmul(self.t(), other.transpose(-2, -1)).transpose(-2, -1)

    def sum(
        self,
        dim: int | Sequence[int] | None = None,
        keepdim: bool = False,
        *,
        dtype: DType | None = None,
    ) -> Any:
        """The sum of all elements, or over `dim`: dense if that has all sparse dimensions.

        With `keepdim` the dimensions stay, with size 1.
        """
        values = self._held if dtype is None else self._held.to(dtype)
        if dim is None:
            return values.sum()
        gone = sorted(wrap_dims(dim, self.ndim))
        count = self.sparse_dim()
        inner = [one - count + 1 for one in gone if one >= count]
        if inner:
            values = values.sum(inner)
        kept = [one for one in range(count) if one not in gone]
        shape = [extent for one, extent in enumerate(self.shape) if one not in gone]
        found: Any = values.sum(0)
        if kept:
            found = SparseTensor(self._coordinates[kept], values, shape).coalesce()
        for one in gone if keepdim else ():
            found = found.unsqueeze(one)
        return found

    def __iter__(self) -> Iterator[Any]:
        return iter(self.unbind())

    def __getattr__(self, name: str) -> Any:
        """What only dense tensors have: methods that raise UnsupportedError when they are called.

        Functions that both have are in `forms.py` and `moves.py`.
        """
        if name.startswith("_") or not callable(getattr(Tensor, name, None)):
            raise AttributeError(f"'SparseTensor' object has no attribute '{name}'")

        def refuse(*args: Any, **kwargs: Any) -> NoReturn:
            raise no_sparse_form(name)

        return refuse


def without_elements(name: str, values: Tensor, kind: layout) -> SparseTensor:
    """Zeros like `values` none of which is stored, as the function `name` makes them.

    Raises ArgumentError for a layout of matrices and another number of dimensions.
    """
    size = values.shape
    if kind is not sparse_coo and len(size) != 2:
        raise ArgumentError(
            f"{name} of layout {kind}: it is one of matrices, not of size {list(size)}",
            fix="use sparse_coo",
        )
    held: Any = values.new_zeros((0,))  # type: ignore[attr-defined]
    held.requires_grad_(values.requires_grad)
    return SparseTensor(np.zeros((len(size), 0), np.int64), held, size, kind, True)


def wrap_gradient(gradient: Cotangent) -> Any:
    """A gradient as users see it: a tensor, or a sparse tensor of rows that are not yet summed."""
    if isinstance(gradient, Unsummed):
        coordinates, values = wrap(gradient.places), wrap(gradient.values)
        return SparseTensor(coordinates, values, gradient.type.shape)
    return wrap(gradient)


def cotangent_of_gradient(tensor: Any) -> Cotangent:
    """What `wrap_gradient` showed, or what a hook returned instead."""
    return tensor.as_unsummed() if tensor.is_sparse else tensor.call


def _require_matrix(name: str, matrix: SparseTensor) -> None:
    if matrix.sparse_dim() != 2 or matrix.dense_dim():
        raise UnsupportedError(
            f"{name}: a sparse tensor of shape {list(matrix.shape)} with "
            f"{matrix.dense_dim()} dense dimensions is not a matrix"
        )


def sparse_matmul(matrix: SparseTensor, other: Any) -> Any:
    """Gathers rows of `other` by column, scales them by the values, accumulates them by row."""
    _require_matrix("matmul", matrix)
    if other.ndim not in (1, 2) or other.shape[0] != matrix.shape[1]:
        raise ShapeError(
            f"matmul: shapes {list(matrix.shape)} and {list(other.shape)} do not match"
        )
    if isinstance(other, SparseTensor):
        return _sparse_product(matrix, other)
    parts = matrix._axis(0), matrix._axis(1), matrix._held
    placement = other.device.placement
    if placement is not None:
        # Every rank has the whole matrix; how the product is shared follows from the dense factor.
        whole = [BROADCAST] * len(placement.shape)
        parts = tuple([part.to_global(placement, whole) for part in parts])  # type: ignore
    rows, columns, values = parts
    products = values.reshape(-1, *(1,) * (other.ndim - 1)) * other.index_select(0, columns)
    # The ranks of a global tensor may share the values, which then begin elsewhere.
    is_sorted = placement is None and matrix._is_sorted
    starts = matrix._starts(0).call if is_sorted else None
    return wrap(record(sum_of_rows, (products.call, rows.call, starts), (matrix.shape[0],)))


def matches(keys: np.ndarray, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """All pairs of positions (in sorted `keys`, in `wanted`) at which both have the same number."""
    starts = np.searchsorted(keys, wanted, "left")
    counts = np.searchsorted(keys, wanted, "right") - starts
    second = np.repeat(np.arange(len(wanted)), counts)
    within = np.arange(len(second)) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.repeat(starts, counts) + within, second


def _sparse_product(left: SparseTensor, right: SparseTensor) -> SparseTensor:
    """Pairs every value in a column of `left` with every value in the same row of `right`."""
    _require_matrix("matmul", right)
    ordered = right.coalesce()
    second, first = matches(ordered._coordinates[0], left._coordinates[1])
    values = left._at(first) * ordered._at(second)
    coordinates = np.stack([left._coordinates[0][first], ordered._coordinates[1][second]])
    return SparseTensor(coordinates, values, (left.shape[0], right.shape[1])).coalesce()


def _product_of_stored(left: SparseTensor, right: SparseTensor) -> SparseTensor:
    """The products where both store an element, in the layout of `left`."""
    if tuple(left.shape) != tuple(right.shape) or left.sparse_dim() != right.sparse_dim():
        raise ShapeError(
            f"mul: sparse tensors of {list(left.shape)} and {list(right.shape)} with "
            f"{left.sparse_dim()} and {right.sparse_dim()} sparse dimensions",
            fix="give both the same size and the same number of sparse dimensions",
        )
    one, other = left.coalesce(), right.coalesce()
    first, second = matches(one._linear(), other._linear())
    values = one._at(first) * other._at(second)
    places = one._coordinates[:, first]
    found = SparseTensor(places, values, left.shape, sparse_coo, True)
    return found.to_sparse(layout=left.layout)
