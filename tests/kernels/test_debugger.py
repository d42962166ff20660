"""Kernels are stepped through: where tasks stand, what they hold, and what the end is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import metaop
from metaop.errors import ArgumentError, KernelError
from metaop.kernels import barrier, kernel, lanes, scratch, shared, task, tasks

X = lambda x: x  # noqa: E731
LENGTH = lambda x: x.shape[0]  # noqa: E731


@kernel(tasks=LENGTH, outputs=X)
def below_mean(x: Any, y: Any) -> None:
    means = shared(tasks(), x.dtype)
    row = scratch(x.shape[1], x.dtype)
    total = 0.0
    for k in lanes(x.shape[1]):
        row[k] = x[task(), k]
        total += row[k]
    means[task()] = total / x.shape[1]
    barrier()
    for k in lanes(x.shape[1]):
        y[task(), k] = means[tasks() - 1 - task()] - x[task(), k]


FIRST = below_mean.__wrapped__.__code__.co_firstlineno + 2
BARRIER = FIRST + 7
VALUES = np.arange(6, dtype=np.float32).reshape(3, 2)


def test_statements_one_by_one() -> None:
    run = below_mean.debug(metaop.from_numpy(VALUES))
    assert [run.line(k) for k in range(3)] == [FIRST] * 3 and "row" not in run.values(0)
    run.step()
    run.step(task=1)
    assert [run.line(k) for k in range(3)] == [FIRST + 1, FIRST + 2, FIRST + 1]
    assert np.ma.getmaskarray(run.values(1)["row"]).all()
    for _ in range(3):
        run.step(task=1)
    assert run.values(1)["row"].tolist() == [2, None]
    run.step(task=1)
    run.step(task=1)
    values = run.values(1)
    assert values["row"].tolist() == [2, 3] and values["total"] == 2 and values["k"] == 1


def test_lanes_of_several_tasks_do_not_disturb_each_other() -> None:
    run = below_mean.debug(metaop.from_numpy(VALUES))
    for _ in range(20):
        for one in (2, 0, 1):
            if run.line(one) != BARRIER:
                run.step(task=one)
    assert [run.values(one)["total"] for one in range(3)] == [1, 5, 9]


def test_barriers() -> None:
    run = below_mean.debug(metaop.from_numpy(VALUES))
    run.to_line(BARRIER)
    assert {run.line(k) for k in range(3)} == {BARRIER} and not run.is_done
    run.to_barrier()
    assert run.values(2)["means"].tolist() == [0.5, 2.5, 4.5]
    assert run.values(2)["row"].tolist() == [4, 5]
    run.step(task=0)  # all pass
    assert {run.line(k) for k in range(3)} == {BARRIER + 1}
    run.to_barrier()
    assert run.is_done and run.line(1) is None
    assert run.values(1)["y"].tolist() == [[4.5, 3.5], [0.5, -0.5], [-3.5, -4.5]]


def test_the_result_is_that_of_the_compiled_kernel() -> None:
    x = metaop.randn(5, 4)
    run = below_mean.debug(x)
    run.to_line(FIRST + 5)
    np.testing.assert_allclose(run.result(), below_mean(x).numpy(), rtol=1e-6, atol=1e-6)


def test_the_text_with_the_tasks() -> None:
    run = below_mean.debug(metaop.ones(6, 2))
    for one in (0, 1, 2, 5):
        run.step(task=one)
    lines = repr(run).splitlines()
    assert lines[0] == "below_mean: 6 tasks, 0 ended"
    marked = [line.split(">") for line in lines if ">" in line and "->" not in line]
    assert [(where.strip(), int(text.split()[0])) for where, text in marked] == [
        ("3-4", FIRST), ("0-2,5", FIRST + 1)
    ]  # fmt: skip


def test_a_task_that_waits_is_refused_alone() -> None:
    run = below_mean.debug(metaop.ones(3, 2))
    while run.line(1) != BARRIER:
        run.step(task=1)
    run.step(task=1)
    with pytest.raises(KernelError, match="task 1 waits at a barrier for 0,2"):
        run.step(task=1)
    with pytest.raises(ArgumentError, match="no task 3"):
        run.values(3)


@kernel(tasks=LENGTH, outputs=X)
def disturbed(x: Any, y: Any) -> None:
    y[task() // 2] = x[task()]


def test_errors_come_where_they_happen_and_again_at_the_end() -> None:
    run = disturbed.debug(metaop.ones(4))
    run.step(task=0)
    with pytest.raises(KernelError, match="a race: task 1 writes"):
        run.step(task=1)
    with pytest.raises(KernelError, match="a race"):
        run.result()
