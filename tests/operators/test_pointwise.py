"""Elementwise functions against PyTorch: values, types, broadcasting, gradients of two orders."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import metaop
from metaop.elementwise.functions import FUNCTIONS
from tests.helpers import check, check_derivatives, from_numpy, to_torch

torch = pytest.importorskip("torch")
random = np.random.default_rng(0)

UNARY = (
    *("abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "ceil", "cos", "cosh", "deg2rad"),
    *("digamma", "erf", "erfc", "erfinv", "exp", "exp2", "expm1", "floor", "frac", "lgamma"),
    *("log", "log10", "log1p", "log2", "logit", "nan_to_num", "neg", "rad2deg", "reciprocal"),
    *("relu", "round", "rsqrt", "sgn", "sigmoid", "sign", "sin", "sinc", "sinh", "sqrt"),
    *("square", "tan", "tanh", "trunc", "absolute", "arccos", "arctanh", "negative", "fix"),
)
BINARY = (
    *("add", "sub", "mul", "div", "atan2", "hypot", "maximum", "minimum", "fmax", "fmin"),
    *("remainder", "fmod", "pow", "copysign", "logaddexp", "logaddexp2", "xlogy"),
    *("ldexp", "floor_divide", "float_power", "heaviside", "nextafter"),
)
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
SMOOTH = {"logit": (0.1, 0.9), "acosh": (1.1, 3.0), "sinc": (0.2, 3.0)}
NOT_DIFFERENTIABLE = ("floor_divide", "heaviside", "nextafter")
STEPS = ("ceil", "floor", "round", "trunc", "fix", "sign", "sgn", "heaviside", "nextafter")


def domain(name: str, position: int = 0) -> tuple[float, float]:
    """An interval where the function is smooth."""
    if name in SMOOTH:
        return SMOOTH[name]
    row = FUNCTIONS.get(name.replace("arc", "a"))
    return row.domain[position] if row else (-2.0, 2.0)


def drawn(name: str, shape: tuple[int, ...], dtype: str, position: int = 0) -> np.ndarray:
    low, high = domain(name, position)
    return random.uniform(low, high, shape).astype(dtype)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", UNARY)
def test_unary_floats(name: str, dtype: str) -> None:
    for shape in [(), (5,), (2, 0, 3), (2, 3, 4)]:
        # PyTorch's trigamma has nine digits.
        check(name, drawn(name, shape, dtype), tolerance=1e-6 if name == "digamma" else None)


@pytest.mark.parametrize("name", ["exp", "sigmoid", "tanh", "sqrt", "neg", "relu", "abs"])
def test_unary_narrow_floats(name: str) -> None:
    check(name, np.abs(drawn(name, (3, 4), "float16")) + np.float16(0.5))
    both = (
        lambda x: getattr(metaop, name)(x.bfloat16()),
        lambda x: getattr(torch, name)(x.bfloat16()),
    )
    values = np.abs(drawn(name, (3, 4), "float32")) + np.float32(0.5)
    check(both, values, tolerance=2e-2)


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8", "bool"])
@pytest.mark.parametrize("name", [*UNARY, "logical_not", "bitwise_not", "isnan", "signbit"])
def test_unary_integers(name: str, dtype: str) -> None:
    values = np.array([1, 1, 1, 1]) if dtype == "bool" else np.array([[1, 2], [3, 5]])
    values = values.astype(dtype)
    try:
        expected = getattr(torch, name)(to_torch(values))
    except (RuntimeError, NotImplementedError, TypeError):
        with pytest.raises((RuntimeError, TypeError)):
            getattr(metaop, name)(from_numpy(values)).numpy()
        return
    result = getattr(metaop, name)(from_numpy(values))
    assert result.dtype.name == str(expected.dtype).removeprefix("torch.")
    np.testing.assert_allclose(result.numpy(), expected.numpy(), rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("name", [name for name in UNARY if name not in STEPS])
def test_unary_derivatives(name: str) -> None:
    values = drawn(name, (5,), "float64")
    if name in ("abs", "relu", "frac", "sgn", "absolute"):
        values = np.array([-1.7, -0.4, 0.3, 1.2, 2.6])
    # The second derivative of digamma is not available.
    order = 1 if name == "digamma" else 2
    check_derivatives(getattr(metaop, name), values, tolerance=1e-5, order=order)


@pytest.mark.parametrize("name", BINARY)
def test_binary_floats(name: str) -> None:
    shapes = [((3, 4), (3, 4)), ((3, 1), (4,)), ((), (2,)), ((2, 1, 3), (4, 1)), ((0,), (1,))]
    for left, right in shapes:
        for dtype in ("float64", "float32"):
            operands = drawn(name, left, dtype), drawn(name, right, dtype, 1)
            check(name, *operands, gradient=name not in NOT_DIFFERENTIABLE)


@pytest.mark.parametrize("name", [name for name in BINARY if name not in NOT_DIFFERENTIABLE])
def test_binary_derivatives(name: str) -> None:
    left, right = drawn(name, (2, 3), "float64"), drawn(name, (3,), "float64", 1)
    check_derivatives(getattr(metaop, name), left, right, tolerance=1e-5)


DTYPES = ("bool", "uint8", "int32", "int64", "float16", "float32", "float64")


@pytest.mark.parametrize("name", ["add", "mul", "div", "maximum", "eq", "lt", "pow", "remainder"])
def test_promotion_of_tensors(name: str) -> None:
    for left in DTYPES:
        for right in DTYPES:
            for shapes in [((2,), (2,)), ((2,), ()), ((), (2,)), ((), ())]:
                a = np.full(shapes[0], 3).astype(left)
                b = np.full(shapes[1], 2).astype(right)
                try:
                    expected = getattr(torch, name)(to_torch(a), to_torch(b))
                except (RuntimeError, NotImplementedError):
                    continue
                actual = getattr(metaop, name)(from_numpy(a), from_numpy(b))
                what = f"{name} {left}{shapes[0]} {right}{shapes[1]}"
                assert actual.dtype.name == str(expected.dtype).removeprefix("torch."), what
                np.testing.assert_allclose(
                    actual.numpy(), expected.numpy(), rtol=1e-3, err_msg=what
                )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("number", [True, 0, 1, 3, 0.5, 2.75, -2])
def test_promotion_of_numbers(dtype: str, number: float) -> None:
    values = np.array([1, 2, 5]).astype(dtype)
    x, y = from_numpy(values), to_torch(values)
    for operation in (
        lambda t: t + number,
        lambda t: number + t,
        lambda t: t * number,
        lambda t: number - t,
        lambda t: t / 4 if number == 0 else t / number,
        lambda t: t == number,
        lambda t: number < t,
        lambda t: t // 2 if number == 0 else t // number,
        lambda t: t**3 if number in (True, -2) else t**number,
    ):
        try:
            expected = operation(y)
        except (RuntimeError, NotImplementedError, TypeError):
            continue
        actual = operation(x)
        assert actual.dtype.name == str(expected.dtype).removeprefix("torch.")
        np.testing.assert_allclose(
            actual.numpy().astype("float64"), expected.double().numpy(), rtol=1e-3
        )


def test_numbers_that_change_compile_nothing() -> None:
    from metaop.execution.executor import _programs

    x = metaop.tensor(np.ones(3, np.float32))
    (x * 3.5).numpy()
    before = len(_programs)
    for factor in (4.5, 6.25, -7.0):
        np.testing.assert_array_equal((x * factor).numpy(), np.full(3, factor, np.float32))
    assert len(_programs) == before


def test_number_on_the_left_has_gradients() -> None:
    check((lambda x: 2.5 / x, lambda x: 2.5 / x), drawn("div", (4,), "float64", 1))
    check((lambda x: 3 - x, lambda x: 3 - x), drawn("sub", (4,), "float32"))
    check((lambda x: 1.5**x, lambda x: 1.5**x), drawn("sub", (4,), "float64"))
    check((lambda x: -1.0 + x % 2, lambda x: -1.0 + x % 2), drawn("sub", (4,), "float64"))


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, -1, -2, 0.5, 2.5, -0.5])
def test_powers(exponent: float) -> None:
    values = random.uniform(0.5, 2.0, (2, 3))
    check((lambda x: x**exponent, lambda x: x**exponent), values)
    check_derivatives(lambda x: x**exponent, values, tolerance=1e-5)
    if exponent == int(exponent) and exponent >= 0:
        check((lambda x: x**exponent, lambda x: x**exponent), np.array([-1.5, 0.0, 2.0]))


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16", "int64"])
def test_powers_of_two(dtype: str) -> None:
    """The exponent takes the type of the number; powers may be beyond the default type."""

    def powers(lib: Any) -> Any:
        numbers = lib.tensor([1, 3, -5, 2, 1, 1]).to(getattr(lib, dtype))
        return lib.ldexp(numbers, lib.tensor([200, -20, 4, 0, -130, 16]))

    found, wanted = powers(metaop), powers(torch)
    assert str(found.dtype).partition(".")[2] == str(wanted.dtype).partition(".")[2]
    np.testing.assert_array_equal(found.double().numpy(), wanted.double().numpy())


def test_power_errors() -> None:
    with pytest.raises(RuntimeError, match="negative integer powers"):
        metaop.tensor([1, 2]) ** -1


@pytest.mark.parametrize("name", ["bitwise_and", "bitwise_or", "bitwise_xor"])
def test_bits(name: str) -> None:
    check(name, np.array([1, 6, 255]), np.array([3, 5, 7]))
    check(name, np.array([True, False, True]), np.array([True, True, False]))
    with pytest.raises(RuntimeError):
        getattr(metaop, name)(metaop.ones(2), metaop.ones(2))


def test_shifts() -> None:
    check("bitwise_left_shift", np.array([1, 2, 3]), np.array([1, 2, 3]))
    check((lambda x: x >> 1, lambda x: x >> 1), np.array([1, -8, 255]))
    check((lambda x: ~x, lambda x: ~x), np.array([1, -8, 255]))


def test_alpha() -> None:
    x, y = random.standard_normal((2, 3)), random.standard_normal(3)
    check("add", x, y, alpha=2.5)
    check("sub", x, y, alpha=-3)
    check("rsub", x, y, alpha=2)
    with pytest.raises(RuntimeError, match="alpha"):
        metaop.add(metaop.tensor([1]), metaop.tensor([1]), alpha=1.5)


@pytest.mark.parametrize("mode", [None, "floor", "trunc"])
def test_rounded_division(mode: str | None) -> None:
    check("div", np.array([7.5, -7.5, 3.0]), np.array([2.0, 2.0, -2.0]), rounding_mode=mode)
    check("div", np.array([7, -7, 3]), np.array([2, 2, -2]), rounding_mode=mode)
    with pytest.raises((RuntimeError, ValueError)):
        metaop.div(metaop.ones(1), 2, rounding_mode="up")


def test_not_finite_numbers() -> None:
    values = np.array([math.nan, math.inf, -math.inf, 0.0, -0.0, 1.5])
    for name in ("isnan", "isinf", "isfinite", "isposinf", "isneginf", "signbit", "nan_to_num"):
        check(name, values, gradient=False)
    for name in ("exp", "log", "sqrt", "tanh", "sigmoid", "sign", "abs", "relu"):
        check(name, values)
    check("maximum", values, values[::-1].copy(), gradient=False)
    check("fmax", values, values[::-1].copy(), gradient=False)
    check("nan_to_num", values, nan=1.0, posinf=2.0, neginf=-3.0)


def test_round_decimals() -> None:
    check("round", np.array([1.2345, -2.5678, 123.456]), decimals=2)
    check("round", np.array([1234.5, -2567.8]), decimals=-2)


@pytest.mark.parametrize("bounds", [(-0.5, 0.5), (None, 0.25), (0.25, None), (1, -1)])
def test_clamp(bounds: tuple) -> None:
    x = np.array([[-2.0, -0.5, 0.1], [0.25, 0.5, 3.0]])
    check("clamp", x, *bounds)
    check("clamp", x.astype("float32"), *bounds)
    if None not in bounds:
        check("clip", np.array([1, 5, -3]), *bounds)
        check("clamp", x, np.full(3, bounds[0], float), np.full((2, 1), bounds[1], float))


def test_clamp_without_bounds() -> None:
    with pytest.raises(ValueError):
        metaop.clamp(metaop.ones(1))


def test_where() -> None:
    condition = np.array([[True], [False]])
    check("where", condition, random.standard_normal((2, 3)), random.standard_normal(3))
    check("where", condition, random.standard_normal((2, 3)).astype("float32"), 2.5)
    check("where", condition, 1, np.array([2.0, 3.0]))
    check("where", condition, np.array([1, 2]), np.array([2.0, 3.0]))
    check((lambda x, c: x.where(c, 0), lambda x, c: x.where(c, 0)), np.ones((2, 2)), condition)


def test_mixtures() -> None:
    x, y, z = (random.uniform(0.5, 1.5, (2, 3)) for _ in range(3))
    check("lerp", x, y, 0.3)
    check("lerp", x, y, z)
    check("addcmul", x, y, z, value=0.7)
    check("addcdiv", x, y, z, value=-2)
    check_derivatives(metaop.lerp, x, y, z)
    check_derivatives(lambda a, b, c: metaop.addcdiv(a, b, c, value=0.5), x, y, z)
    check_derivatives(lambda a, b, c: metaop.addcmul(a, b, c, value=0.5), x, y, z)


def test_comparisons_and_logic() -> None:
    x, y = np.array([1.0, 2.0, math.nan]), np.array([1.0, 3.0, math.nan])
    for name in (*COMPARISONS, "logical_and", "logical_or", "logical_xor", "isclose"):
        check(name, x, y, gradient=False)
    check("isclose", x, y, gradient=False, equal_nan=True)
    assert not metaop.allclose(metaop.tensor(x), metaop.tensor(y))
    assert metaop.allclose(metaop.tensor(x), metaop.tensor(x), equal_nan=True)
    assert metaop.equal(metaop.ones(2), metaop.ones(2))
    assert not metaop.equal(metaop.ones(2), metaop.ones(1))


@pytest.mark.parametrize("name", ["add", "mul", "sub", "div", "pow", "clamp_min", "eq"])
def test_in_place(name: str) -> None:
    x, y = from_numpy(np.array([1.5, 2.5])), to_torch(np.array([1.5, 2.5]))
    kept = x
    result = getattr(x, name + "_")(2)
    getattr(y, name + "_")(2)
    assert result is kept
    np.testing.assert_allclose(x.numpy(), y.numpy())


def test_in_place_functions() -> None:
    from metaop.tensor.surface import IN_PLACE_FUNCTIONS

    for name in IN_PLACE_FUNCTIONS:
        assert getattr(metaop, name) is getattr(metaop.Tensor, name) and hasattr(torch, name)
    x = metaop.tensor([-1.5, 2.0])
    assert metaop.relu_(x) is x and x.tolist() == [0, 2]


def test_in_place_keeps_the_type() -> None:
    x = metaop.tensor([1, 2])
    x += 1
    assert x.dtype is metaop.int64 and x.tolist() == [2, 3]
    with pytest.raises(RuntimeError, match="can't be cast"):
        x += 0.5
    with pytest.raises(RuntimeError):
        x /= 2
    y = metaop.ones(2).half()
    y += metaop.ones(2)
    assert y.dtype is metaop.float16


def test_errors() -> None:
    with pytest.raises(RuntimeError, match=r"\[2\].*\[3\]"):
        metaop.ones(2) + metaop.ones(3)
    with pytest.raises(TypeError):
        metaop.ones(2) + "a"
    with pytest.raises(TypeError):
        metaop.exp(3.0)
    with pytest.raises(RuntimeError):
        metaop.tensor([True]) - metaop.tensor([True])
    with pytest.raises(RuntimeError):
        -metaop.tensor([True])
    with pytest.raises(RuntimeError, match="ambiguous"):
        bool(metaop.ones(2))


def test_numpy_operands() -> None:
    x, array = metaop.ones(2), np.array([1.0, 2.0])
    for result in (x + array, array + x):
        assert result.dtype is metaop.float64
        assert result.tolist() == [2.0, 3.0]
    assert (x * np.float64(2.5)).dtype is metaop.float32
