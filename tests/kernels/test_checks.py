"""Accesses outside of memories are found in every mode; races and unwritten memory by `check`."""

from __future__ import annotations

from typing import Any

import pytest

import metaop
from metaop.errors import KernelError
from metaop.kernels import Output, atomic_add, barrier, kernel, lanes, scratch, shared, task, tasks

X = lambda x: x  # noqa: E731
LENGTH = lambda x: x.shape[0]  # noqa: E731


def line_of(made: Any, offset: int) -> str:
    """Where the body of a kernel says something: `offset` lines below its decorator."""
    return f"{__file__}:{made.__wrapped__.__code__.co_firstlineno + offset}"


@kernel(tasks=LENGTH, outputs=X)
def neighbour(x: Any, y: Any) -> None:
    y[task()] = x[task() + 1]


@kernel(tasks=LENGTH, outputs=X)
def beyond(x: Any, y: Any) -> None:
    y[task() + 1] = x[task()]


@kernel(tasks=1, outputs=lambda index: (index.shape, metaop.float32))
def looked_up(index: Any, y: Any) -> None:
    table = scratch(3, metaop.float32)
    for k in lanes(3):
        table[k] = k
    for k in lanes(index.shape[0]):
        y[k] = table[index[k]]


def test_indices_outside_are_found_when_compiled() -> None:
    with pytest.raises(IndexError, match=r"index 4 is out of range.*x, which has size 4"):
        neighbour(metaop.ones(4)).numpy()
    with pytest.raises(IndexError, match=line_of(beyond, 2)):
        beyond(metaop.ones(4)).numpy()
    for bad in (-1, 3, 1 << 40):
        with pytest.raises(IndexError, match=f"index {bad} is out of range"):
            looked_up(metaop.tensor([0, 1, 2] * 20 + [bad])).numpy()
    assert looked_up(metaop.tensor([2, 0, 1])).tolist() == [2, 0, 1]


def test_indices_outside_are_found_when_interpreted() -> None:
    with pytest.raises(IndexError, match=f"in task 3 at {line_of(neighbour, 2)}"):
        neighbour.check(metaop.ones(4))


@kernel(tasks=LENGTH, outputs=X)
def guarded(x: Any, y: Any) -> None:
    i = task()
    y[i] = (x[i - 1] if i > 0 else 0) + (x[i + 1] if i < tasks() - 1 else 0)
    if i >= 2 and x[i - 2] == 1:
        y[i] = -y[i]


def test_conditions_protect() -> None:
    x = metaop.tensor([1.0, 2, 3, 4, 5])
    assert guarded(x).tolist() == guarded.check(x).tolist() == [2, 4, -6, 8, 4]


@kernel(tasks=LENGTH, outputs=X)
def two_write_one(x: Any, y: Any) -> None:
    y[task() // 2] = x[task()]


@kernel(tasks=LENGTH, outputs=X)
def reads_what_another_writes(x: Any, y: Any) -> None:
    y[task()] = x[task()]
    y[task()] = y[(task() + 1) % tasks()]


@kernel(tasks=LENGTH, outputs=X)
def no_barrier(x: Any, y: Any) -> None:
    total = shared(x.shape, x.dtype)
    total[task()] = x[task()]
    y[task()] = total[tasks() - 1 - task()]


@kernel(tasks=LENGTH, outputs=lambda x: Output((1,), x.dtype, 0))
def plain_beside_atomic(x: Any, y: Any) -> None:
    atomic_add(y, 0, x[task()])
    if task() == 2:
        y[0] = 5


@kernel(tasks=1, outputs=X)
def lanes_disturb(x: Any, y: Any) -> None:
    y[0] = x[0]
    for i in lanes(x.shape[0] - 1):
        y[i + 1] = y[i] + x[i]


@pytest.mark.parametrize(
    ("made", "offset"),
    ((two_write_one, 2), (reads_what_another_writes, 3), (no_barrier, 4),
     (plain_beside_atomic, 4), (lanes_disturb, 4)),
)  # fmt: skip
def test_races(made: Any, offset: int) -> None:
    with pytest.raises(KernelError, match="a race: |before it is written") as caught:
        made.check(metaop.ones(6))
    assert line_of(made, offset) in str(caught.value)


@kernel(tasks=LENGTH, outputs=X)
def with_barrier(x: Any, y: Any) -> None:
    total = shared(x.shape, x.dtype)
    total[task()] = x[task()]
    barrier()
    y[task()] = total[tasks() - 1 - task()]


def test_a_barrier_makes_it_right() -> None:
    x = metaop.arange(5.0)
    assert with_barrier.check(x).tolist() == with_barrier(x).tolist() == [4, 3, 2, 1, 0]


@kernel(tasks=1, outputs=X)
def unwritten(x: Any, y: Any) -> None:
    line = scratch(4, x.dtype)
    line[0] = x[0]
    y[0] = line[0] + line[1]


def test_memory_that_nobody_wrote() -> None:
    with pytest.raises(KernelError, match=r"element \[1\] of scratch memory is read before"):
        unwritten.check(metaop.ones(1))


def test_failed_runs_leave_their_inputs() -> None:
    x = metaop.ones(1000) * 3
    x.numpy()
    y = neighbour(x)
    with pytest.raises(IndexError):
        y.numpy()
    assert x.sum().item() == 3000
