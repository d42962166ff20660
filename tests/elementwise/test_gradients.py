"""Every gradient row against finite differences of the NumPy reference, to second order."""

from __future__ import annotations

import numpy as np
import pytest

from metaop.elementwise.functions import FUNCTIONS
from metaop.elementwise.meta_op import Elementwise
from metaop.unified_graph.dtype import float64
from metaop.unified_graph.node import Node, input_node
from tests.elementwise.interpreter import backward, evaluate

_COUNT = 64
# squared_deviation has its gradient as a summand of a variance only; the others take no floats, or
# have no derivative.
_OTHER = ("where", "cast", "squared_deviation")
_DIFFERENTIABLE = [
    row
    for row in FUNCTIONS.values()
    if row.gradient is not None and "float" in row.accepts and row.name not in _OTHER
]
_STEP = 1e-5


def _draws(row, generator):
    return [generator.uniform(low, high, _COUNT) for low, high in row.domain]


def _inputs(count, first_slot=0):
    return [input_node(first_slot + slot, (_COUNT,), float64) for slot in range(count)]


def _slope(function, values, position):
    """The derivative by a central difference of fourth order."""

    def shifted(steps):
        moved = list(values)
        moved[position] = moved[position] + steps * _STEP
        return function(moved)

    return (8 * (shifted(1) - shifted(-1)) - (shifted(2) - shifted(-2))) / (12 * _STEP)


def _assert_close(actual, expected):
    # A difference that steps over a kink or a jump says nothing; those are a few of the draws.
    wrong = ~np.isclose(actual, expected, rtol=1e-5, atol=1e-5)
    assert wrong.sum() <= 1, (actual[wrong], expected[wrong])


@pytest.mark.parametrize("row", _DIFFERENTIABLE, ids=repr)
def test_first_derivatives(row):
    generator = np.random.default_rng(1)
    values, g_value = _draws(row, generator), generator.normal(size=_COUNT)
    inputs, g = _inputs(row.arity), input_node(9, (_COUNT,), float64)
    y = Node(Elementwise(row), inputs, (_COUNT,), float64)
    cotangents = backward(y, g, inputs)
    bound = dict(zip(inputs, values)) | {g: g_value}
    for position, cotangent in enumerate(cotangents):
        expected = g_value * _slope(lambda moved: row.numpy(*moved), values, position)
        actual = evaluate([cotangent], bound)[0] if cotangent is not None else np.zeros(_COUNT)
        _assert_close(actual, expected)


@pytest.mark.parametrize("row", _DIFFERENTIABLE, ids=repr)
def test_second_derivatives(row):
    generator = np.random.default_rng(2)
    values, g_value = _draws(row, generator), generator.normal(size=_COUNT)
    inputs, g = _inputs(row.arity), input_node(9, (_COUNT,), float64)
    y = Node(Elementwise(row), inputs, (_COUNT,), float64)
    seed, seed_value = input_node(10, (_COUNT,), float64), generator.normal(size=_COUNT)
    for first in backward(y, g, inputs):
        if first is None:
            continue
        seconds = backward(first, seed, [*inputs, g])
        _check_second(first, seconds, [*inputs, g], [*values, g_value], seed, seed_value)


def _check_second(first, seconds, inputs, values, seed, seed_value):
    def of_first(moved):
        return evaluate([first], dict(zip(inputs, moved)))[0]

    bound = dict(zip(inputs, values)) | {seed: seed_value}
    for position, second in enumerate(seconds):
        expected = seed_value * _slope(of_first, values, position)
        actual = evaluate([second], bound)[0] if second is not None else np.zeros(_COUNT)
        _assert_close(actual, expected)
