"""Reductions over a triangle are recognised, whatever the gradient has made of what they reduce."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

import metaop
from metaop.codegen import reference
from metaop.compiler import schedule
from metaop.elementwise import apply
from metaop.execution.executor import pending_subgraph
from metaop.fusion.triangles import Triangle, triangle_of
from metaop.fusion.two_stages import cut_scans, in_two_stages, with_short_scans
from metaop.reduce.meta_op import reduce_axes
from metaop.reduce.triangle import reduce_triangle
from metaop.reindex.meta_op import reindex
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.access import IndexMap, Within
from metaop.unified_graph.node import Node, input_node, topological

N = 150
X, Y = input_node(0, (N,), dtypes.float64), input_node(1, (N,), dtypes.float64)
AXES = IndexMap.axes((N, N))


def along(source: Node, dim: int) -> Node:
    """`source` along one of two axes, the same along the other."""
    return reindex(source, IndexMap((N, N), [AXES[dim]]))


def masked(source: Node, dim: int = 1) -> Node:
    """The same, zero where the second index is larger."""
    return reindex(source, IndexMap((N, N), [AXES[dim]], [Within(AXES[0] - AXES[1], N)]), 0)


def summed(term: Node) -> Node:
    return reduce_axes("add", term, [1])


SCANS: dict[str, Callable[[], Node]] = {
    "plain": lambda: summed(masked(X)),
    "a product": lambda: summed(masked(X) * along(Y, 1)),
    "both factors": lambda: summed(masked(X) * masked(Y)),
    "a product of three": lambda: summed(along(Y, 1) * (apply("neg", masked(X)) * 2.0)),
    "a function of the other": lambda: summed(masked(X) * apply("exp", along(Y, 1))),
}
OTHERS: dict[str, Callable[[], Node]] = {
    "a factor of the result": lambda: summed(masked(X) * along(Y, 0)),
    "a sum": lambda: summed(masked(X) + along(Y, 1)),
    "a function of zero": lambda: summed(apply("exp", masked(X))),
    "no mask": lambda: summed(along(X, 1) * along(Y, 1)),
    "the result's own": lambda: summed(masked(X, 0)),
}


def no_buffer(node: Node) -> bool:
    return node in (X, Y)


@pytest.mark.parametrize("name", SCANS)
def test_scans_are_recognised_and_cut(name: str) -> None:
    node = SCANS[name]()
    assert triangle_of(node, no_buffer) == Triangle(0, 1, False)
    (cut,) = in_two_stages([node], cut_scans, 1)
    assert max(one.size for one in topological([cut])) < N * N
    values = [np.random.default_rng(0).standard_normal(N) for _ in range(2)]
    for found in (cut, node):
        (result,) = reference.evaluate([found], values)
        x, y = values
        terms = {
            "plain": x,
            "a product": x * y,
            "both factors": x * y,
            "a product of three": -2 * x * y,
            "a function of the other": x * np.exp(y),
        }
        np.testing.assert_allclose(result, np.cumsum(terms[name]), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", OTHERS)
def test_others_are_not(name: str) -> None:
    assert triangle_of(OTHERS[name](), no_buffer) is None


@pytest.mark.parametrize("backwards", (False, True))
def test_products_are_not_scans_of_maxima(backwards: bool) -> None:
    wide = reduce_triangle("max", X, 0, backwards)
    assert triangle_of(wide, no_buffer) == Triangle(0, 1, backwards)
    term = wide.inputs[0] * along(Y, 1)
    assert triangle_of(reduce_axes("max", term, [1]), no_buffer) is None


@pytest.mark.parametrize("scan", ["cumsum", "cumprod"])
@pytest.mark.parametrize("loss", ["square", "tanh", "product", "mean"])
def test_gradients_of_scans_take_linear_time(loss: str, scan: str) -> None:
    """No kernel goes through all pairs of elements."""
    x = metaop.tensor(np.random.default_rng(0).standard_normal(5000), requires_grad=True)
    y = getattr(x, scan)(0)
    losses = {
        "square": lambda: (y**2).sum(),
        "tanh": lambda: y.tanh().sum(),
        "product": lambda: (y * x).exp().sum() * 1e-9,
        "mean": lambda: y.mean(),
    }
    losses[loss]().backward()
    inputs, outputs = pending_subgraph([x.grad.call]).expand()
    plan = schedule(inputs, outputs)
    assert sum(launch.operations for launch in plan.launches) < 5000 * 1000
    short = with_short_scans(outputs)
    assert max(node.size for node in topological(short)) <= 5000**2


@pytest.mark.parametrize("zeros", [(), (2,), (0, 4, 5)])
def test_running_products_are_scans_whose_derivatives_know_zeros(zeros: tuple[int, ...]) -> None:
    numbers = np.random.default_rng(0).standard_normal((3, 7))
    numbers[1, list(zeros)] = 0
    plain = metaop.tensor(numbers).cumprod(1)
    inputs, outputs = pending_subgraph([plain.call]).expand()
    assert [launch.nest.name for launch in schedule(inputs, outputs).launches] == ["scan_mul"]
    found = []
    for T in (metaop, torch):
        x = T.tensor(numbers, requires_grad=True)
        y = x.cumprod(1)
        (slope,) = T.autograd.grad((y * y).sum() + y[:, 3].sum(), x, create_graph=True)
        (second,) = T.autograd.grad((slope * slope).sum(), x)
        found.append([np.array(one.tolist()) for one in (y, slope, second)])
    for actual, expected in zip(*found):
        np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=1e-9)


def test_long_scans_need_no_square_of_memory_node_by_node() -> None:
    x = metaop.ones(100_000, requires_grad=True)
    (x.cumsum(0) ** 2).mean().backward()
    _, outputs = pending_subgraph([x.grad.call]).expand()
    assert max(node.size for node in topological(with_short_scans(outputs))) < 10**8
