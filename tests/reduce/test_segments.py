"""Reductions of rows that are sorted by where they go, against NumPy and against scatters."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import metaop
from metaop import inspect
from metaop.errors import ArgumentError, DimensionError, DTypeError
from metaop.graph import segment_reduce
from tests.helpers import check_derivatives

generator = np.random.default_rng(0)
# The first, the last and others are empty; one is long.
SIZES = [0, 3, 0, 0, 1, 40, 2, 0]
REDUCERS = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}


def expected(values: np.ndarray, sizes: list[int], reducer: str) -> np.ndarray:
    ends = np.cumsum(sizes)
    parts = [values[end - size : end] for end, size in zip(ends, sizes)]
    if reducer == "mean":
        found = [part.mean(0) if len(part) else np.zeros(values.shape[1:]) for part in parts]
    else:
        function: Any = REDUCERS[reducer]
        empty = 1.0 if reducer == "prod" else 0.0
        found = [
            function.reduce(part, 0) if len(part) else np.full(values.shape[1:], empty)
            for part in parts
        ]
        if reducer == "prod":
            found = [one if size else one * 0 for one, size in zip(found, sizes)]
    return np.stack(found)


@pytest.mark.parametrize("reducer", ["sum", "mean", "prod", "max", "min"])
@pytest.mark.parametrize("columns", [(), (1,), (3,), (16,), (33,), (64,), (2, 5), (3, 1, 17)])
def test_all_widths(reducer: str, columns: tuple[int, ...]) -> None:
    values = generator.standard_normal((sum(SIZES), *columns))
    for dtype, tolerance in ((metaop.float64, 1e-12), (metaop.float32, 1e-4)):
        given = metaop.tensor(values, dtype=dtype)
        found = segment_reduce(SIZES, given, reducer)
        wanted = expected(values, SIZES, reducer)
        np.testing.assert_allclose(found.numpy(), wanted, rtol=tolerance, atol=tolerance)


def test_each_row_is_a_task_of_one_kernel() -> None:
    values = metaop.rand(sum(SIZES), 8)
    found = segment_reduce(SIZES, values * 2)
    text = inspect.kernels(found)
    assert re.findall(r"^kernel (\w+)", text, re.MULTILINE) == ["segments_add"]


@pytest.mark.parametrize("dtype", ["int64", "int32", "bfloat16", "float16", "bool"])
def test_other_types(dtype: str) -> None:
    kind = getattr(metaop, dtype)
    values = metaop.tensor(generator.integers(0, 3, (sum(SIZES), 5))).to(kind)
    found = segment_reduce(SIZES, values, "max")
    wanted = expected(values.to(metaop.float64).numpy(), SIZES, "max")
    np.testing.assert_array_equal(found.to(metaop.float64).numpy(), wanted)


@pytest.mark.parametrize("reducer", ["sum", "mean", "prod", "max"])
def test_gradients(reducer: str) -> None:
    values = generator.standard_normal((sum(SIZES), 3))
    check_derivatives(lambda x: segment_reduce(SIZES, x.sin(), reducer), values)


def test_batches_of_them() -> None:
    values: Any = metaop.tensor(generator.standard_normal((4, sum(SIZES), 3)))
    found = metaop.vmap(lambda x: segment_reduce(SIZES, x))(values)
    wanted = np.stack([expected(x, SIZES, "sum") for x in values.numpy()])
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-12, atol=1e-12)


def test_many_sizes() -> None:
    """Programs for any size: ever new numbers of rows, segments and columns."""
    for number in range(12):
        sizes = generator.integers(0, 5, number % 5 + 2).tolist() + [1]
        values = generator.standard_normal((sum(sizes), number % 3 + 1))
        x: Any = metaop.tensor(values).requires_grad_()
        found = segment_reduce(sizes, x * 3)
        (found * found).sum().backward()
        wanted = expected(values * 3, sizes, "sum")
        np.testing.assert_allclose(found.detach().numpy(), wanted, rtol=1e-12, atol=1e-12)
        slope = np.repeat(wanted, sizes, 0) * 6
        np.testing.assert_allclose(x.grad.numpy(), slope, rtol=1e-12, atol=1e-12)


def test_steps_of_a_loop() -> None:
    values = metaop.tensor(generator.standard_normal((5, sum(SIZES), 2)))
    _, found = metaop.scan(
        lambda total, x: (total + segment_reduce(SIZES, x), total),
        metaop.zeros(8, 2, dtype=metaop.float64),
        values,
    )
    parts = [expected(x, SIZES, "sum") for x in values.numpy()]
    np.testing.assert_allclose(found[-1].numpy(), sum(parts[:-1]), rtol=1e-12, atol=1e-12)


def test_a_file_keeps_what_they_compute(tmp_path: Any) -> None:
    function = lambda x: segment_reduce(SIZES, x, "mean")  # noqa: E731
    x = metaop.rand(sum(SIZES), 4)
    metaop.export(function, x, tmp_path / "m.mo")
    assert metaop.allclose(metaop.load_program(tmp_path / "m.mo")(x), function(x))


@pytest.mark.parametrize("reduce", ["sum", "mean", "prod", "max", "min"])
@pytest.mark.parametrize("initial", [None, 0.5])
def test_segment_reduce_is_pytorchs(reduce: str, initial: float | None) -> None:
    torch = pytest.importorskip("torch")
    places = [
        ((13, 2), 0, "lengths", [0, 3, 0, 9, 1, 0]),
        ((7,), 0, "offsets", [0, 2, 2, 5]),  # the last elements belong to no segment
        ((2, 5, 3), 1, "lengths", [[1, 4], [5, 0]]),
        ((2, 5), -1, "offsets", [[0, 2, 5], [1, 1, 4]]),
    ]
    for shape, axis, name, segments in places:
        values = generator.standard_normal(shape)
        found = []
        for framework in (torch, metaop):
            data = framework.tensor(values, requires_grad=True)
            options: Any = {name: framework.tensor(segments), "axis": axis, "initial": initial}
            result = framework.segment_reduce(data, reduce, **options)
            framework.where(framework.isfinite(result), result.sin(), 0.0).sum().backward()
            found.append((result.detach().numpy(), data.grad.numpy()))
        for wanted, ours in zip(*found):
            np.testing.assert_allclose(ours, wanted, rtol=1e-12, atol=1e-12)


def test_segment_reduce_divides_gradients_among_equal_elements() -> None:
    # PyTorch 2.13 does so only where the gradient is positive.
    data = metaop.tensor([3.0, 3.0, 1.0], requires_grad=True)
    found = metaop.segment_reduce(data, "max", lengths=metaop.tensor([3]), initial=3.0)
    (-found).sum().backward()
    assert data.grad is not None and data.grad.tolist() == [-0.5, -0.5, 0.0]


def test_segment_reduce_checks_its_segments() -> None:
    data, lengths = metaop.arange(4.0), metaop.tensor([1, 2])
    with pytest.raises(ArgumentError, match="add up to the extent 4 of axis 0"):
        metaop.segment_reduce(data, "sum", lengths=lengths)
    assert metaop.segment_reduce(data, "sum", lengths=lengths, unsafe=True).tolist() == [0.0, 3.0]
    with pytest.raises(ArgumentError, match="Either lengths or offsets"):
        metaop.segment_reduce(data, "sum")
    with pytest.raises(DimensionError, match="last dimension of lengths"):
        metaop.segment_reduce(data.reshape(2, 2), "sum", lengths=lengths, axis=1)
    with pytest.raises(DTypeError, match="int64"):
        metaop.segment_reduce(data.long(), "sum", lengths=metaop.tensor([4]))
