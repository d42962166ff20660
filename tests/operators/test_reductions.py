"""Reductions, scans, ordering and counting against PyTorch, with gradients of two orders."""

from __future__ import annotations

import math

import numpy as np
import pytest

import metaop
from tests.helpers import Versus, check, check_derivatives

torch = pytest.importorskip("torch")
random = np.random.default_rng(1)

SHAPES = [(), (5,), (3, 4), (2, 3, 4)]


def pair(name: str, **options: object) -> tuple:
    return (
        lambda *x: getattr(metaop, name)(*x, **options),
        lambda *x: getattr(torch, name)(*x, **options),
    )


def normal(shape: tuple[int, ...], dtype: str = "float64") -> np.ndarray:
    return np.asarray(random.standard_normal(shape)).astype(dtype)


@pytest.mark.parametrize("name", ["sum", "mean", "var", "std", "nansum", "nanmean", "amax", "amin"])
@pytest.mark.parametrize("shape", SHAPES[1:])
def test_over_dimensions(name: str, shape: tuple[int, ...]) -> None:
    for dtype in ("float64", "float32"):
        x = normal(shape, dtype)
        check(name, x)
        for dim in (0, -1, tuple(range(len(shape))), (0, -1) if len(shape) > 1 else (0,)):
            check(pair(name, dim=dim), x)
            check(pair(name, dim=dim, keepdim=True), x)


@pytest.mark.parametrize("name", ["sum", "mean", "prod", "max", "min", "amax", "logsumexp", "all"])
def test_numbers(name: str) -> None:
    options = {"dim": 0} if name == "logsumexp" else {}
    check(pair(name, **options), normal(()), gradient=name != "all")
    check(pair(name, dim=-1), normal(()), gradient=name != "all")


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int32", "int64"])
@pytest.mark.parametrize("name", ["sum", "prod", "max", "min", "amax", "all", "any"])
def test_integers(name: str, dtype: str) -> None:
    x = random.integers(0, 3, (3, 4)).astype(dtype)
    check(name, x)
    check(pair(name, dim=1), x)
    check(pair(name, dim=0, keepdim=True), x)


@pytest.mark.parametrize("name", ["sum", "mean", "amax", "var", "logsumexp", "prod"])
def test_half(name: str) -> None:
    x = normal((4, 8), "float16")
    check(pair(name, dim=1), x, tolerance=3e-3)


def test_half_accumulates_in_single() -> None:
    x = np.full(4096, 1.0, np.float16)
    assert metaop.tensor(x).sum().item() == 4096
    assert metaop.tensor(x).bfloat16().mean().item() == 1


def test_dtype() -> None:
    x = normal((3, 4), "float32")
    check(pair("sum", dim=1), x)
    for name in ("sum", "prod"):
        for dtype in ("float64", "int64"):
            options = {"dtype": Versus((getattr(metaop, dtype), getattr(torch, dtype)))}
            check(name, x, gradient=dtype == "float64", **options)


@pytest.mark.parametrize("correction", [0, 1, 2, 0.5, 5, 7])
def test_correction(correction: float) -> None:
    x = normal((3, 5))
    with pytest.warns(UserWarning) if correction >= 5 else _nothing():
        check(pair("var", dim=1, correction=correction), x, gradient=correction < 5)
    if correction < 5:
        for name in ("std", "var_mean", "std_mean"):
            check(pair(name, dim=1, correction=correction), x)


def _nothing():
    import contextlib

    return contextlib.nullcontext()


def test_unbiased() -> None:
    x = normal((3, 5))
    check("var", x, 1, False)
    check("std", x, 0, True, True)
    check("var", x, False)


def test_variance_far_from_zero() -> None:
    x = (1e4 + normal((1000,))).astype("float32")
    expected = np.var(x.astype("float64"), ddof=1)
    np.testing.assert_allclose(metaop.tensor(x).var().item(), expected, rtol=1e-5)


@pytest.mark.parametrize("name", ["max", "min"])
def test_extremes(name: str) -> None:
    x = normal((3, 4, 2))
    check(name, x)
    for dim in (0, 1, -1):
        check(pair(name, dim=dim), x)
        check(pair(name, dim=dim, keepdim=True), x)
    check(name, x, normal((4, 2)))
    result = getattr(metaop.tensor(x), name)(dim=1)
    assert result.values.shape == result.indices.shape == (3, 2)


@pytest.mark.parametrize("name", ["max", "min", "amax", "amin"])
def test_ties(name: str) -> None:
    x = np.array([[1.0, 3.0, 3.0, 1.0], [2.0, 2.0, 2.0, 2.0]])
    check(name, x)
    check(pair(name, dim=1), x)
    check(pair(name, dim=0), x)


@pytest.mark.parametrize("name", ["max", "min", "argmax", "argmin", "amax", "sum", "logsumexp"])
def test_not_a_number(name: str) -> None:
    x = np.array([[1.0, math.nan, 3.0, math.nan], [2.0, 1.0, -math.inf, math.inf]])
    check(pair(name, dim=1), x, gradient=False)
    if name != "logsumexp":
        check(name, x, gradient=False)


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_index_of_extreme(name: str) -> None:
    x = np.array([[1.0, 3.0, 3.0, 1.0], [2.0, 2.0, 2.0, 2.0]])
    check(name, x)
    check(pair(name, dim=1), x)
    check(pair(name, dim=0, keepdim=True), x)
    check(pair(name, keepdim=True), x)


def test_aminmax() -> None:
    check(pair("aminmax", dim=1), normal((3, 4)))
    check("aminmax", normal((3, 4)))


@pytest.mark.parametrize(
    "x", [[2.0, 3.0, 4.0], [2.0, 0.0, 4.0], [0.0, 3.0, 0.0], [0.0, 0.0, 0.0], [-1.5, 2.0, 0.5]]
)
def test_product_with_zeros(x: list[float]) -> None:
    values = np.array(x)
    check("prod", values)
    check(pair("prod", dim=0, keepdim=True), values)
    check_derivatives(metaop.prod, values)
    check_derivatives(lambda t: t.prod(1), np.stack([values, values + 1]))


@pytest.mark.parametrize("name", ["sum", "prod", "all", "any", "count_nonzero", "nansum"])
def test_empty(name: str) -> None:
    x = np.zeros((2, 0, 3))
    check(name, x, gradient=False)
    check(pair(name, dim=1), x, gradient=False)
    check(pair(name, dim=0), x, gradient=False)


def test_empty_errors() -> None:
    x = metaop.zeros(2, 0)
    for name in ("max", "amax", "argmin"):
        with pytest.raises((IndexError, RuntimeError)):
            getattr(x, name)(1)
    for name in ("max", "argmax"):
        with pytest.raises((IndexError, RuntimeError)):
            getattr(x, name)()
    assert math.isnan(x.mean().item())


def test_errors() -> None:
    with pytest.raises(RuntimeError, match="dtype"):
        metaop.ones(2).long().mean()
    with pytest.raises(IndexError):
        metaop.ones(2).sum(3)
    with pytest.raises(RuntimeError, match="multiple times"):
        metaop.ones(2, 2).sum((0, 0))


@pytest.mark.parametrize("order", [0, 1, 2, 3, 0.5, -1, math.inf, -math.inf])
def test_norms(order: float) -> None:
    x = normal((3, 4))
    check("norm", x, order)
    check(pair("norm", p=order, dim=1), x)
    check(pair("norm", p=order, dim=(0, 1), keepdim=True), x)
    check_derivatives(lambda t: t.norm(order, 1), x, tolerance=1e-4)


def test_norm_at_zero() -> None:
    for order in (1, 2, 3, math.inf):
        check("norm", np.zeros(3), order)
    check("std", np.ones(3))


def test_logsumexp() -> None:
    x = normal((3, 4))
    check(pair("logsumexp", dim=1), x)
    check(pair("logsumexp", dim=(0, 1), keepdim=True), x + 1000)
    check(pair("logsumexp", dim=0), np.full((2, 3), -math.inf), gradient=False)
    check_derivatives(lambda t: metaop.logsumexp(t, 1), x)


@pytest.mark.parametrize("name", ["sum", "mean", "var", "std", "amax", "max", "min", "norm"])
def test_derivatives(name: str) -> None:
    check_derivatives(lambda t: getattr(t, name)(), normal((3, 4)), tolerance=1e-5)
    if name not in ("max", "min", "norm"):
        check_derivatives(lambda t: getattr(t, name)(1), normal((3, 4)), tolerance=1e-5)


def test_derivatives_of_moments() -> None:
    check_derivatives(lambda t: metaop.var_mean(t, 1), normal((3, 4)))
    check_derivatives(lambda t: metaop.std_mean(t, 0), normal((3, 4)))


@pytest.mark.parametrize("name", ["cumsum", "cumprod", "logcumsumexp", "cummax", "cummin"])
def test_scans(name: str) -> None:
    for shape, dim in [((7,), 0), ((3, 5), 1), ((3, 5), 0), ((2, 8, 3), 1), ((2, 0), 1)]:
        check(pair(name, dim=dim), normal(shape))
        check(pair(name, dim=dim), normal(shape, "float32"))
    check_derivatives(lambda t: getattr(metaop, name)(t, 1), normal((2, 5)), tolerance=1e-5)


def test_scans_of_special_values() -> None:
    check("cumprod", np.array([2.0, 0.0, 3.0, 0.0, 5.0]), 0)
    check_derivatives(lambda t: t.cumprod(0), np.array([2.0, 0.0, 3.0, 0.5]))
    ties = np.array([1.0, 3.0, 3.0, math.nan, 2.0, math.nan])
    for name in ("cummax", "cummin"):
        check(name, ties, 0, gradient=False)
        check(name, np.array([3, 1, 1, 5, 5]), 0)
        check(name, np.array([False, True, True, False]), 0)
        for value in (math.inf, -math.inf):
            check(name, np.array([value, value, 1.0, -value, math.nan, value]), 0, gradient=False)
    check("cumsum", np.array([True, True, False]), 0)
    check("cumsum", np.array([1, 2, 3], np.uint8), 0)
    assert metaop.ones(3000).half().cumsum(0)[-1].item() == 3000


def test_differences() -> None:
    check("diff", normal((3, 5)))
    check(pair("diff", n=2, dim=0), normal((4, 3)))
    check_derivatives(metaop.diff, normal((5,)))
    check("trapezoid", normal((3, 5)))
    check("cumulative_trapezoid", normal((3, 5)), dx=0.5)
    check("trapezoid", normal((3, 5)), np.array([0.0, 0.5, 2.0, 3.0, 4.5]))


@pytest.mark.parametrize("descending", [False, True])
def test_sort(descending: bool) -> None:
    x = np.array([[3.0, 1.0, 2.0, 1.0, math.nan], [0.5, -1.0, 7.0, 0.5, 0.5]])
    for dim in (0, 1):
        check(pair("sort", dim=dim, descending=descending, stable=True), x)
        check(pair("argsort", dim=dim, descending=descending, stable=True), x)
    check(pair("sort", descending=descending, stable=True), np.array([3, 1, 2, 3]))
    check("msort", normal((4, 3)))
    check_derivatives(lambda t: t.sort(1, descending).values, normal((2, 5)))


@pytest.mark.parametrize("name", ["sort", "median", "mode", "cummax", "kthvalue", "topk"])
def test_ranks_of_numbers(name: str) -> None:
    extra = {"topk": (1,), "kthvalue": (1,), "cummax": (0,)}.get(name, ())
    check(name, np.array(2.5), *extra)


@pytest.mark.parametrize("largest", [False, True])
def test_topk(largest: bool) -> None:
    x = normal((3, 7))
    check(pair("topk", k=3, largest=largest), x)
    check(pair("topk", k=2, dim=0, largest=largest), x)
    with pytest.raises(RuntimeError):
        metaop.tensor(x).topk(8)


def test_ranks() -> None:
    x = normal((4, 7))
    check("median", x)
    check(pair("median", dim=0), x)
    check(pair("median", dim=1, keepdim=True), x)
    check(pair("kthvalue", k=3, dim=1), x)
    missing = np.array([[1.0, math.nan, 3.0, 2.0], [4.0, 5.0, 6.0, 7.0]])
    for name in ("median", "nanmedian"):
        check(name, missing, gradient=False)
        check(pair(name, dim=1), missing, gradient=False)
    check("mode", np.array([[1, 2, 2, 3, 3], [5, 5, 1, 1, 0]]))


@pytest.mark.parametrize("interpolation", ["linear", "lower", "higher", "nearest", "midpoint"])
def test_quantiles(interpolation: str) -> None:
    x = normal((4, 6))
    for part in (0.0, 0.3, 0.75, 1.0):
        check(pair("quantile", q=part, interpolation=interpolation), x)
        check(pair("quantile", q=part, dim=1, interpolation=interpolation, keepdim=True), x)
    x[0, 2] = math.nan
    check(pair("quantile", q=0.5, dim=1, interpolation=interpolation), x, gradient=False)
    check(pair("nanquantile", q=0.4, dim=1, interpolation=interpolation), x, gradient=False)
    check("quantile", normal((5,)), np.array([0.1, 0.5]), gradient=False)


def test_counts() -> None:
    x = np.array([[0, 1, 2, 0], [3, 0, 0, 1]])
    check("count_nonzero", x)
    check(pair("count_nonzero", dim=1), x)
    check("bincount", x.reshape(-1))
    check("bincount", x.reshape(-1), normal((8,)), minlength=6, gradient=False)
    check(pair("histc", bins=4, min=-1, max=2), normal((20,)), gradient=False)
    check(pair("histc", bins=5), normal((20,), "float32"), gradient=False)


def test_distinct_values() -> None:
    x = np.array([[3, 1, 3], [2, 1, 3], [3, 1, 3]])
    check(pair("unique", return_inverse=True, return_counts=True), x)
    check(pair("unique", return_inverse=True, return_counts=True, dim=0), x)
    check(pair("unique_consecutive", return_inverse=True, return_counts=True), x)
    check("unique", normal((5,)), gradient=False)


def test_searches() -> None:
    edges, values = np.array([1.0, 2.0, 2.0, 5.0]), np.array([[0.0, 2.0], [3.0, 9.0]])
    for right in (False, True):
        check(pair("searchsorted", right=right), edges, values, gradient=False)
        check(pair("bucketize", right=right), values, edges, gradient=False)
    check("isin", np.array([1, 2, 3]), np.array([2, 5]))


def test_covariance() -> None:
    x = normal((3, 6))
    check("cov", x)
    check(pair("cov", correction=0), x)
    check("corrcoef", x)
    check("cov", normal((6,)))
