"""Contests of launches: turns, and who has no further ones."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from metaop.codegen.llvm.machine import host_machine
from metaop.codegen.llvm.timing_trial import Candidate, Memory, timing_trial
from metaop.compiler import schedule
from metaop.elementwise import apply
from metaop.operators.linear_algebra import matmul
from metaop.reindex import views
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.node import input_node


class Fake:
    """Takes the times that it is told."""

    def __init__(self, *times: float) -> None:
        self.times: Iterator[float] = iter(times)

    def turn(self) -> float:
        return next(self.times)


def times(*candidates: Fake, turns: int) -> np.ndarray:
    return timing_trial(candidates, 0.0, turns)  # type: ignore[arg-type]


def test_one_slow_turn_excludes_nobody() -> None:
    found = times(Fake(9.0, 1.0, 1.0, 1.0, 1.0), Fake(2.0, 2.0, 1.1, 2.0, 2.0), turns=5)
    assert found.min(0).tolist() == [1.0, 1.1]
    assert np.isfinite(found).all()


def test_who_is_slow_in_all_of_the_first_turns_has_no_others() -> None:
    found = times(Fake(*[1.0] * 9), Fake(*[2.0] * 4), turns=9)
    assert found.shape == (9, 2)
    assert np.isfinite(found).sum(0).tolist() == [9, 4]


def test_contestants_compute_what_they_were_launched_for() -> None:
    """Rows chosen by an index, which is 0 everywhere, go through a product."""
    left, right = (input_node(k, (40, 40), dtypes.float32) for k in range(2))
    rows = input_node(2, (24,), dtypes.int64)
    output = matmul(views.take(left, 0, rows), apply("relu", right))
    plan = schedule([left, right, rows], [output], host_machine())
    memory = Memory()
    assert Candidate(plan.launches, memory).turn() > 0
    a, b = (memory.of(node).view((40, 40), np.float32) for node in (left, right))
    wanted = np.tile(a[0], (24, 1)).astype(np.float64) @ np.maximum(b, 0)
    found = memory.of(output).view((24, 40), np.float32)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
    assert wanted.any()
