"""Contractions under masks that compare positions: sums of what matters, against the whole."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest

from metaop.codegen.llvm.machine import host_machine
from metaop.codegen.lowering.machine import WITH_FEWER_PRODUCTS, Machine
from metaop.codegen.nest import ir
from metaop.compiler import schedule
from metaop.operators.linear_algebra import matmul
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.node import Node, input_node
from tests.codegen.interpret import run_schedule
from tests.codegen.run_plan import run, values
from tests.fusion.test_masks import DEPTH, ROWS, SCORES, SHAPE, K, Q, V, at, kept, softmax, where

ROW, COLUMN = np.indices(SHAPE)
Masked = tuple[Callable[[Node], Node], Callable[[np.ndarray], np.ndarray]]


def exact_softmax(scores: np.ndarray) -> np.ndarray:
    powers = np.exp(scores - scores.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


MASKED: dict[str, Masked] = {
    "causal": (
        lambda x: softmax(kept(x, -math.inf)),
        lambda x: exact_softmax(np.where(COLUMN <= ROW, x, -np.inf)),
    ),
    "before": (lambda x: kept(x, 0.0, -9), lambda x: np.where(COLUMN <= ROW - 9, x, 0)),
    "behind": (
        lambda x: where(at(1) >= at(0) - 30, x, 0.0),
        lambda x: np.where(COLUMN >= ROW - 30, x, 0),
    ),
    "a band": (
        lambda x: kept(x, 0.0, 5) * where(at(0) < at(1) + 7, x, 0.0),
        lambda x: np.where((COLUMN <= ROW + 5) & (ROW < COLUMN + 7), x * x, 0),
    ),
    "nothing": (lambda x: kept(x, 0.0, -200), lambda x: 0 * x),
}


@pytest.mark.parametrize("name", MASKED)
@pytest.mark.parametrize("is_turned", [False, True])
def test_sums_are_those_of_the_whole(name: str, is_turned: bool, target: str) -> None:
    masked, exact = MASKED[name]
    third = input_node(2, (DEPTH, ROWS), dtypes.float32) if is_turned else V
    nodes, weights = [Q, K, third], masked(SCORES)
    output = matmul(third, weights) if is_turned else matmul(weights, third)
    arrays = values(nodes)
    q, k, v = (array.astype(np.float64) for array in arrays)
    wanted = v @ exact(q @ k) if is_turned else exact(q @ k) @ v
    tolerance = 1e-5 * max(np.abs(wanted).max(), 1)
    plan = schedule(nodes, [output], Machine(without=("thin", *WITH_FEWER_PRODUCTS)))
    names = [one.name for launch in plan.launches for one in bound(launch.nest.body)]
    assert {name.rstrip("0123456789") for name in names} & {"skipped", "stop", "taken"}
    (found,) = run_schedule(plan, arrays)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=tolerance)
    found = run(schedule(nodes, [output], host_machine()), arrays, output)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=tolerance)


def bound(body: Sequence[ir.Statement]) -> Iterator[ir.Let]:
    """The names that statements bind."""
    for one in body:
        if isinstance(one, ir.For):
            yield from bound(one.body)
        elif isinstance(one, ir.Let):
            yield one
