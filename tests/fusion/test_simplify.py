"""Rewrites of single nodes: sums of views that repeat elements."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import metaop
from metaop.execution.executor import pending_subgraph
from metaop.fusion.simplify import simplify
from metaop.reduce import reduce_axes
from metaop.reduce.meta_op import Reduce
from metaop.reindex.meta_op import reindex
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.access import IndexMap, Within
from metaop.unified_graph.evaluation import evaluate
from metaop.unified_graph.node import Node, constant, input_node, topological

# Convolutions by the dimensions of an image: channels, the shape of filters, and options.
CONVOLUTIONS = {
    "plain": (6, (5, 6, 3, 3), {"padding": 1}),
    "strided": (6, (5, 6, 3, 3), {"padding": 1, "stride": 2}),
    "dilated": (6, (5, 6, 3, 3), {"padding": 2, "dilation": 2}),
    "in groups": (6, (4, 3, 3, 3), {"groups": 2}),
    "depthwise": (6, (6, 1, 3, 3), {"padding": 1, "groups": 6}),
    "along lines": (6, (5, 6, 7), {"padding": 3}),
    "in space": (4, (3, 4, 3, 2, 3), {"padding": 1}),
}


def elements(outputs: list[Node]) -> int:
    """The elements that all reductions together reduce."""
    return sum(x.inputs[0].size for x in topological(outputs) if isinstance(x.op, Reduce))


@pytest.mark.parametrize("name", CONVOLUTIONS)
@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_gradients_of_summed_convolutions(name: str, reduction: str) -> None:
    channels, filters, options = CONVOLUTIONS[name]
    random, size = np.random.default_rng(0), (9, 11, 6)[: len(filters) - 2]
    image = random.standard_normal((3, channels, *size)).astype(np.float32)
    weight = random.standard_normal(filters).astype(np.float32)
    found = []
    for lib in (metaop, torch):
        x, w = (lib.tensor(value, requires_grad=True) for value in (image, weight))
        convolve: Any = getattr(lib.nn.functional, f"conv{len(size)}d")
        getattr(convolve(x, w, **options), reduction)().backward()
        found.append((x.grad.numpy(), w.grad.numpy()))
    for ours, theirs in zip(*found):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_what_is_repeated_is_summed_before() -> None:
    x, w = (
        metaop.tensor(np.ones(shape, np.float32), requires_grad=True)
        for shape in ((4, 32, 28, 28), (16, 32, 3, 3))
    )
    metaop.nn.functional.conv2d(x, w, padding=1).sum().backward()
    assert x.grad is not None and w.grad is not None
    gradients = [x.grad, w.grad]
    subgraph = pending_subgraph([gradient._call for gradient in gradients])
    _, outputs = subgraph.expand()
    # The convolution itself has 4 * 16 * 28 * 28 * 32 * 9 products, each gradient as many.
    assert elements(simplify(outputs)) < 4 * 16 * 28 * 28 * 32 * 9 // 10


@pytest.mark.parametrize("factor", [None, 0.5])
def test_values_of_guarded_views(factor: float | None) -> None:
    """Sums over the rows of a matrix, shown at shifted places, some of which are outside."""
    x = input_node(0, (7, 10), dtypes.float32)
    box = (4, 10, 7, 3)
    _, column, row, tap = IndexMap.axes(box)
    place = column + tap - 1
    view = reindex(x, IndexMap(box, [row, place], [Within(place, 10)]), 0)
    term = view if factor is None else view * constant(factor, dtypes.float32, box)
    total = reduce_axes("add", term, (2, 3))
    (simplified,) = simplify([total])
    assert elements([simplified]) <= 70 + 30
    values = np.random.default_rng(0).standard_normal((7, 10)).astype(np.float32)
    wanted, got = (evaluate([node], [values])[0] for node in (total, simplified))
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


def test_rows_that_are_not_repeated_stay() -> None:
    x = input_node(0, (7, 10), dtypes.float32)
    total = reduce_axes("add", reindex(x, IndexMap((7, 9), IndexMap.axes((7, 9)))), (0, 1))
    (simplified,) = simplify([total])
    assert len([x for x in topological([simplified]) if isinstance(x.op, Reduce)]) == 1
