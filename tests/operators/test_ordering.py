"""Sorting and what is made of it, against PyTorch: all types, in captured functions, any sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import metaop
from metaop.errors import ArgumentError, ShapeError
from metaop.unified_graph.dtype import bfloat16
from tests.helpers import assert_same, check, check_derivatives, to_torch

torch = pytest.importorskip("torch")

TYPES = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32")
TYPES += ("float64",)
# Rows of few elements are compared with each other, those of others are counted.
SHAPES = [(3, 7), (3, 70)]


def values_of(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Numbers of a type, of which many are equal, with the extremes and NaN of it."""
    random = np.random.default_rng([len(name), *shape])
    if name == "bool":
        return random.integers(0, 2, shape).astype(bool)
    if "float" in name:
        dtype = bfloat16.numpy if name == "bfloat16" else np.dtype(name)
        special = [0.0, -0.0, np.nan, np.inf, -np.inf, 1e-7, -1e-7]
        whole = random.standard_normal(shape) * 2
    else:
        dtype = np.dtype(name)
        special = [np.iinfo(dtype).min, np.iinfo(dtype).max, 0]
        whole = random.integers(0, 100 if dtype.itemsize == 1 else 1 << 14, shape)
        if dtype.itemsize == 8:
            whole = (whole << 40) | random.integers(-3, 3, shape)
    places = random.random(shape) < 0.3
    return np.where(places, random.choice(np.array(special), shape), whole).astype(dtype)


def pair(name: str, *arguments: Any, **options: Any) -> tuple[Callable[..., Any], ...]:
    """A function of metaop and PyTorch's on arguments behind the tensors."""
    return tuple(
        lambda *x, side=side: getattr(side, name)(*x, *arguments, **options)
        for side in (metaop, torch)
    )


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", TYPES)
def test_sort_of_every_type(name: str, shape: tuple[int, ...]) -> None:
    x = values_of(name, shape)
    for dim in (0, 1):
        for descending in (False, True):
            options = dict(dim=dim, descending=descending, stable=True)
            check(pair("sort", **options), x, gradient=False)
            check(pair("argsort", **options), x, gradient=False)


@pytest.mark.parametrize("extent", [0, 1, 2, 64, 65, 1000])
def test_sort_of_any_length(extent: int) -> None:
    x = np.random.default_rng(extent).standard_normal((2, extent, 3)).astype("f")
    check(pair("sort", dim=1), x)
    check(pair("msort"), x)
    check("msort", x.reshape(-1))


@pytest.mark.parametrize("extent", [5, 80])
def test_derivatives(extent: int) -> None:
    x = np.random.default_rng(extent).standard_normal((2, extent))
    check_derivatives(lambda t: t.sort(1, True).values, x[:, :6])
    check((lambda t: t.sort(1).values.cumsum(1),) * 2, x)


@pytest.mark.parametrize("length", [7, 600])
@pytest.mark.parametrize("name", ["bool", "int8", "bfloat16", "float32", "float64"])
def test_chosen_elements_of_every_type(name: str, length: int) -> None:
    """The elements that stand at places of the order; of equal ones PyTorch takes any."""
    x = values_of(name, (2, length))
    ours, theirs = metaop.tensor(x), to_torch(x)
    by_value = theirs.sort(1).values

    def verify(found: Any, expected: Any) -> None:
        assert_same(found.values, expected, name)
        assert_same(ours.gather(1, found.indices), expected, name)

    # By rounds over blocks or over all, by the order of blocks, and by that of all.
    for count in (2, 5) if length == 7 else (2, 5, 20, 300):
        for largest in (False, True):
            expected = theirs.sort(dim=1, descending=largest, stable=True)
            found = ours.topk(count, 1, largest)
            assert_same(found.values, expected.values[:, :count], name)
            assert_same(found.indices, expected.indices[:, :count], name)
    for rank in (1, length // 3, length):
        verify(ours.kthvalue(rank, 1, keepdim=True), by_value[:, rank - 1 : rank])
    if name != "bool":
        verify(ours.median(1, keepdim=True), theirs.median(1, keepdim=True).values)
        verify(ours.nanmedian(1, keepdim=True), theirs.nanmedian(1, keepdim=True).values)
    if name == "float64":
        check("median", x)
        check("nanmedian", x)


INTERPOLATIONS = ("linear", "lower", "higher", "nearest", "midpoint")


# In long rows the neighbours are found by other means, for all interpolations the same.
@pytest.mark.parametrize(
    "interpolation, length", [*((i, 9) for i in INTERPOLATIONS), ("linear", 90)]
)
def test_quantiles(interpolation: str, length: int) -> None:
    x = np.random.default_rng(length).standard_normal((length, 3))
    x[4, 1] = np.nan
    for name in ("quantile", "nanquantile"):
        for part in (0.0, 0.31, 1.0):
            check(pair(name, part, 0, interpolation=interpolation), x)
        check(pair(name, dim=0, keepdim=True), x, np.array([0.5, 0.25]))


def test_parts_of_a_tensor_are_checked_when_they_are_computed() -> None:
    x = metaop.arange(5.0)
    with pytest.raises(ArgumentError, match="must be in the range"):
        x.quantile(metaop.tensor([0.5, 1.5])).numpy()
    with pytest.raises(ArgumentError, match="must be in the range"):
        x.quantile(-0.1)


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("length", [0, 1, 5, 64, 65, 1000])
def test_places_of_values(length: int, right: bool) -> None:
    """Between, before, behind and equal to sorted values, in one row for all and in several."""
    random = np.random.default_rng(length)
    for dtype in ("float32", "int64", "float16"):
        edges = np.sort(random.integers(-40, 40, (2, length)).astype(dtype), 1)
        values = random.integers(-45, 45, (2, 30)).astype(dtype)
        if dtype != "int64":
            values[0, :3] = np.nan, np.inf, -np.inf
        search, bucketize = pair("searchsorted", right=right), pair("bucketize", right=right)
        check(search, edges, values, gradient=False)
        check(search, edges[0].copy(), values, gradient=False)
        check(bucketize, values.reshape(2, 5, 6), edges[1].copy(), gradient=False)
    shuffled = random.permutation(length)
    row, order = edges[0].astype("f")[shuffled], np.argsort(edges[0][shuffled], kind="stable")
    ordered = tuple(
        lambda e, v, s, T=T: T.searchsorted(e, v, sorter=s, out_int32=True) for T in (metaop, torch)
    )
    check(ordered, row, values[1].astype("f"), order, gradient=False)
    assert metaop.searchsorted(metaop.tensor([0.1, 0.2], dtype=metaop.float64), 0.1).item() == 0


def test_rows_that_do_not_belong_together_are_refused() -> None:
    with pytest.raises(ShapeError, match="first N-1 dimensions"):
        metaop.searchsorted(metaop.ones(3, 4), metaop.ones(2, 4))


CAPTURED: dict[str, Callable[..., Any]] = {
    "sort": lambda T, x: x.sort(1, descending=True),
    "argsort": lambda T, x: (x.argsort(0), x.mul(2).argsort(1)),
    "msort": lambda T, x: (x.msort(),),
    "topk": lambda T, x: (*x.topk(3, 1), *x.topk(2, 0, largest=False)),
    "kthvalue": lambda T, x: x.kthvalue(4, 1),
    "median": lambda T, x: (*x.median(1), *x.nanmedian(0), x.median().view(1)),
    "searchsorted": lambda T, x: (
        T.searchsorted(x.sort(1).values, x[:, :4].contiguous()),
        T.bucketize(x, x[0].sort().values, right=True),
    ),
    "quantile": lambda T, x: (x.quantile(0.3, 1), x.quantile(x[0, :2].sigmoid(), 0)),
}


@pytest.mark.parametrize("extent", [9, 90])
@pytest.mark.parametrize("name", CAPTURED)
def test_captured_with_gradients(name: str, extent: int) -> None:
    """One program for forward and backward, which a captured function runs on other values."""

    def step(T: Any, x: Any) -> tuple[Any, ...]:
        found = tuple(CAPTURED[name](T, x))
        floating = [one for one in found if one.is_floating_point()]
        weight = T.arange(1.0, extent + 1)
        losses = [(one * weight[: one.shape[-1]]).sum() for one in floating]
        gradients = T.autograd.grad(sum(losses), [x]) if losses else ()
        return (*found, *gradients)

    captured = metaop.jit(lambda x: step(metaop, x))
    random = np.random.default_rng(4)
    for _ in range(4):
        array = random.standard_normal((6, extent)).astype("f")
        actual = captured(metaop.tensor(array).requires_grad_())
        expected = step(torch, to_torch(array).requires_grad_())
        for a, e in zip(actual, expected, strict=True):
            np.testing.assert_allclose(a.detach().numpy(), e.detach().numpy(), rtol=1e-6)


def test_mapped_over_a_batch() -> None:
    array = np.random.default_rng(0).standard_normal((4, 80, 3)).astype("f")
    actual = metaop.func.vmap(lambda x: x.sort(0).indices)(metaop.tensor(array))
    np.testing.assert_array_equal(actual.numpy(), to_torch(array).sort(1).indices.numpy())


@pytest.mark.parametrize("length", [5, 200])
@pytest.mark.parametrize("right", [False, True])
def test_nan_lies_behind_all_numbers(length: int, right: bool) -> None:
    edges = np.sort(np.random.default_rng(0).standard_normal(length)).astype(np.float32)
    edges[-2:] = np.nan
    values = np.concatenate([edges, [0.1, np.inf, -np.inf]]).astype(np.float32)
    found = metaop.searchsorted(metaop.tensor(edges), metaop.tensor(values), right=right).numpy()
    expected = np.searchsorted(edges, values, "right" if right else "left")
    expected[np.isnan(values)] = length  # as in PyTorch
    np.testing.assert_array_equal(found, expected)


def test_counts_that_may_not_fit_are_refused() -> None:
    with pytest.raises(metaop.errors.DTypeError, match="histc: not for metaop.int8"):
        metaop.histc(metaop.zeros(700, dtype=metaop.int8))
