"""Ranges, the identity matrix, triangles and grids."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np

from metaop.errors import ArgumentError, ShapeError
from metaop.operators import creation as operators
from metaop.operators.complex_numbers import joined
from metaop.tensor.arguments import plain_number, sizes
from metaop.tensor.core import Tensor, from_array, wrap
from metaop.tensor.options import DeviceLike, device_of
from metaop.tensor.promotion import Number, Real, defaults, number_call
from metaop.tensor.sharded.placing import placeable, placeable_from_host
from metaop.tensor.surface import public
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.dtype import DType
from metaop.unified_graph.recording import Call, record
from metaop.unified_graph.tensor_type import CPU


def _finish(call: Call, requires_grad: bool) -> Tensor:
    result = wrap(call)
    return result.requires_grad_() if requires_grad else result


def _number(value: Any) -> Any:
    return value.item() if isinstance(value, Tensor) else plain_number(value)


@public("range", out=True)
def inclusive_range(
    start: Real = 0,
    end: Real | None = None,
    step: Real = 1,
    *,
    dtype: DType | None = None,
    **options: Any,
) -> Tensor:
    """`start`, `start + step`, … up to and including `end`; floats unless `dtype` is given.

    The size is (end - start) / step + 1, rounded down. As in PyTorch, it is deprecated in favour of
    `arange`, which behaves like Python's `range`.

    >>> import warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")
    ...     metaop.range(1, 4)
    tensor([1., 2., 3., 4.])
    """
    if end is None:
        start, end = 0, start
    warnings.warn(
        "metaop.range is deprecated: its behavior is inconsistent with Python's range builtin. "
        "Instead, use metaop.arange, which produces values in [start, end).",
        stacklevel=2,
    )
    start, end, step = _number(start), _number(end), _number(step)
    if step == 0:
        raise ArgumentError("range: step must be nonzero", fix="use a step other than 0")
    if (end - start) * step < 0:
        raise ArgumentError(
            "upper bound and lower bound inconsistent with step sign",
            fix=f"from {start} to {end} in steps of {step} there is no way",
        )
    extent = math.floor((end - start) / step) + 1
    numbers = arange(extent, dtype=dtypes.float64, device=options.get("device")) * step + start
    return numbers.to(dtype or defaults.dtype).requires_grad_(options.get("requires_grad", False))


@public(out=True)
@placeable
def arange(
    start: Real,
    end: Real | None = None,
    step: Real = 1,
    *,
    dtype: DType | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """`start`, `start + step`, … up to but excluding `end`; int64 if all are integers.

    `arange(n)` starts at 0. The size is (end - start) / step, rounded up. Raises ArgumentError for
    a step of 0 or in the wrong direction.

    >>> metaop.arange(3), metaop.arange(1.0, 2.0, 0.5)
    (tensor([0, 1, 2]), tensor([1.0000, 1.5000]))
    """
    if end is None:
        start, end = 0, start
    start, end, step = _number(start), _number(end), _number(step)
    if dtype is dtypes.int64:
        # Only for this type does PyTorch truncate the bounds before it counts the elements.
        start, end, step = int(start), int(end), int(step)
    if step == 0:
        raise ArgumentError("arange: step must be nonzero", fix="use a step other than 0")
    if (end - start) * step < 0:
        raise ArgumentError(
            "upper bound and lower bound inconsistent with step sign",
            fix=f"from {start} to {end} in steps of {step} there is no way",
        )
    whole = all(isinstance(value, int) for value in (start, end, step))
    extent = -((start - end) // step) if whole else math.ceil((end - start) / step)
    work = dtypes.int64 if whole else dtypes.float64
    dtype = dtype or (dtypes.int64 if whole else defaults.dtype)
    if dtype.kind == "int":
        start, step, work = int(start), int(step), dtypes.int64
    place = device_of(device)
    numbers = [
        None if value == absent and place is CPU else number_call(value, work, place)
        for value, absent in ((start, 0), (step, 1))
    ]
    return _finish(record(operators.arange, numbers, (extent, dtype)), requires_grad)


@public(out=True)
@placeable
def linspace(
    start: Number,
    end: Number,
    steps: int,
    *,
    dtype: DType | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """`steps` evenly spaced numbers from `start` to `end`, both included: a tensor of that length.

    >>> metaop.linspace(0, 1, 5)
    tensor([0.0000, 0.2500, 0.5000, 0.7500, 1.0000])
    """
    if steps < 0:
        raise ShapeError("number of steps must be non-negative", fix="pass steps >= 0")
    if dtype is None and any(isinstance(x, complex) for x in (start, end)):
        dtype = defaults.dtype.whole
    if dtype is not None and dtype.is_complex:
        first, last = (complex(_number(x)) for x in (start, end))
        parts = [
            linspace(x, y, steps, dtype=dtype.part, device=device)
            for x, y in ((first.real, last.real), (first.imag, last.imag))
        ]
        return _finish(record(joined, [part.call for part in parts]), requires_grad)
    place = device_of(device)
    bounds = [number_call(_number(x), dtypes.float64, place) for x in (start, end)]
    call = record(operators.linspace, bounds, (steps, dtype or defaults.dtype))
    return _finish(call, requires_grad)


@public(out=True)
@placeable
def logspace(
    start: Number,
    end: Number,
    steps: int,
    base: Number = 10.0,
    *,
    dtype: DType | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """`base` to the power of evenly spaced exponents: a tensor of length `steps`.

    >>> metaop.logspace(0, 3, 4)
    tensor([   1.,   10.,  100., 1000.])
    """
    is_complex = any(isinstance(x, complex) for x in (start, end, base))
    kind = dtypes.complex128 if is_complex else dtypes.float64
    exponents = linspace(start, end, steps, dtype=kind, device=device)
    found = np.asarray(base, kind.numpy).item() ** exponents
    result = found.to(dtype or (defaults.dtype.whole if is_complex else defaults.dtype))
    return _finish(result.call, requires_grad)


@public(out=True)
@placeable
def eye(
    n: int,
    m: int | None = None,
    *,
    dtype: DType | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """The identity matrix (N, M): ones on its diagonal, zeros elsewhere; M is N if not given.

    >>> metaop.eye(2, 3)
    tensor([[1., 0., 0.],
            [0., 1., 0.]])
    """
    if n < 0 or (m is not None and m < 0):
        raise ArgumentError(f"eye: sizes must be at least 0, got {n} and {m}")
    place, dtype = device_of(device), dtype or defaults.dtype
    one = () if place is CPU else (number_call(1, dtype, place),)
    return _finish(record(operators.eye, one, (n, n if m is None else m, dtype)), requires_grad)


@public()
@placeable_from_host
def tril_indices(row: int, col: int, offset: int = 0, **options: Any) -> Tensor:
    """The row and column numbers of the lower triangle, int64 of the shape (2, count).

    Rows come first; `offset` moves the diagonal up.

    >>> metaop.tril_indices(2, 3)
    tensor([[0, 1, 1],
            [0, 0, 1]])
    """
    return _indices(np.tril_indices(row, offset, col), **options)


@public()
@placeable_from_host
def triu_indices(row: int, col: int, offset: int = 0, **options: Any) -> Tensor:
    """The row and column numbers of the upper triangle, int64 of the shape (2, count).

    Rows come first; `offset` moves the diagonal up.

    >>> metaop.triu_indices(2, 3)
    tensor([[0, 0, 0, 1, 1],
            [0, 1, 2, 1, 2]])
    """
    return _indices(np.triu_indices(row, offset, col), **options)


@public()
def unravel_index(indices: Tensor, shape: Any) -> tuple[Tensor, ...]:
    """The coordinates, one tensor per dimension of `shape`, of row-major positions.

    >>> metaop.unravel_index(metaop.tensor([0, 5]), (2, 3))
    (tensor([0, 1]), tensor([0, 2]))
    """
    extents = shape.tolist() if isinstance(shape, Tensor) else shape
    extents = sizes((extents,))
    found = []
    for extent in reversed(extents):
        found.append(indices % extent)
        indices = indices // extent
    return tuple(reversed(found))


def _indices(
    found: tuple[np.ndarray, ...], dtype: DType = dtypes.int64, device: DeviceLike = None
) -> Tensor:
    array = np.stack(found).astype(dtype.numpy)
    return from_array(array, dtype).to(device=device_of(device))
