"""Elementwise functions of whole numbers, truth values and narrow floats, beside PyTorch.

The result is PyTorch's, or both refuse; where PyTorch lacks a kernel, metaop may compute.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import metaop
from tests.operators.test_edge_shapes import called, difference, outcome

torch = pytest.importorskip("torch")

UNARY = (
    *("abs", "acos", "asinh", "bitwise_not", "ceil", "cos", "deg2rad", "digamma", "erf", "erfinv"),
    *("exp", "exp2", "expm1", "floor", "isfinite", "isnan", "lgamma", "log", "log1p", "neg"),
    *("logical_not", "logit", "nan_to_num", "reciprocal", "relu", "round", "rsqrt", "sgn", "sign"),
    *("sigmoid", "signbit", "sinc", "sqrt", "square", "tanh", "trunc", "celu", "i0"),
    *("nn.functional.gelu", "nn.functional.silu", "nn.functional.softplus", "nn.functional.elu"),
    *("nn.functional.leaky_relu", "nn.functional.hardswish", "nn.functional.softsign"),
)
BINARY = (
    *("add", "sub", "mul", "div", "floor_divide", "remainder", "fmod", "pow", "maximum", "fmin"),
    *("atan2", "bitwise_and", "bitwise_left_shift", "eq", "lt", "logical_xor", "hypot"),
    *("copysign", "ldexp", "gcd", "logaddexp", "float_power", "heaviside", "xlogy", "isclose"),
)
TYPES = ["int64", "bool", "uint8", "float16", "bfloat16"]
PAIRS = [
    *(("uint8", "int8"), ("bool", "bool"), ("int64", "float16"), ("bfloat16", "float32")),
    *(("float16", "int64"), ("float64", "int64"), ("bfloat16", "uint8")),
]
# A truth value to the power of one is a truth value in PyTorch; metaop refuses it.
REFUSED = {"bool": {("pow", True)}}
LEFT, RIGHT = (-2.5, 0.5, 3.0, 1.0), (1.0, 2.5, 1.0, 3.0)


def made(lib: Any, dtype: str, numbers: tuple[float, ...], layout: str) -> Any:
    """The numbers in a type: as they are, one of them without dimensions, or spread out."""
    values = [abs(x) for x in numbers] if dtype in ("uint8", "bool") else list(numbers)
    tensor = lib.tensor(np.array(values)).to(getattr(lib, dtype))
    if layout == "number":
        return tensor[2]
    return tensor[::2].expand(3, 2) if layout == "expanded" else tensor


def compared(function: Any, arguments: Any) -> str | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found, expected = (
            outcome(lib, lambda lib, x: function(lib, *x), arguments(lib))
            for lib in (metaop, torch)
        )
    return difference(found, expected)


@pytest.mark.parametrize("dtype", TYPES)
def test_functions_of_one_tensor(dtype: str) -> None:
    wrong = {}
    for name in UNARY:
        (function,) = called(name, ()).values()
        for layout in ("number", "expanded"):
            text = compared(function, lambda lib, way=layout: (made(lib, dtype, LEFT, way),))
            if text:
                wrong[name, layout] = text
    assert not wrong


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_functions_of_two_tensors(pair: tuple[str, str]) -> None:
    """A number without dimensions does not widen the type of a tensor beside it."""
    wrong = {}
    for name in BINARY:

        def function(lib: Any, left: Any, right: Any, name: str = name) -> Any:
            return getattr(lib, name)(left, right)

        for ways in (("number", "plain"), ("expanded", "number")):

            def arguments(lib: Any, ways: tuple[str, str] = ways) -> Any:
                both = zip(pair, (LEFT, RIGHT), ways)
                return tuple(made(lib, *one) for one in both)

            text = compared(function, arguments)
            if text:
                wrong[name, ways] = text
    assert not wrong


@pytest.mark.parametrize("dtype", TYPES)
def test_tensors_beside_python_numbers(dtype: str) -> None:
    wrong = {}
    for name in ("add", "sub", "mul", "div", "floor_divide", "remainder", "pow", "eq", "fmod"):
        for number in (2, 2.5, -1, True):

            def function(lib: Any, x: Any, name: str = name, number: Any = number) -> Any:
                return getattr(lib, name)(x, number)

            text = compared(function, lambda lib: (made(lib, dtype, LEFT, "plain"),))
            if text:
                wrong[name, number] = text
    assert wrong.keys() == REFUSED.get(dtype, set()), wrong
