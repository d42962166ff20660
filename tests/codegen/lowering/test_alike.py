"""Kernels that are alike are lowered once, and only those."""

from __future__ import annotations

from collections.abc import Callable, Hashable

import numpy as np
import pytest

from metaop.codegen.llvm.machine import host_machine
from metaop.codegen.lowering import LoweredKernel, alike
from metaop.compiler import schedule
from metaop.elementwise import apply
from metaop.operators.linear_algebra import matmul
from metaop.reduce.meta_op import reduce_axes
from metaop.reindex import views
from metaop.unified_graph.dtype import float32, float64
from metaop.unified_graph.node import Node, input_node
from tests.codegen.interpret import run_schedule


@pytest.fixture
def lowered(monkeypatch: pytest.MonkeyPatch) -> list[LoweredKernel]:
    """The launches of all kernels that were lowered and not found."""
    found: list[LoweredKernel] = []

    def noting(*arguments: object) -> list[LoweredKernel]:
        launches = lower(*arguments)
        found.extend(launches)
        return launches

    lower: Callable[..., list[LoweredKernel]] = alike.lower_by
    monkeypatch.setattr(alike, "lower_by", noting)
    return found


def _normalised(x: Node) -> Node:
    return x / reduce_axes("add", apply("exp", x), [1], keepdim=True)


def test_steps_of_a_recurrence_and_layers_are_lowered_once(lowered: list[LoweredKernel]) -> None:
    x = input_node(0, (40, 24), float32)
    weights = [input_node(k, (24, 24), float32) for k in range(1, 9)]
    value = x
    for weight in weights:
        value = _normalised(apply("tanh", matmul(value, weight)))
    plan = schedule([x, *weights], [value], host_machine())
    # A product, and what follows it; both also for the first or the last layer.
    assert len(lowered) <= 6
    assert len(plan.launches) >= 16
    random = np.random.default_rng(0)
    arrays = [random.standard_normal(node.shape).astype(np.float32) for node in plan.inputs]
    wanted = arrays[0].astype(np.float64)
    for array in arrays[1:]:
        wanted = np.tanh(wanted @ array)
        wanted /= np.exp(wanted).sum(1, keepdims=True)
    (found,) = run_schedule(plan, arrays)
    np.testing.assert_allclose(found.reshape(wanted.shape), wanted, rtol=1e-3, atol=1e-5)


def _key(node: Node) -> Hashable:
    inputs = [input_node(k, (6, 8 + (k > 2)), (float32, float64)[k == 2]) for k in range(4)]
    plan = schedule(inputs, [node], host_machine())
    assert plan.storage is not None
    (kernel,) = plan.kernels
    return alike._Form(kernel, plan.storage, {}).key


def test_what_differs_in_more_than_buffers_is_not_alike() -> None:
    x, y = input_node(0, (6, 8), float32), input_node(1, (6, 8), float32)
    z, longer = input_node(2, (6, 8), float64), input_node(3, (6, 9), float32)
    part, later = (views.slice_dimension(longer, 1, start, 8) for start in (0, 1))
    assert _key(_normalised(x)) == _key(_normalised(y))
    assert _key(_normalised(x + y)) == _key(_normalised(y + x))
    given = [x, z, longer, x + x, x + y, x - y, part, later]
    assert len(set(map(_key, map(_normalised, given)))) == len(given)
