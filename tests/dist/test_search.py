"""Parallelism that the search finds by cost."""

from __future__ import annotations

from typing import Any

import metaop
from metaop.dist.sbp import BROADCAST, Split
from metaop.dist.search import auto_parallel, explain_plan


def step(w: Any, x: Any, g: Any) -> tuple[Any, Any]:
    """A step of a linear layer: the new weight and the result."""
    return w - 0.5 * (x.transpose(0, 1) @ g), x @ w


def test_much_data_and_a_small_weight_is_data_parallel() -> None:
    w, x, g = metaop.ones(16, 16), metaop.ones(65536, 16), metaop.ones(65536, 16)
    plan = auto_parallel(lambda w, x, g: step(w, x, g)[0], w, x, g, ranks=4, updated=[0])
    assert plan.given[1:3] == (Split(0), Split(0))
    text = explain_plan(plan, 4)
    assert "send" in text and "P -> " in text


def test_a_large_weight_and_little_data_is_tensor_parallel() -> None:
    w, x, g = metaop.ones(2048, 2048), metaop.ones(8, 2048), metaop.ones(8, 2048)
    plan = auto_parallel(lambda w, x, g: step(w, x, g)[0], w, x, g, ranks=4, updated=[0])
    assert isinstance(plan.given[0], Split)
    assert plan.states[0] == plan.given[0]
    assert not any(plan.boxes)


def test_what_is_replaced_comes_out_as_it_went_in() -> None:
    w, x, g = metaop.ones(4, 4), metaop.ones(4, 4), metaop.ones(4, 4)
    plan = auto_parallel(step, w, x, g, ranks=2, updated=[0])
    assert plan.states == (plan.given[0], BROADCAST)
