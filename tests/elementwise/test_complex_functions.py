"""Functions of complex numbers: cuts, infinities and NaN as in NumPy, gradients as in PyTorch.

C's Annex G leaves signs open where an operand is infinite or NaN, and so do these tests.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import metaop

torch = pytest.importorskip("torch")


def square(numbers: np.ndarray) -> np.ndarray:
    """NumPy's own rounds one of the two products alone where the processor fuses them."""
    result = np.empty_like(numbers)
    result.real = numbers.real * numbers.real - numbers.imag * numbers.imag
    result.imag = 2 * numbers.real * numbers.imag
    return result


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": np.abs,
    "acos": np.arccos,
    "acosh": np.arccosh,
    "angle": np.angle,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atan": np.arctan,
    "atanh": np.arctanh,
    "conj": np.conj,
    "cos": np.cos,
    "cosh": np.cosh,
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "isfinite": np.isfinite,
    "isinf": np.isinf,
    "isnan": np.isnan,
    "log": np.log,
    "log10": np.log10,
    "log1p": np.log1p,
    "log2": np.log2,
    "neg": np.negative,
    "reciprocal": np.reciprocal,
    "sin": np.sin,
    "sinh": np.sinh,
    "sqrt": np.sqrt,
    "square": square,
    "tan": np.tan,
    "tanh": np.tanh,
}
SPECIAL = (0.0, -0.0, 1.0, -1.0, 0.5, 2.0, -3.0, 1e-5, -1e-5, np.inf, -np.inf, np.nan)
TOLERANCES = {np.complex64: 2e-5, np.complex128: 1e-9}
# NumPy's `log1p` cancels near 0; its reciprocal of 0 is NaN, and not infinite as a quotient by 0.
NUMPY_ROUNDS = {"log1p": 1e-6}


def by_numpy(name: str, numbers: np.ndarray) -> np.ndarray:
    """NumPy's values in double precision, rounded to the type of its own result."""
    with np.errstate(all="ignore"):
        kind = FUNCTIONS[name](numbers).dtype
        return FUNCTIONS[name](numbers.astype(np.complex128)).astype(kind)


def parts_of(values: np.ndarray) -> list[np.ndarray]:
    return [values.real, values.imag] if values.dtype.kind == "c" else [values]


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", TOLERANCES)
def test_special_values(name: str, dtype: Any) -> None:
    numbers = np.array([complex(a, b) for a in SPECIAL for b in SPECIAL], dtype)
    if name == "reciprocal":
        numbers = numbers[numbers != 0]
    wanted = by_numpy(name, numbers)
    got = getattr(metaop, name)(metaop.tensor(numbers)).numpy()
    assert got.dtype == wanted.dtype
    tolerance = max(TOLERANCES[dtype], NUMPY_ROUNDS.get(name, 0))
    plain = np.isfinite(numbers)
    for found, expected in zip(parts_of(got), parts_of(wanted)):
        np.testing.assert_allclose(found[plain], expected[plain], tolerance, 1e-15)
        if expected.dtype.kind == "f":
            np.testing.assert_array_equal(np.signbit(found[plain]), np.signbit(expected[plain]))
        np.testing.assert_allclose(np.abs(found[~plain]), np.abs(expected[~plain]), tolerance)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("size", [1e-3, 1.0, 30.0])
def test_random_values(name: str, dtype: Any, size: float) -> None:
    draw = np.random.default_rng(0).standard_normal
    numbers = (draw((3, 50)) * size + 1j * draw((3, 50)) * size).astype(np.complex128)
    # Beside the branch cuts, on both sides.
    numbers[1] = numbers[1].real + 1e-4j * np.sign(numbers[1].imag)
    numbers[2] = 1j * numbers[2].imag + 1e-4 * np.sign(numbers[2].real)
    numbers = numbers.astype(dtype)
    wanted = by_numpy(name, numbers)
    got = getattr(metaop, name)(metaop.tensor(numbers)).numpy()
    # Relative to the modulus: a part may be a small difference of large numbers.
    with np.errstate(all="ignore"):
        error = np.abs(got - wanted) if got.dtype.kind != "b" else (got != wanted)
        scale = TOLERANCES[dtype] * np.abs(wanted) if got.dtype.kind != "b" else 0.5
    assert (np.isfinite(wanted) <= (error <= scale)).all()


OTHERS = ("sgn", "sigmoid", "rsqrt", *(n for n in FUNCTIONS if not n.startswith("is")))


@pytest.mark.parametrize("name", OTHERS)
def test_gradients(name: str) -> None:
    draw = np.random.default_rng(1).standard_normal
    numbers, cotangents = (draw((4, 25)) + 1j * draw((4, 25)) for _ in range(2))
    numbers[0, 0] = 0 if name in ("abs", "sgn", "angle") else 1.5 + 0.1j
    results = []
    for library in (metaop, torch):
        z = library.tensor(numbers).requires_grad_()
        y = getattr(library, name)(z)
        given = library.tensor(cotangents if y.is_complex() else cotangents.real)
        (first,) = library.autograd.grad(y, z, given, create_graph=True)
        found = [y, first]
        if first.requires_grad and name not in ("abs", "sgn", "angle"):
            found += library.autograd.grad(first.abs().sum(), z)
        results.append([x.detach().resolve_conj().numpy() for x in found])
    for got, wanted in zip(*results):
        np.testing.assert_allclose(got, wanted, 1e-7, 1e-9)


@pytest.mark.parametrize("dtype", TOLERANCES)
def test_two_operands(dtype: Any) -> None:
    draw = np.random.default_rng(2).standard_normal
    left, right = ((draw((7, 5)) + 1j * draw((7, 5))).astype(dtype) for _ in range(2))
    z, w = metaop.tensor(left), metaop.tensor(right)
    pairs = [
        (z / w, left / right),
        (z * w, left * right),
        (z - w, left - right),
        (z**w, left**right),
        (z**-2, left**-2),
        (z**17, left**17),
        (z**0.5, left**0.5),
        (z == metaop.where(z.real > 0, z, w), left == np.where(left.real > 0, left, right)),
        (2.5 / z, dtype(2.5) / left),
    ]
    for got, wanted in pairs:
        np.testing.assert_allclose(got.numpy(), wanted, TOLERANCES[dtype] * 10)
    large = np.finfo(dtype).max / 4
    quotient = metaop.tensor([large * (1 + 1j)], dtype=z.dtype) / (large * (1 - 1j))
    np.testing.assert_allclose(quotient.numpy(), [1j], atol=1e-6)
    zero = metaop.zeros(1, dtype=z.dtype)
    assert (zero**2).item() == 0 and (zero**0).item() == 1 and (zero**zero).item() == 1
    assert np.isinf(zero.reciprocal().real.item())


@pytest.mark.parametrize("count", [0, 1, 2, 7, 100])
def test_products_are_trees(count: int) -> None:
    draw = np.random.default_rng(3).standard_normal
    numbers = draw((3, count)) + 1j * draw((3, count))
    if count > 2:
        numbers[0, 1] = 0
        numbers[1, :2] = 0
    results = []
    for library in (metaop, torch):
        z = library.tensor(numbers).requires_grad_()
        y = z.prod(1)
        (gradient,) = library.autograd.grad(y.abs().square().sum() + y.real.sum(), z)
        results.append([x.detach().resolve_conj().numpy() for x in (y, gradient)])
    for got, wanted in zip(*results):
        np.testing.assert_allclose(got, wanted, 1e-8, 1e-10)


def test_every_backend_agrees(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(4).standard_normal
    numbers = draw((6, 6)) + 1j * draw((6, 6))

    def computed() -> list[np.ndarray]:
        z = metaop.tensor(numbers).requires_grad_()
        y = (z @ z.mH).tanh().cumprod(0)[1:, ::2].flip(0) * z.tril()[1:, ::2] + z.T[1:, ::2].conj()
        y = metaop.sgn(y) + y.sigmoid() * (z[1:, ::2] ** z[:5, 1::2]) + z[0, 0].logaddexp(y)
        y.abs().sum().backward()
        return [y.detach().numpy(), z.grad.numpy()]

    found = computed()
    monkeypatch.setenv("METAOP_BACKEND", "reference")
    metaop.execution.executor.clear_programs()
    for one, other in zip(found, computed()):
        np.testing.assert_allclose(one, other, 1e-9, 1e-9)
    metaop.execution.executor.clear_programs()
