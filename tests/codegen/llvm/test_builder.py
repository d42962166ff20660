"""The builder of LLVM IR: every group of operations, scalar and vector, compiled and run."""

from __future__ import annotations

import ctypes
import dataclasses

import ml_dtypes
import numpy as np
import pytest

from metaop.codegen.llvm.builder import Builder
from metaop.codegen.llvm.objects.engine import compile_kernel
from metaop.codegen.llvm.target import host_target

LANES = (1, 2, 8, 32)


@dataclasses.dataclass(frozen=True)
class _Features:
    """A processor with the features asked for, whatever this machine has."""

    vector_bytes: int = 16
    has_avx512: bool = False
    has_fma: bool = False
    has_f16c: bool = False

    @property
    def has_rounding(self) -> bool:
        return self.vector_bytes >= 32


def _call(b, parameters, *arrays, symbol="kernel"):
    """Finish the function, compile it and call it with arrays and integers."""
    b.finish_function(symbol, parameters)
    address = compile_kernel(b.module_text(), symbol)
    types = [ctypes.c_void_p if isinstance(x, np.ndarray) else ctypes.c_int64 for x in arrays]
    values = [x.ctypes.data if isinstance(x, np.ndarray) else x for x in arrays]
    ctypes.CFUNCTYPE(None, *types)(address)(*values)


def _map(body, source, result_dtype, in_type, lanes, target=None, signed=True):
    """`body(builder, value)` applied to all of `source`; it gives values of the stored type."""
    b = Builder(target or host_target())
    x, y, n = b.argument("ptr", "x"), b.argument("ptr", "y"), b.argument("i64", "n")

    def once(i):
        value = body(b, b.load(b.offset(x, i, in_type), in_type, lanes, signed=signed))
        b.store(value, b.offset(y, i, value.type))

    b.loop(0, n, lanes, once)
    result = np.zeros(source.size, result_dtype)
    _call(b, [x, y, n], source, result, source.size)
    return result


@pytest.mark.parametrize("lanes", LANES)
def test_operators_on_values_and_numbers(lanes):
    source = np.linspace(-4, 4, 64, dtype=np.float32)
    actual = _map(lambda b, x: (1.0 - x) * 2.0 / (x * x + 1), source, np.float32, "float", lanes)
    np.testing.assert_allclose(actual, (1 - source) * 2 / (source * source + 1), rtol=3e-7)


@pytest.mark.parametrize("lanes", LANES)
def test_bfloat16_conversions_of_all_values(lanes):
    every = np.arange(1 << 16, dtype=np.uint16)
    wide = _map(lambda b, x: b.widen_bfloat16(x), every, np.float32, "i16", lanes)
    expected = every.view(ml_dtypes.bfloat16).astype(np.float32)
    np.testing.assert_array_equal(wide, expected)
    _check_narrowing("narrow_bfloat16", ml_dtypes.bfloat16, lanes, host_target())


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("target", [None, _Features()], ids=["native", "without f16c"])
def test_float16_conversions_of_all_values(lanes, target):
    every = np.arange(1 << 16, dtype=np.uint16)
    wide = _map(lambda b, x: b.widen_float16(x), every, np.float32, "i16", lanes, target)
    np.testing.assert_array_equal(wide, every.view(np.float16).astype(np.float32))
    _check_narrowing("narrow_float16", np.float16, lanes, target)


def _check_narrowing(method, dtype, lanes, target):
    """All values of the type, their neighbours, the points between them, and random floats."""
    with np.errstate(all="ignore"):
        every = np.arange(1 << 16, dtype=np.uint16).view(dtype).astype(np.float32)
        halfway = ((every[:-1].astype(np.float64) + every[1:]) / 2).astype(np.float32)
        random = np.random.default_rng(0).integers(0, 1 << 32, 1 << 16, np.uint32)
        parts = [every, halfway, np.nextafter(every, np.float32(0)), random.view(np.float32)]
        source = np.resize(np.concatenate(parts), 1 << 18)
        expected = source.astype(dtype)
    actual = _map(lambda b, x: getattr(b, method)(x), source, np.uint16, "float", lanes, target)
    narrow = actual.view(dtype)
    same = (actual == expected.view(np.uint16)) | ((narrow != narrow) & (source != source))
    assert same.all(), source[~same][:5]


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("target", [None, _Features()], ids=["native", "without rounding"])
@pytest.mark.parametrize(
    "method, numpy",
    [("floor", np.floor), ("ceil", np.ceil), ("trunc", np.trunc), ("round_even", np.rint)],
)
def test_rounding(method, numpy, target, lanes):
    special = [0.0, -0.0, 0.5, -0.5, 1.5, 2.5, np.nan, np.inf, -np.inf, 2.0**52, -(2.0**60), 1e300]
    source = np.resize(np.array(special + list(np.linspace(-9, 9, 84))), 96)
    actual = _map(lambda b, x: getattr(b, method)(x), source, float, "double", lanes, target)
    np.testing.assert_array_equal(actual, numpy(source))
    np.testing.assert_array_equal(np.signbit(actual), np.signbit(numpy(source)))


@pytest.mark.parametrize("lanes", LANES)
def test_extremes_and_nan(lanes):
    source = np.resize(np.array([1.0, -1.0, np.nan, np.inf, -np.inf, 0.5], np.float32), 96)
    clamp = _map(
        lambda b, x: b.minimum(b.maximum(x, 0.0), 0.75), source, np.float32, "float", lanes
    )
    np.testing.assert_array_equal(clamp, np.minimum(np.maximum(source, 0), np.float32(0.75)))
    ignoring = _map(lambda b, x: b.fmax(x, x * 0.0), source, np.float32, "float", lanes)
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(ignoring, np.fmax(source, source * 0))


@pytest.mark.parametrize("lanes", LANES)
def test_signedness_of_integers(lanes):
    source = np.arange(256, dtype=np.uint8)
    unsigned = _map(
        lambda b, x: b.to_type(x, "i32") >> 1, source, np.int32, "i8", lanes, signed=False
    )
    np.testing.assert_array_equal(unsigned, source.astype(np.int32) >> 1)
    signed = _map(lambda b, x: b.to_type(x >> 1, "float"), source, np.float32, "i8", lanes)
    np.testing.assert_array_equal(signed, (source.view(np.int8) >> 1).astype(np.float32))
    large = _map(lambda b, x: b.to_type(x > 200, "i8"), source, np.int8, "i8", lanes, signed=False)
    np.testing.assert_array_equal(large, source > 200)


@pytest.mark.parametrize("lanes", LANES)
def test_masked_and_indexed_memory(lanes):
    b = Builder(host_target())
    x, y, n = b.argument("ptr", "x"), b.argument("ptr", "y"), b.argument("i64", "n")

    def once(i):
        place = i + b.iota(lanes)
        inside = place < n
        value = b.masked_load(b.offset(x, i, "double"), inside, "double", fill=-1.0)
        mirrored = b.gather(b.offset(x, n - 1 - place, "double"), inside, "double")
        b.masked_store(value + mirrored * 10.0, b.offset(y, i, "double"), inside)
        b.scatter(value, b.offset(y, n + (n - 1 - place), "double"), inside)

    b.loop(0, n, lanes, once)
    source, result = np.arange(37.0), np.full(80, -7.0)
    _call(b, [x, y, n], source, result, 37)
    np.testing.assert_array_equal(result[:37], source + 10 * source[::-1])
    np.testing.assert_array_equal(result[37:74], source[::-1])
    np.testing.assert_array_equal(result[74:], -7.0)


@pytest.mark.parametrize("lanes", LANES)
def test_reduction_with_carried_values(lanes):
    b = Builder(host_target())
    x, y, n = b.argument("ptr", "x"), b.argument("ptr", "y"), b.argument("i64", "n")

    def once(i, total, largest):
        value = b.load(b.offset(x, i, "float"), "float", lanes)
        return [total + value, b.maximum(largest, value)]

    start = [b.constant(0, "float", lanes), b.constant(-np.inf, "float", lanes)]
    total, largest = b.loop(0, n, lanes, once, start)
    b.store(b.reduce("add", total), y)
    b.store(b.reduce("maximum", largest), b.offset(y, 1, "float"))
    source = np.random.default_rng(3).normal(size=96).astype(np.float32)
    result = np.zeros(2, np.float32)
    _call(b, [x, y, n], source, result, 96)
    expected = [source.sum(dtype=float), source.max()]
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("formula, fused", [
    (lambda x: x * x + 0.1, "x x 0.1"),
    (lambda x: 0.1 + x * x, "x x 0.1"),
    (lambda x: x * x - 0.1, "x x -0.1"),
    (lambda x: 0.1 - x * x, "-x x 0.1"),
])  # fmt: skip
def test_a_product_that_is_added_rounds_once_except_inside_exact(lanes, formula, fused):
    if not host_target().has_fma:
        pytest.skip("this target has no fused multiply-add")
    source = np.random.default_rng(1).normal(size=64).astype(np.float32)

    def exactly(b, x):
        with b.exact():
            return formula(x)

    once, twice = (
        _map(body, source, np.float32, "float", lanes)
        for body in (lambda b, x: formula(x), exactly)
    )
    x, tenth = source.astype(np.float64), np.float64(np.float32(0.1))
    parts = {"x": x, "-x": -x, "0.1": tenth, "-0.1": -tenth}
    left, right, more = (parts[name] for name in fused.split())
    # A product of two float32 is exact in float64, and so is nearly every sum.
    np.testing.assert_array_equal(once, (left * right + more).astype(np.float32))
    np.testing.assert_array_equal(twice, formula(source))
    assert (once != twice).any()


def test_branches_and_phis():
    b = Builder(host_target())
    y, n = b.argument("ptr", "y"), b.argument("i64", "n")
    chosen = b.if_else(n > 10, lambda: n * 2, lambda: b.constant(-1, "i64"))
    b.store(chosen, y)
    b.when(n > 20, lambda: b.store(n, b.offset(y, 1, "i64")))
    (power,) = b.loop_while(lambda p: p < n, lambda p: [p * 2], [b.constant(1, "i64")])
    b.store(power, b.offset(y, 2, "i64"))
    b.finish_function("branches", [y, n])
    address = compile_kernel(b.module_text(), "branches")  # it holds the code
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(address)
    for number, expected in ((3, [-1, 0, 4]), (11, [22, 0, 16]), (21, [42, 21, 32])):
        result = np.zeros(3, np.int64)
        function(result.ctypes.data, number)
        assert result.tolist() == expected


def test_lanes_are_shuffled_and_inserted():
    b = Builder(host_target())
    y = b.argument("ptr", "y")
    low, high = b.halves(b.iota(8, "i32"))
    swapped = b.concatenate(high, low)
    swapped = b.insert(swapped, b.extract(swapped, 0) * 100, 7)
    b.store(swapped, y)
    result = np.zeros(8, np.int32)
    _call(b, [y], result)
    assert result.tolist() == [4, 5, 6, 7, 0, 1, 2, 400]


def test_text_is_the_same_every_time():
    def text():
        b = Builder(_Features())
        x = b.argument("ptr", "x")
        b.store(b.math.tanh(b.load(x, "float", 4)), x)
        b.finish_function("kernel", [x])
        return b.module_text()

    assert text() == text()


def test_unknown_math_function_is_named():
    with pytest.raises(AttributeError, match="gudermannian"):
        _ = Builder(_Features()).math.gudermannian
