"""Elementwise functions of zeros, infinities, NaN and the ends of the range, beside PyTorch.

Values, NaN and the signs of zeros are compared.
"""

from __future__ import annotations

import warnings
from operator import attrgetter
from typing import Any

import numpy as np
import pytest

import metaop

torch = pytest.importorskip("torch")

UNARY = (
    *("abs", "acos", "acosh", "angle", "asin", "asinh", "atan", "atanh", "ceil", "cos", "cosh"),
    *("deg2rad", "digamma", "erf", "erfc", "erfinv", "exp", "exp2", "expm1", "floor", "frac", "i0"),
    *("isfinite", "isinf", "isnan", "isneginf", "isposinf", "lgamma", "log", "log10", "log1p"),
    *("log2", "logit", "nan_to_num", "neg", "positive", "rad2deg", "reciprocal", "relu", "round"),
    *("rsqrt", "sgn", "sigmoid", "sign", "signbit", "sin", "sinc", "sinh", "sqrt", "square", "tan"),
    *("tanh", "trunc", "special.entr", "special.erfcx", "special.expit", "special.i0e"),
    *("special.i1", "special.i1e", "special.log_ndtr", "special.ndtr", "special.ndtri"),
    *("special.modified_bessel_i0", "special.modified_bessel_i1", "special.modified_bessel_k0"),
    *("special.modified_bessel_k1", "special.scaled_modified_bessel_k0"),
    *("special.scaled_modified_bessel_k1", "special.spherical_bessel_j0", "nn.functional.celu"),
    *("nn.functional.elu", "nn.functional.gelu", "nn.functional.hardshrink"),
    *("nn.functional.hardsigmoid", "nn.functional.hardswish", "nn.functional.hardtanh"),
    *("nn.functional.leaky_relu", "nn.functional.logsigmoid", "nn.functional.mish"),
    *("nn.functional.relu6", "nn.functional.selu", "nn.functional.silu", "nn.functional.softplus"),
    *("nn.functional.softshrink", "nn.functional.softsign", "nn.functional.tanhshrink"),
)
BINARY = (
    *("add", "atan2", "copysign", "div", "float_power", "floor_divide", "fmax", "fmin", "fmod"),
    *("heaviside", "hypot", "ldexp", "logaddexp", "logaddexp2", "maximum", "minimum", "mul"),
    *("nextafter", "pow", "remainder", "special.xlog1py", "sub", "xlogy"),
)
TYPES = ("float32", "float64", "bfloat16", "float16")
VALUES = (0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 3.0, -3.0)

# Of 0.0 and -0.0, which are equal, any may be the larger one; PyTorch's loops differ among
# themselves.
EITHER_ZERO = {"fmax", "fmin", "nn.functional.relu6", "nn.functional.softshrink"}
# With AVX2, PyTorch's of -0.0 is 0.0 in vectors and -0.0 for a single number.
EITHER_ZERO |= {"nn.functional.gelu"}
# These are clamped to at most 0 first.
EITHER_ZERO |= {"nn.functional.celu", "nn.functional.elu", "nn.functional.selu"}
# An odd function of -0.0 is -0.0 here and in SciPy, and a quantile of a half 0.0 with any sign.
EITHER_ZERO |= {"special.i1", "special.i1e", "special.modified_bessel_i1", "special.ndtri"}
# Above 2**50, angles mean nothing; PyTorch's product overflows although its quotient does not.
WITHOUT_ENDS = {"sin", "cos", "tan", "sinc", "nn.functional.gelu", "nn.functional.hardswish"}
# PyTorch's remainder of a quotient beyond all numbers is NaN; C's and metaop's is exact.
INFINITE_QUOTIENT = ("fmod", "remainder")
# A small difference of large parts, and a zero that pi or a logarithm rounds.
ABSOLUTE = {"special.log_ndtr", "lgamma", "sinc", "logaddexp2", "special.ndtr", "digamma"}
ABSOLUTE |= {"nn.functional.gelu"}


def values_of(name: str, dtype: Any) -> Any:
    info = torch.finfo(dtype)
    ends = () if name in WITHOUT_ENDS else (info.smallest_normal, info.max, -info.max)
    values = torch.tensor([*VALUES, *ends], dtype=torch.float64).to(dtype)
    # PyTorch's gelu of infinity is NaN.
    return values[values != torch.inf] if name == "nn.functional.gelu" else values


def to_metaop(values: Any) -> metaop.Tensor:
    exact = metaop.from_numpy(values.double().numpy())
    return exact.to(getattr(metaop, str(values.dtype).removeprefix("torch.")))


def differences(name: str, *operands: Any) -> list[str]:
    """The operands for which metaop's function gives something else than PyTorch's."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = attrgetter(name)(torch)(*operands).double().numpy()
    found = attrgetter(name)(metaop)(*map(to_metaop, operands)).numpy().astype(np.float64)
    info = torch.finfo(operands[0].dtype)
    least = 1e3 * info.eps if name in ABSOLUTE else 2 * info.smallest_normal
    with np.errstate(all="ignore"):
        good = np.isclose(found, expected, rtol=32 * info.eps, atol=float(least), equal_nan=True)
        if name not in EITHER_ZERO:
            zero = (expected == 0) & (found == 0)
            good &= ~zero | (np.signbit(found) == np.signbit(expected))
        if name in INFINITE_QUOTIENT:
            good |= np.isinf((operands[0] / operands[1]).float().numpy()) & np.isnan(expected)
    return [
        f"{name}{tuple(float(x[k]) for x in operands)} is {found[k]}, not {expected[k]}"
        for k in np.flatnonzero(~good)
    ]


@pytest.mark.parametrize("dtype", TYPES)
def test_functions_of_one_tensor(dtype: str) -> None:
    wrong = []
    for name in UNARY:
        values = values_of(name, getattr(torch, dtype))
        try:
            attrgetter(name)(torch)(values)
        except (RuntimeError, NotImplementedError):
            continue  # PyTorch lacks a kernel for narrow floats
        wrong += differences(name, values)
    assert not wrong


@pytest.mark.parametrize("dtype", TYPES)
def test_functions_of_two_tensors(dtype: str) -> None:
    wrong = []
    for name in BINARY:
        # The next 16-bit float is one of the type in which metaop computes.
        if name == "nextafter" and dtype in ("bfloat16", "float16"):
            continue
        values = values_of(name, getattr(torch, dtype))
        grid = torch.cartesian_prod(values, values)
        try:
            attrgetter(name)(torch)(grid[:, 0], grid[:, 1])
        except (RuntimeError, NotImplementedError):
            continue  # PyTorch lacks a kernel for narrow floats
        wrong += differences(name, *grid.T.contiguous())
    assert not wrong


def test_polygamma_at_infinity_and_at_its_poles() -> None:
    """PyTorch rounds pi, so it is huge at the poles but not infinite."""
    special = pytest.importorskip("scipy.special")
    values = np.array([np.inf, -0.0, 0.0, 1.0, 3.5, np.nan])
    for order in range(1, 5):
        found = metaop.polygamma(order, metaop.from_numpy(values)).numpy()
        expected = torch.polygamma(order, torch.from_numpy(values)).numpy()
        reference = special.polygamma(order, values)
        np.testing.assert_allclose(found[1:], expected[1:], rtol=1e-8)
        np.testing.assert_allclose(found[0], reference[0])
    assert np.isinf(metaop.polygamma(1, metaop.tensor([-1.0, -2.0])).numpy()).all()
