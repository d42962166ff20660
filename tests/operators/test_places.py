"""What chooses by a mask or by equality, against PyTorch: all types, empties, NaN, captured."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import metaop
from metaop.errors import ArgumentError, ShapeError
from tests.helpers import assert_same, to_torch
from tests.operators.test_ordering import TYPES, pair, values_of

torch = pytest.importorskip("torch")

SHAPES = [(), (0,), (1,), (200,), (3, 0), (3, 4, 5)]


def assert_all_same(found: Any, expected: Any, what: str) -> None:
    pairs = (found, expected) if isinstance(expected, (tuple, list)) else ([found], [expected])
    assert len(pairs[0]) == len(pairs[1])
    for ours, theirs in zip(*pairs):
        assert_same(ours, theirs, what)


def compare(functions: Any, *arrays: np.ndarray) -> None:
    ours, theirs = functions
    arrays = tuple(np.asarray(array) for array in arrays)
    found = ours(*map(metaop.from_numpy, arrays))
    assert_all_same(found, theirs(*map(to_torch, arrays)), str([a.shape for a in arrays]))


@pytest.mark.parametrize("name", TYPES)
def test_places_of_what_is_not_zero(name: str) -> None:
    for shape in SHAPES:
        x = values_of(name, shape)
        compare(pair("nonzero"), x)
        compare(pair("nonzero", as_tuple=True), x)
        compare(pair("argwhere"), x)
        compare(pair("nonzero"), np.zeros_like(x))
        if shape:  # PyTorch's nonzero_static fails on a number
            compare(pair("nonzero_static", size=9, fill_value=4), x)
            compare(pair("nonzero_static", size=2), x)


@pytest.mark.parametrize("name", ["bool", "int64", "bfloat16", "float64"])
def test_masks(name: str) -> None:
    random = np.random.default_rng(0)
    for shape in SHAPES:
        x, mask = values_of(name, shape), np.asarray(random.random(shape) < 0.4)
        for held in (mask, ~mask, mask & False):
            compare(pair("masked_select"), x, held)
            compare((lambda x, m: x[m],) * 2, x, held)
            compare(pair("masked_scatter"), x, held, np.resize(x[::-1] if shape else x, shape))
        if len(shape) == 3:
            compare((lambda x, m: x[m],) * 2, x, mask[:, :, 0])
            compare((lambda x, m: x[:, m],) * 2, x, mask[0])
            compare((lambda x, m: x[..., m],) * 2, x, mask[0, 0])
            compare(pair("masked_select"), x, mask[:1, :, :1])


def test_gradients_of_what_a_mask_selects() -> None:
    random = np.random.default_rng(1)
    x, mask = random.standard_normal((5, 6)), random.random((5, 6)) < 0.5
    found = []
    for lib in (metaop, torch):
        t = lib.tensor(x, requires_grad=True)
        held = lib.tensor(mask)
        whole = (t[held] * t.masked_select(held)).sum() + (t[held[:, 0]] ** 2).sum()
        scattered = (t.masked_scatter(held, t.exp()) ** 3).sum()
        (whole + scattered).backward()
        found.append(t.grad)
    assert_same(*found, "gradient")


def test_a_source_that_is_too_short_is_refused() -> None:
    x, mask = metaop.zeros(4), metaop.tensor([True, False, True, True])
    with pytest.raises(ShapeError, match="masked_scatter: expected self and source"):
        x.masked_scatter(mask, metaop.ones(2)).numpy()
    with pytest.raises(ShapeError, match="masked_scatter"):
        x.masked_scatter(mask, metaop.ones(0)).numpy()
    assert x.masked_scatter(mask & False, metaop.ones(0)).tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("name", TYPES)
def test_distinct_elements(name: str) -> None:
    for shape in SHAPES:
        x = values_of(name, shape)
        if name == "int64":
            x = x % 5 - 2
        compare(pair("unique"), x)
        # PyTorch numbers NaN in any order.
        compare(pair("unique", return_inverse=True), np.where(x != x, np.zeros_like(x), x))
        compare(pair("unique", return_counts=True), x)
        for array in (x, np.sort(x, axis=None)):
            # With one element and one flag PyTorch's results are empty.
            compare(pair("unique_consecutive"), array)
            compare(pair("unique_consecutive", True, True), array)


@pytest.mark.parametrize("name", ["bool", "int16", "int64", "float32"])
@pytest.mark.parametrize("width", [1, 2, 3, 8])
def test_distinct_slices(name: str, width: int) -> None:
    random = np.random.default_rng(width)
    for count in (1, 5, 90):
        x = random.integers(-1 if name != "bool" else 0, 2, (count, width)).astype(name)
        for dim, matrix in ((0, x), (1, x.T.copy()), (-1, x.T.copy().reshape(1, width, count))):
            options = dict(return_inverse=True, return_counts=True, dim=dim)
            compare(pair("unique", **options), matrix)
            compare(pair("unique_consecutive", **options), matrix)


@pytest.mark.parametrize("name", TYPES)
def test_the_most_frequent_elements(name: str) -> None:
    """Their last places; PyTorch's are those of any such element in long rows."""
    for shape, dim in (((7,), 0), ((3, 70), 1), ((3, 70), 0), ((1,), -1), ((2, 3, 9), 1)):
        x = values_of(name, shape)
        x = np.where(x != x, np.zeros_like(x), x)  # NaN have no order in PyTorch's
        values, places = metaop.mode(metaop.from_numpy(x), dim)
        assert_same(values, torch.mode(to_torch(x), dim).values, name)
        kept = np.expand_dims(values.numpy(), dim)
        backwards = np.flip(x == kept, dim).argmax(dim)
        np.testing.assert_array_equal(places.numpy(), shape[dim] - 1 - backwards)


def test_membership() -> None:
    random = np.random.default_rng(2)
    for name in ("int64", "int8", "float32", "float64"):
        for count in (0, 1, 9, 500):
            x, others = values_of(name, (3, 70)), random.choice(values_of(name, (300,)), count)
            compare(pair("isin"), x, others)
            compare(pair("isin", invert=True), x, others)
    assert metaop.isin(2, metaop.tensor([1, 2])).item()
    assert metaop.isin(metaop.tensor([1, 2]), 2).tolist() == [False, True]


def test_counts() -> None:
    random = np.random.default_rng(3)
    for dtype in (np.float32, np.float64):
        x = (random.standard_normal(500) * 3).astype(dtype)
        for shape in ((500,), (5, 100), (1,), (0,)):
            part = np.resize(x, shape)
            compare(pair("histc", 7), part)
            compare(pair("histc", 70, -2, 1.5), part)
            compare(pair("histc", 3, 1, 1), part)
        special = np.concatenate([x, [np.nan, np.inf, -np.inf]]).astype(dtype)
        compare(pair("histc", 7, -3, 3), special)
        compare(pair("histc", 4), np.full(9, 2.5, dtype))
    for wrong in (np.nan, np.inf):
        with pytest.raises(ArgumentError, match="range of .* is not finite"):
            metaop.histc(metaop.tensor([1.0, wrong]), 4).numpy()
    with pytest.raises(ArgumentError, match="is not finite"):
        metaop.histc(metaop.ones(3), 4, 2, 1)
    with pytest.raises(ArgumentError, match="bins must be > 0"):
        metaop.histc(metaop.ones(3), 0)
    for dtype in (np.uint8, np.int32, np.int64):
        numbers = random.integers(0, 50, 300).astype(dtype)
        compare(pair("bincount"), numbers)
        compare(pair("bincount", minlength=70), numbers)
        compare(pair("bincount"), numbers, random.standard_normal(300))
        compare(pair("bincount", minlength=3), numbers[:0])
    with pytest.raises(ShapeError, match="non-negative"):
        metaop.bincount(metaop.tensor([1, -1]))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_histograms(dtype: str) -> None:
    random = np.random.default_rng(6)
    edges, weight = np.array([-1, 0, 0.5, 2], dtype), random.random(300).astype(dtype)
    # Numbers that stand on edges, and others.
    for x in (random.integers(-8, 9, 300) / 4, random.standard_normal(300)):
        x = x.astype(dtype)
        points = x.reshape(150, 2)
        compare((lambda t, w: [*metaop.histogram(t, 5, weight=w)],
                 lambda t, w: [*torch.histogram(t, 5, weight=w)]), x, weight)  # fmt: skip
        for options in (dict(bins=70, range=(-1.0, 1.5)), dict(bins=4, density=True)):
            compare(pair("histogram", **options), x)
        compare(pair("histogram"), x, edges)
        for bins, options in (
            ([2, 3], {}),
            (3, dict(density=True)),
            (2, dict(range=[-1, 1, 0, 2.0])),
        ):
            compare(tuple(
                lambda t, lib=lib, bins=bins, options=options: [
                    (found := lib.histogramdd(t, bins, **options)).hist, *found.bin_edges
                ]
                for lib in (metaop, torch)
            ), points)  # fmt: skip
    compare(pair("histogram", 3), np.full(3, 2, dtype))
    compare(pair("histogram", 3), np.zeros(0, dtype))
    with pytest.raises(ArgumentError, match="not finite"):
        metaop.histogram(metaop.tensor([1.0, np.nan]), 4).hist.numpy()
    with pytest.raises(ShapeError, match="of 3 and 2 axes for 2"):
        metaop.histogramdd(metaop.ones(4, 2), [2, 2, 2])


def test_nothing_of_a_known_size_is_read() -> None:
    @metaop.jit
    def chosen(x: metaop.Tensor, mask: metaop.Tensor) -> tuple[metaop.Tensor, ...]:
        return (
            metaop.histc(x, 5),
            *metaop.histogram(x, 5),
            metaop.nonzero_static(mask, size=4),
            x.masked_scatter(mask, x),
            metaop.mode(x.round()).values,
            metaop.isin(x.round(), x[:3].round()),
        )

    random = np.random.default_rng(4)
    for _ in range(4):
        x, mask = random.standard_normal(90).astype("f"), random.random(90) < 0.1
        t, held = torch.from_numpy(x), torch.from_numpy(mask)
        expected = (
            torch.histc(t, 5),
            *torch.histogram(t, 5),
            torch.nonzero_static(held, size=4),
            t.masked_scatter(held, t),
            torch.mode(t.round()).values,
            torch.isin(t.round(), t[:3].round()),
        )
        assert_all_same(chosen(*map(metaop.from_numpy, (x, mask))), expected, "captured")


def test_new_counts_compile_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(5)

    def work(count: int) -> None:
        mask = np.zeros(1000, bool)
        mask[random.permutation(1000)[:count]] = True
        held = metaop.from_numpy(mask)
        x = metaop.from_numpy(random.integers(0, count, 1000))
        assert len(held.nonzero()) == count
        assert metaop.arange(1000)[held].shape == (count,)
        assert x.unique(return_counts=True)[1].sum().item() == 1000

    for count in (10, 20, 30):
        work(count)
    made: list[Any] = []
    schedule = metaop.compiler.schedule
    monkeypatch.setattr(
        metaop.compiler, "schedule", lambda *given: made.append(given) or schedule(*given)
    )
    for count in (33, 47, 512):
        work(count)
    assert not made


def test_a_device_is_named_in_every_way() -> None:
    cpu = metaop.device("cpu")
    assert metaop.device(cpu) is cpu and metaop.device(device=cpu) is cpu
    assert metaop.device(device="cpu") is cpu and metaop.device(type="cpu") is cpu
    gpu = metaop.device("cuda", 1)
    assert metaop.device(1) is gpu and metaop.device("cuda:1") is gpu and metaop.device(gpu) is gpu
    for words in ((), (None,), (1.5,), (cpu, 0)):
        with pytest.raises(TypeError, match="a device is named"):
            metaop.device(*words)
