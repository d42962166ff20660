"""Activation functions against PyTorch."""

from __future__ import annotations

import numpy as np
import pytest

import metaop
from metaop.errors import ArgumentError, DTypeError, ShapeError
from metaop.nn import functional as F
from tests.operators.against_torch import compare, compare_derivatives, draw

EDGES = np.array([-1e4, -100, -25, -6, -3, -1, -0.5, -0.0, 0, 0.5, 1, 3, 6, 25, 100, 1e4])

PLAIN = [
    ("relu", {}),
    ("relu6", {}),
    ("leaky_relu", {}),
    ("leaky_relu", {"negative_slope": 0.3}),
    ("elu", {}),
    ("elu", {"alpha": 0.5}),
    ("selu", {}),
    ("celu", {"alpha": 0.7}),
    ("gelu", {}),
    ("gelu", {"approximate": "tanh"}),
    ("silu", {}),
    ("mish", {}),
    ("softplus", {}),
    ("softplus", {"beta": 2.0, "threshold": 5.0}),
    ("softsign", {}),
    ("hardtanh", {}),
    ("hardtanh", {"min_val": -0.5, "max_val": 2.0}),
    ("hardswish", {}),
    ("hardsigmoid", {}),
    ("hardshrink", {}),
    ("softshrink", {"lambd": 0.3}),
    ("tanhshrink", {}),
    ("threshold", {"threshold": 0.1, "value": 20.0}),
    ("logsigmoid", {}),
    ("sigmoid", {}),
    ("tanh", {}),
    ("glu", {}),
]


@pytest.mark.parametrize(("name", "options"), PLAIN)
def test_values_and_gradients(name, options):
    # PyTorch has the factors 1 / alpha and 1 / 6 of these in single precision.
    tolerance = 1e-7 if name in ("celu", "hardsigmoid") else None
    compare(name, draw(3, 4) * 3, tolerance=tolerance, **options)
    compare(name, EDGES, tolerance=tolerance, **options)


@pytest.mark.parametrize(("name", "options"), PLAIN)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_types(name, options, dtype):
    compare(
        name, draw(3, 4, dtype=dtype), tolerance=4e-3 if dtype == "float16" else None, **options
    )


@pytest.mark.parametrize(("name", "options"), PLAIN)
def test_nan(name, options):
    compare(name, np.array([np.nan, 1.0, np.nan, -1.0]), gradient=False, **options)


@pytest.mark.parametrize(
    "name", ["elu", "selu", "celu", "gelu", "silu", "mish", "softplus", "softsign", "glu"]
)
def test_second_derivatives(name):
    compare_derivatives(name, draw(2, 4))


IN_PLACE = [
    "relu",
    "relu6",
    "leaky_relu",
    "elu",
    "selu",
    "celu",
    "silu",
    "mish",
    "hardtanh",
    "hardswish",
    "hardsigmoid",
]


@pytest.mark.parametrize("name", IN_PLACE)
def test_in_place(name):
    x = metaop.tensor(draw(3, 4))
    expected = getattr(F, name)(x).numpy().copy()
    result = getattr(F, name)(x, inplace=True)
    assert result is x
    np.testing.assert_array_equal(x.numpy(), expected)


VIEWS = {
    "flat": lambda x: x.view(12),
    "part": lambda x: x[:, 1:],
    "turned": lambda x: x.t(),
    "unfolded": lambda x: x.unfold(-1, 2, 2),
}


# PyTorch's hardsigmoid saves what it overwrites, and its gradient is an error.
@pytest.mark.parametrize("name", [name for name in IN_PLACE if name != "hardsigmoid"])
@pytest.mark.parametrize("view", VIEWS)
def test_gradients_in_place_of_a_view(view, name):
    """What the operation itself saved may be overwritten by it."""
    torch = pytest.importorskip("torch")
    found = []
    for lib in (metaop, torch):
        x = lib.tensor(draw(3, 4), requires_grad=True)
        whole = x * 1
        part = getattr(lib.nn.functional, name)(VIEWS[view](whole), inplace=True)
        (part.square().sum() + whole.sum()).backward()
        found.append(x.grad.numpy())
    np.testing.assert_allclose(*found, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("weight", [1, 4])
def test_prelu(weight):
    compare("prelu", draw(3, 4, 2), draw(weight))
    compare("prelu", draw(3, 4), draw(weight))


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "softmin"])
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_softmax(name, dim):
    compare(name, draw(3, 4, 5) * 20, dim=dim)


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax_of_extremes(name):
    inf = np.inf
    rows = np.array([[1e4, 0, -1e4], [-inf, 0, 1], [-inf, -inf, -inf], [inf, 0, 1], [np.nan, 0, 1]])
    compare(name, rows, dim=1, gradient=False)


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax_of_other_types(name):
    torch = pytest.importorskip("torch")
    from tests.helpers import Versus

    dtype = Versus((metaop.float64, torch.float64))
    compare(name, draw(3, 4, dtype="float32"), dim=1, dtype=dtype)
    compare(name, np.arange(6).reshape(2, 3), dim=1, dtype=dtype)
    compare(name, draw(3, 4, dtype="float16"), dim=1)
    with pytest.raises(DTypeError):
        getattr(F, name)(metaop.tensor([1, 2]), dim=0)


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_second_derivatives_of_softmax(name):
    compare_derivatives(name, draw(3, 4), dim=1)


def test_gumbel_softmax():
    x = metaop.tensor(draw(50, 4, dtype="float32"))
    soft = F.gumbel_softmax(x, tau=0.7)
    np.testing.assert_allclose(soft.numpy().sum(-1), 1, rtol=1e-5)
    hard = F.gumbel_softmax(x, hard=True, dim=1).numpy()
    assert set(np.unique(hard.round(6))) == {0, 1}
    np.testing.assert_array_equal(hard.sum(1), 1)


def test_rrelu():
    x = metaop.tensor(-np.ones(1000))
    slopes = -F.rrelu(x, 0.2, 0.4, training=True).numpy()
    assert 0.2 <= slopes.min() < 0.21 and 0.39 < slopes.max() <= 0.4
    compare("rrelu", draw(3, 4))


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda x: F.glu(x, 0), ShapeError),
        (lambda x: F.softmax(x, 2), IndexError),
        (lambda x: F.gelu(x, "erf"), ArgumentError),
        (lambda x: F.hardtanh(x, 1, 0), ArgumentError),
        (lambda x: F.prelu(x, metaop.tensor(draw(3))), ShapeError),
    ],
)
def test_errors(call, error):
    with pytest.raises(error):
        call(metaop.tensor(draw(3, 4)))
