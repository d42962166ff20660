"""Sums over channels before those over shifts mean what they meant together."""

from __future__ import annotations

import numpy as np
import pytest

from metaop.differentiation.transposition import pullback
from metaop.fusion.simplify import simplify
from metaop.fusion.unshifted import sum_before_shift
from metaop.operators.convolution import convolution
from metaop.reduce.meta_op import Reduce
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.evaluation import evaluate
from metaop.unified_graph.node import Node, Shape, input_node, topological


def gradient_by_input(
    image: Shape, window: Shape, stride: int = 1, padding: int = 0
) -> tuple[list[Node], Node]:
    """The inputs and the output of the gradient of a convolution by its input."""
    axes = len(image) - 2
    x, w = input_node(0, image, dtypes.float32), input_node(1, window, dtypes.float32)
    pads, ones = (padding,) * axes, (1,) * axes
    y = convolution(x, w, None, (stride,) * axes, pads, pads, ones, 1)
    g = input_node(2, y.shape, dtypes.float32)
    found, _ = pullback([y], [g], [x, w])
    assert found is not None
    (gathered,) = simplify([found])
    return [x, w, g], gathered


def terms(output: Node) -> int:
    """The elements that all reductions together reduce."""
    return sum(x.inputs[0].size for x in topological([output]) if isinstance(x.op, Reduce))


@pytest.mark.parametrize(
    "image, window, stride",
    [
        ((4, 8, 12, 12), (16, 8, 5, 5), 1),
        ((4, 8, 12, 12), (16, 8, 5, 5), 2),
        ((2, 6, 5, 7), (9, 6, 3, 3), 1),
        ((3, 5, 9), (16, 5, 6), 1),
        ((2, 4, 4, 5, 4), (8, 4, 3, 3, 3), 1),
        ((1, 8, 6, 1), (16, 8, 4, 1), 1),
    ],
)
def test_products_outside_an_image_are_not_summed(image: Shape, window: Shape, stride: int) -> None:
    inputs, output = gradient_by_input(image, window, stride)
    (found,) = sum_before_shift([output])
    assert found is not output
    assert terms(found) < terms(output)
    assert (found.shape, found.dtype) == (output.shape, output.dtype)
    random = np.random.default_rng(0)
    arrays = [random.integers(-4, 5, x.shape).astype(np.float32) for x in inputs]
    for wanted, other in zip(evaluate([output], arrays), evaluate([found], arrays), strict=True):
        np.testing.assert_array_equal(other, wanted)


@pytest.mark.parametrize(
    "image, window, options",
    [
        pytest.param((4, 8, 40, 40), (16, 8, 3, 3), {}, id="few shifts leave a large image"),
        pytest.param((4, 8, 12, 12), (16, 8, 5, 5), {"padding": 2}, id="shifts of an image padded"),
        pytest.param((4, 8, 12, 12), (1, 8, 5, 5), {}, id="there are no channels to sum"),
        pytest.param((4000, 8, 12, 12), (16, 8, 5, 5), {}, id="the sums would take much memory"),
    ],
)
def test_other_contractions_are_left_alone(
    image: Shape, window: Shape, options: dict[str, int]
) -> None:
    _, output = gradient_by_input(image, window, **options)
    assert sum_before_shift([output]) == [output]
