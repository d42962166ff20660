"""Making arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

import metaop
from metaop.array_api.types import promoted
from metaop.errors import ArgumentError
from metaop.tensor.core import Tensor
from metaop.unified_graph.dtype import DType

Shape = int | tuple[int, ...]


def _sizes(shape: Shape) -> tuple[int, ...]:
    return (shape,) if isinstance(shape, int) else tuple(shape)


def asarray(
    obj: Any, /, *, dtype: DType | None = None, device: Any = None, copy: bool | None = None
) -> Tensor:
    """Numbers, sequences, buffers or arrays as an array; `copy=False` never copies."""
    if isinstance(obj, Tensor):
        changes = dtype not in (None, obj.dtype) or (device not in (None, obj.device))
        if copy is False and changes:
            raise ValueError("asarray: the array has to be copied to change its type or device")
        return obj.to(dtype=dtype, device=device, copy=bool(copy))  # type: ignore[attr-defined]
    if copy is False and not hasattr(obj, "__dlpack__"):
        raise ValueError("asarray: Python objects have to be copied")
    if hasattr(obj, "__dlpack__"):
        return metaop.from_dlpack(obj, copy=copy).to(dtype=dtype, device=device)  # type: ignore
    source = obj
    if isinstance(obj, (bytes, bytearray, memoryview)) or type(obj).__name__ == "array":
        source = np.array(memoryview(obj))
    return metaop.tensor(source, dtype=dtype, device=device)


def arange(
    start: float,
    /,
    stop: float | None = None,
    step: float = 1,
    *,
    dtype: DType | None = None,
    device: Any = None,
) -> Tensor:
    """Numbers from `start` (or 0) to `stop` in steps."""
    low, high = (0, start) if stop is None else (start, stop)
    if (high - low) * step <= 0:
        kind = dtype or metaop.arange(0, 1, step if step else 1).dtype
        return metaop.empty(0, dtype=kind, device=device)
    return metaop.arange(low, high, step, dtype=dtype, device=device)


def empty(shape: Shape, *, dtype: DType | None = None, device: Any = None) -> Tensor:
    """An array to be filled later."""
    return metaop.empty(_sizes(shape), dtype=dtype, device=device)


def zeros(shape: Shape, *, dtype: DType | None = None, device: Any = None) -> Tensor:
    """An array of zeros."""
    return metaop.zeros(_sizes(shape), dtype=dtype, device=device)


def ones(shape: Shape, *, dtype: DType | None = None, device: Any = None) -> Tensor:
    """An array of ones."""
    return metaop.ones(_sizes(shape), dtype=dtype, device=device)


def full(
    shape: Shape, fill_value: Any, *, dtype: DType | None = None, device: Any = None
) -> Tensor:
    """An array of one number, whose type is the number's by default."""
    return metaop.full(_sizes(shape), fill_value, dtype=dtype, device=device)


def empty_like(x: Tensor, /, *, dtype: DType | None = None, device: Any = None) -> Tensor:
    """An array to be filled later, of the shape of `x`."""
    return metaop.empty_like(x, dtype=dtype, device=device)


def zeros_like(x: Tensor, /, *, dtype: DType | None = None, device: Any = None) -> Tensor:
    """Zeros of the shape of `x`."""
    return metaop.zeros_like(x, dtype=dtype, device=device)


def ones_like(x: Tensor, /, *, dtype: DType | None = None, device: Any = None) -> Tensor:
    """Ones of the shape of `x`."""
    return metaop.ones_like(x, dtype=dtype, device=device)


def full_like(
    x: Tensor, /, fill_value: Any, *, dtype: DType | None = None, device: Any = None
) -> Tensor:
    """One number in the shape of `x`."""
    return metaop.full_like(x, fill_value, dtype=dtype, device=device)


def eye(
    n_rows: int,
    n_cols: int | None = None,
    /,
    *,
    k: int = 0,
    dtype: DType | None = None,
    device: Any = None,
) -> Tensor:
    """Ones on diagonal `k`, zeros elsewhere."""
    columns = n_rows if n_cols is None else n_cols
    on_diagonal = np.eye(n_rows, columns, k, dtype=np.bool_)
    return metaop.from_numpy(on_diagonal).to(  # type: ignore[attr-defined]
        dtype=dtype or metaop.get_default_dtype(), device=device
    )


def linspace(
    start: complex,
    stop: complex,
    /,
    num: int,
    *,
    dtype: DType | None = None,
    device: Any = None,
    endpoint: bool = True,
) -> Tensor:
    """`num` numbers at equal distances from `start` to `stop`, which may be left out."""
    values = np.linspace(start, stop, num, endpoint=endpoint)
    usual = metaop.get_default_dtype()
    kind = dtype or (usual.whole if values.dtype.kind == "c" else usual)
    return metaop.from_numpy(values.astype(kind.numpy)).to(device=device)  # type: ignore


def meshgrid(*arrays: Tensor, indexing: str = "xy") -> tuple[Tensor, ...]:
    """Coordinates of a grid, by rows and columns ("ij") or by x and y ("xy")."""
    if indexing not in ("xy", "ij"):
        raise ArgumentError(f"meshgrid: indexing {indexing!r}", fix="use 'xy' or 'ij'")
    return tuple(metaop.meshgrid(*promoted(*arrays), indexing=indexing))


def tril(x: Tensor, /, *, k: int = 0) -> Tensor:
    """The part on and below diagonal `k`."""
    return metaop.tril(x, k)


def triu(x: Tensor, /, *, k: int = 0) -> Tensor:
    """The part on and above diagonal `k`."""
    return metaop.triu(x, k)
