"""Functions have what their declarations say, under each of their names."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from operator import attrgetter
from typing import Any

import numpy as np
import pytest

import metaop
from metaop.errors import GradientError
from metaop.tensor.surface import DECLARED, attribute, method, public, synonym

torch = pytest.importorskip("torch")

RANDOM = np.random.default_rng(3)
Z, W = (RANDOM.normal(size=(2, 3)) + 1j * RANDOM.normal(size=(2, 3)) for _ in range(2))

# Second names of functions that take complex tensors.
SYNONYMS = {
    "absolute": (Z,),
    "concatenate": ([Z, W],),
    "conj_physical": (Z,),
    "divide": (Z, W),
    "moveaxis": (Z, 0, 1),
    "multiply": (Z, W),
    "negative": (Z,),
    "not_equal": (Z, W),
    "subtract": (Z, W),
    "swapdims": (Z, 0, 1),
    "true_divide": (Z, W),
}


@pytest.mark.parametrize("name", SYNONYMS)
def test_a_second_name_takes_complex_tensors(name: str) -> None:
    def result(library: object, make: Callable) -> np.ndarray:
        arguments = [
            [make(x) for x in value]
            if isinstance(value, list)
            else make(value)
            if isinstance(value, np.ndarray)
            else value
            for value in SYNONYMS[name]
        ]
        found = getattr(library, name)(*arguments)
        if hasattr(arguments[0], name):
            of_method = getattr(arguments[0], name)(*arguments[1:])
            np.testing.assert_array_equal(found.resolve_conj().numpy(), of_method.resolve_conj())
        return found.resolve_conj().numpy()

    np.testing.assert_allclose(
        result(metaop, metaop.tensor), result(torch, torch.from_numpy), rtol=1e-5
    )


def test_a_name_is_declared_once() -> None:
    def exp(input: metaop.Tensor) -> metaop.Tensor:
        return input

    for declare in (public(), method(), attribute()):
        with pytest.raises(ValueError, match=r"metaop.exp|Tensor.exp is declared twice"):
            declare(exp)
    with pytest.raises(ValueError, match=r"metaop\.log"):
        synonym("log", DECLARED["exp"].function)
    assert metaop.tensor([0.0]).exp().tolist() == [1.0]


def test_metaops_own_calls_do_not_pay_for_out() -> None:
    x = metaop.tensor([1.0], requires_grad=True)
    with pytest.raises(GradientError, match="out="):
        metaop.exp(x, out=metaop.empty(1))
    with pytest.raises(TypeError):
        DECLARED["exp"].function(x, out=metaop.empty(1))


@pytest.mark.parametrize(
    "call",
    [
        lambda x, array: metaop.nn.Linear(2, 2)(array),
        lambda x, array: metaop.nn.LSTM(2, 2)(array),
        lambda x, array: x.index_select(0, array),
        lambda x, array: x.mul_(array.tolist()),
        lambda x, array: metaop.masked.median(array, 1),
        lambda x, array: metaop.nn.functional.mse_loss(x, target=array),
        lambda x, array: metaop.matmul(array, x, out=x),
    ],
)
def test_modules_and_methods_name_an_argument_that_is_no_tensor(call: Any) -> None:
    """The functions stand in tests/parity/test_no_tensors.py."""
    with pytest.raises(
        TypeError, match=r"argument '\w+' \(position \d\)[^$]*test_surface"
    ) as raised:
        call(metaop.ones(2, 2), np.ones((2, 2), np.float32))
    assert __file__ in str(raised.value) and "fix: " in str(raised.value)


@pytest.mark.parametrize("name", ["exp", "relu", "matmul", "nn.functional.linear", "linalg.inv"])
def test_functions_are_pickled_by_their_public_name(name: str) -> None:
    function = attrgetter(name)(metaop)
    assert pickle.loads(pickle.dumps(function)) is function
