"""Fifty convolutions in a row: the rounding of results and gradients, beside PyTorch's float32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import metaop

torch = pytest.importorskip("torch")

DEPTH = 50
# Winograd's method rounds at most so many times as much as plain sums (docs/rounding.md).
MOST = 4
# Errors of single results scatter: the corners of tiles have up to 1.6 times the mean error.
MOST_OF_ONE = 6.5

# A convolution of a value by the weight of a number, and all that follows it.
Layer = Callable[[Any, int], Any]


class Case(NamedTuple):
    """A chain of some form; `rectified` layers are normalised too."""

    form: str
    channels: int
    side: int
    batch: int
    rectified: bool

    def __str__(self) -> str:
        return f"{self.form}-{self.channels}x{self.side}-{'bn-relu' if self.rectified else 'bare'}"


CASES = [
    Case("plain", 96, 20, 1, False),
    Case("plain", 32, 16, 2, True),
    Case("residual", 32, 16, 2, False),
    Case("residual", 32, 16, 2, True),
    Case("aggregation", 32, 16, 2, False),
    Case("aggregation", 32, 16, 2, True),
]


def plain(layer: Layer, join: Callable[[list[Any]], Any], x: Any) -> Any:
    for number in range(DEPTH):
        x = layer(x, number)
    return x


def residual(layer: Layer, join: Callable[[list[Any]], Any], x: Any) -> Any:
    for number in range(0, DEPTH, 2):
        x = x + layer(layer(x, number), number + 1)
    return x


def aggregation(layer: Layer, join: Callable[[list[Any]], Any], x: Any) -> Any:
    """Two layers and what they read, side by side, are summed by a convolution of one tap."""
    for number in range(0, DEPTH, 2):
        first = layer(x, number)
        x = layer(join([x, first, layer(first, number + 1)]), DEPTH + number // 2)
    return x


FORMS = {"plain": plain, "residual": residual, "aggregation": aggregation}


class Values(NamedTuple):
    """What a chain computes, and where its rectifiers let numbers pass."""

    result: np.ndarray
    by_input: np.ndarray
    by_weight: list[np.ndarray]
    passed: list[np.ndarray]


def computed(
    case: Case, arrays: list[np.ndarray], library: Any, passed: list[np.ndarray] | None = None
) -> Values:
    """A chain in the types of the arrays; its rectifiers pass what is told, else what is positive.

    A number that rounds to the other side of zero changes the gradient by more than any rounding.
    So the exact chain passes what the other one did, and both are on the same piece.
    """
    functional, tensors = library.nn.functional, [library.tensor(array) for array in arrays]
    gradient, x, *weights = tensors
    for tensor in (x, *weights):
        tensor.requires_grad = True
    rectified: list[Any] = []

    def rectify(y: Any) -> Any:
        if passed is None:
            rectified.append(functional.relu(y))
            return rectified[-1]
        return y * library.tensor(passed[len(rectified)].astype(arrays[0].dtype))

    def layer(y: Any, number: int) -> Any:
        weight = weights[number]
        y = functional.conv2d(y, weight, padding=weight.shape[-1] // 2)
        if not case.rectified:
            return y
        y = rectify(functional.batch_norm(y, None, None, training=True))
        if passed is not None:
            rectified.append(y)
        return y

    result = FORMS[case.form](layer, lambda parts: library.cat(parts, 1), x)
    (result * gradient).sum().backward()
    by_input, *by_weight = (tensor.grad.numpy() for tensor in (x, *weights))
    signs = [y.detach().numpy() > 0 for y in rectified]
    return Values(result.detach().numpy(), by_input, by_weight, signs)


def inputs(case: Case) -> list[np.ndarray]:
    """The gradient of the result, the input of a chain and its weights, of all layers alike."""
    random = np.random.default_rng(0)
    shape = (case.batch, case.channels, case.side, case.side)
    shapes = [(case.channels, case.channels, 3, 3)] * DEPTH
    if case.form == "aggregation":
        shapes += [(case.channels, 3 * case.channels, 1, 1)] * (DEPTH // 2)
    scales = [1.0, 1.0, *(np.sqrt(1 / np.prod(weight[1:])) for weight in shapes)]
    return [
        (random.standard_normal(each) * scale).astype(np.float32)
        for each, scale in zip([shape, shape, *shapes], scales)
    ]


def errors(case: Case, arrays: list[np.ndarray], library: Any) -> np.ndarray:
    """How far result and gradients are from those in float64: in all, and the farthest number."""
    found = computed(case, arrays, library)
    exact = computed(case, [array.astype(np.float64) for array in arrays], torch, found.passed)
    pairs = [
        (found.result, exact.result),
        (found.by_input, exact.by_input),
        *zip(found.by_weight, exact.by_weight),
    ]
    return np.array(
        [
            (
                np.linalg.norm(value - wanted) / np.linalg.norm(wanted),
                np.abs(value - wanted).max() / np.abs(wanted).max(),
            )
            for value, wanted in pairs
        ]
    )


@pytest.mark.parametrize("case", CASES, ids=str)
def test_deep_chains_round_little_more_than_with_pytorch(case: Case) -> None:
    arrays = inputs(case)
    found, usual = errors(case, arrays, metaop), errors(case, arrays, torch)
    assert (found[:, 0] <= MOST * usual[:, 0]).all()
    assert (found[:, 1] <= MOST_OF_ONE * usual[:, 1]).all()
