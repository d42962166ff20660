"""Comparisons for tests, and random tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from metaop.tensor.core import Tensor
from metaop.tensor.functions.creation import as_tensor, tensor
from metaop.tensor.generator import host_random
from metaop.tensor.options import DeviceLike
from metaop.tensor.promotion import Real
from metaop.unified_graph.dtype import DType

__all__ = ["assert_allclose", "assert_close", "make_tensor"]

_TOLERANCES = {
    "float16": (1e-3, 1e-5),
    "bfloat16": (1.6e-2, 1e-5),
    "float32": (1.3e-6, 1e-5),
    "float64": (1e-7, 1e-7),
}


def assert_close(
    actual: Any,
    expected: Any,
    *,
    allow_subclasses: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_device: bool = True,
    check_dtype: bool = True,
    check_layout: bool = True,
    check_stride: bool = False,
    msg: str | Callable[[str], str] | None = None,
) -> None:
    """Asserts that tensors, numbers, or nests of them are close: `|a - e| <= atol + rtol * |e|`.

    Default tolerances depend on the dtype, as in PyTorch. With `check_stride`, strides must be
    equal; without `allow_subclasses`, types must. Raises AssertionError.

    >>> metaop.testing.assert_close(metaop.ones(2), metaop.tensor([1.0, 1.000001]))
    """
    if not allow_subclasses:
        same = type(actual) is type(expected)
        _check(same, f"types {type(actual).__name__}, {type(expected).__name__}", msg)
    if isinstance(expected, Mapping):
        _check(set(actual) == set(expected), f"keys differ: {set(actual)} {set(expected)}", msg)
        pairs = [(actual[key], expected[key]) for key in expected]
    elif isinstance(expected, Sequence) and not isinstance(expected, str):
        _check(len(actual) == len(expected), f"lengths {len(actual)}, {len(expected)}", msg)
        pairs = list(zip(actual, expected))
    else:
        checks = (check_device, check_dtype, check_stride)
        _assert_values(actual, expected, rtol, atol, equal_nan, checks, msg)
        return
    for one, other in pairs:
        assert_close(
            one,
            other,
            allow_subclasses=allow_subclasses,
            rtol=rtol,
            atol=atol,
            equal_nan=equal_nan,
            check_device=check_device,
            check_dtype=check_dtype,
            check_stride=check_stride,
            msg=msg,
        )


def _assert_values(
    actual: Any,
    expected: Any,
    rtol: float | None,
    atol: float | None,
    equal_nan: bool,
    checks: tuple[bool, bool, bool],
    msg: Any,
) -> None:
    one, other = as_tensor(actual).detach(), as_tensor(expected).detach()
    _check(one.shape == other.shape, f"shapes {list(one.shape)}, {list(other.shape)}", msg)
    if checks[0]:
        _check(one.device == other.device, f"devices {one.device}, {other.device}", msg)
    if checks[1]:
        _check(one.dtype is other.dtype, f"dtypes {one.dtype}, {other.dtype}", msg)
    if checks[2]:
        same = one.stride() == other.stride()
        _check(same, f"strides {one.stride()}, {other.stride()}", msg)
    defaults = [_TOLERANCES.get(x.dtype.name, (0.0, 0.0)) for x in (one, other)]
    rtol = max(pair[0] for pair in defaults) if rtol is None else rtol
    atol = max(pair[1] for pair in defaults) if atol is None else atol
    got, want = (x.cpu().double().numpy() for x in (one, other))
    close = np.isclose(got, want, rtol=rtol, atol=atol, equal_nan=equal_nan)
    if not close.all():
        with np.errstate(all="ignore"):
            difference = np.nanmax(np.abs(got - want))
        text = (
            f"Tensor-likes are not close!\n\nMismatched elements: {(~close).sum()} / {close.size}"
            f"\nGreatest absolute difference: {difference}"
        )
        _check(False, text, msg)


def _check(holds: bool, text: str, msg: Any) -> None:
    if not holds:
        raise AssertionError(msg(text) if callable(msg) else msg or text)


def assert_allclose(
    actual: Any,
    expected: Any,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = True,
    msg: str = "",
) -> None:
    """`assert_close` that ignores dtypes and devices; raises AssertionError.

    >>> metaop.testing.assert_allclose(metaop.ones(2), [1.0, 1.000001])
    """
    assert_close(
        actual,
        expected,
        rtol=rtol,
        atol=atol,
        equal_nan=equal_nan,
        check_device=False,
        check_dtype=False,
        msg=msg or None,
    )


def make_tensor(
    *shape: Any,
    dtype: DType,
    device: DeviceLike = None,
    low: Real | None = None,
    high: Real | None = None,
    requires_grad: bool = False,
    noncontiguous: bool = False,
    exclude_zero: bool = False,
    memory_format: Any = None,
) -> Tensor:
    """Uniform random numbers between `low` and `high` (-9 … 9 by default, 0 and 1 for bools).

    `shape` is its size. With `noncontiguous`, it is every second element of a larger tensor.

    >>> metaop.testing.make_tensor(2, 3, dtype=metaop.float32).shape
    metaop.Size([2, 3])
    """
    sizes = tuple(shape[0]) if shape and not isinstance(shape[0], int) else shape
    low = (0 if dtype.kind == "bool" or not dtype.signed else -9) if low is None else low
    if high is None:
        high = 2 if dtype.kind == "bool" else 9 if dtype.kind == "float" else 10
    values = host_random(None).uniform(low, high, sizes)
    if dtype.kind != "float":
        values = np.floor(values)
    if exclude_zero:
        values = np.where(values == 0, 1, values)
    if noncontiguous and values.size > 1:
        spread = tensor(np.repeat(values, 2, axis=-1), dtype=dtype, device=device)[..., ::2]
        return spread.requires_grad_() if requires_grad else spread
    return tensor(values, dtype=dtype, device=device, requires_grad=requires_grad)
