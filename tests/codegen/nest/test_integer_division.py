"""Quotients and remainders of integers by literals, in vectors: what code generators simplify."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import metaop
from metaop.codegen.llvm.emission.code import Code
from metaop.codegen.llvm.emission.scalars import ScalarArithmetic
from metaop.codegen.llvm.target import host_target
from metaop.codegen.nest.ir import (
    Apply,
    IndexValue,
    LoopIndex,
    LoopNest,
    Parameter,
    RemainderIndex,
    Store,
    Sum,
)
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.dtype import DType
from tests.codegen.run_nest import call, check_nest, index, load, number, vector

LANES = 37
FUNCTIONS = ("floor_divide", "remainder", "trunc_divide", "fmod")
DIVISORS = (-7, -4, -2, -1, 1, 2, 3, 4, 8, 10, 64, 100)
INTEGERS = [dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64, dtypes.uint8]


def stored_one_after_another(values: list[Apply], dtype: DType) -> LoopNest:
    """A vector loop that stores each value for every lane."""
    stores = [Store(1, index(k * LANES, i=1), value) for k, value in enumerate(values)]
    parameters = (Parameter(dtype, "read"), Parameter(dtype, "write"))
    return LoopNest("test", parameters, (), (vector("i", LANES, *stores),))


@pytest.mark.parametrize("dtype", INTEGERS, ids=repr)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_divisors_that_are_literals(function: str, dtype: DType) -> None:
    info = np.iinfo(dtype.numpy)
    divisors = [d for d in (*DIVISORS, info.max, info.min) if info.min <= d <= info.max and d]
    values = [
        call(function, load(0, dtype, i=1), number(divisor, dtype), dtype=dtype)
        for divisor in divisors
        if not (divisor == -1 and function in ("remainder", "fmod"))
    ]
    random = np.random.default_rng(0)
    edges = np.array([info.min, info.min + 1, info.max, info.max - 1, 0, 1, 2, 3], dtype.numpy)
    given = np.concatenate([edges, random.integers(info.min, info.max, LANES - 8, dtype.numpy)])
    if info.min < 0:
        given[0] = info.min + 2  # -2**63 // -1 has no value
    results = np.zeros(len(values) * LANES, dtype.numpy)
    check_nest(stored_one_after_another(values, dtype), [given, results])


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("period", [2, 3, 4])
def test_quotients_of_what_is_computed_from_the_lane(function: str, period: int) -> None:
    """As pools compute their windows: from remainders of positions, times and plus numbers."""
    dtype = dtypes.int64
    position = IndexValue(Sum(((RemainderIndex(Sum(((LoopIndex("i"), 1),), 0), period), 1),), 0))
    values = []
    for factor in (1, 3, 5):
        for added in (-3, 0, 1, 4):
            scaled = call("mul", position, number(factor, dtype), dtype=dtype)
            moved = call("add", scaled, number(added, dtype), dtype=dtype)
            for divisor in (2, 3, 4, -2):
                first = call(function, moved, number(divisor, dtype), dtype=dtype)
                second = call(function, scaled, number(divisor, dtype), dtype=dtype)
                values.append(call("sub", first, second, dtype=dtype))
    arrays = [np.zeros(1, np.int64), np.zeros(len(values) * LANES, np.int64)]
    check_nest(stored_one_after_another(values, dtype), arrays)


@pytest.mark.parametrize("sizes", [(3, 2), (5, 2), (7, 3), (5, 4), (9, 2)])
def test_windows_whose_bounds_are_quotients(sizes: tuple[int, int]) -> None:
    """LLVM 22 made inf of the input's gradient here, on AVX2."""
    width, pooled = sizes
    random = np.random.default_rng(0)
    images = random.random((4, 64, 1, width), np.float32)
    weights = random.random((16, pooled), np.float32)
    found = []
    for library in (torch, metaop):
        x, w = (library.tensor(array).requires_grad_() for array in (images, weights))
        y = library.nn.functional.adaptive_avg_pool2d(x, (1, pooled))
        ((y @ w.t()) @ w).pow(2).mean().backward()
        found.append(x.grad.numpy())
    np.testing.assert_allclose(found[1], found[0], rtol=1e-4)


def test_a_product_with_zero_is_zero_whatever_the_other_factor() -> None:
    scalars = ScalarArithmetic(Code(host_target()))
    scalars.limits |= {"%nothing": 0, "%any": math.inf}
    for factors in (("%nothing", "%any"), ("%any", "%nothing")):
        product = scalars.binary("mul", *factors)
        assert scalars.limit(product) == 0
        assert scalars.binary("sdiv", product, 7) == 0
