"""Calls that are read one by one and run alone: values, memory, errors, bounds."""

from __future__ import annotations

import numpy as np
import pytest

import metaop
from metaop.errors import MetaopError
from metaop.execution import executor


@pytest.fixture(autouse=True)
def _no_programs() -> None:
    executor.clear_programs()


def _programs() -> list[object]:
    return [program for program in executor._programs_alone.values() if program is not None]


def test_operands_that_are_one_tensor_are_told_from_two() -> None:
    x = metaop.tensor([1.0, 2.0, 3.0])
    y = metaop.tensor([10.0, 20.0, 30.0])
    for _ in range(3):
        assert (x * y).tolist() == [10.0, 40.0, 90.0]
        assert (x * x).tolist() == [1.0, 4.0, 9.0]
        assert metaop.where(x > 2, x, y).tolist() == [10.0, 20.0, 3.0]
        assert metaop.addcmul(x, y, x).tolist() == [11.0, 42.0, 93.0]
        assert metaop.addcmul(x, x, y).tolist() == [11.0, 42.0, 93.0]
        assert metaop.addcmul(y, x, x).tolist() == [11.0, 24.0, 39.0]
    assert len(_programs()) >= 4


def test_numbers_are_arguments() -> None:
    x = metaop.tensor([1.0, 2.0])
    for k in range(3, 9):
        assert (x * (k + 0.5)).tolist() == [k + 0.5, 2 * k + 1]
    assert len(_programs()) == 1
    # Nobody holds these numbers, which have no memory to take over.
    found = [metaop.full((1,), k + 1234.25).tolist() for k in range(3)]
    assert found == [[1234.25], [1235.25], [1236.25]]


def test_results_that_show_their_operand_keep_its_memory() -> None:
    for _ in range(3):
        x = metaop.arange(6.0)
        x.numpy()
        y = x.reshape(2, 3)
        assert y.tolist() == [[0, 1, 2], [3, 4, 5]]
        y[0, 1] = 9.0
        assert x.tolist() == [0, 9, 2, 3, 4, 5]
        copied = x.clone()
        copied.numpy()[0] = 7
        assert x.tolist() == [0, 9, 2, 3, 4, 5] and copied.tolist() == [7, 9, 2, 3, 4, 5]
        same = x.detach()
        same.numpy()[2] = 8
        assert x.tolist() == [0, 9, 8, 3, 4, 5]


def test_every_result_has_memory_of_its_own() -> None:
    x = metaop.ones(5)
    results = [(x + 1).numpy() for _ in range(4)]
    results[0][:] = 7
    for other in results[1:]:
        np.testing.assert_array_equal(other, np.full(5, 2, np.float32))


def test_memory_of_what_nobody_holds_is_taken_over() -> None:
    x = metaop.tensor(np.arange(5.0)) + 1
    for _ in range(3):
        address = x.buffer().address
        x.mul_(2.0)
        assert x.buffer().address == address
    np.testing.assert_array_equal(x.numpy(), 8 * np.arange(1.0, 6.0))
    held, old = x.numpy(), x * 1
    x.mul_(2.0)
    y = x + x
    np.testing.assert_array_equal(y.numpy(), 32 * np.arange(1.0, 6.0))
    np.testing.assert_array_equal(held, 16 * np.arange(1.0, 6.0))
    np.testing.assert_array_equal(old.numpy(), 8 * np.arange(1.0, 6.0))


def test_a_refused_value_names_the_line_every_time() -> None:
    table, position = metaop.ones(4), metaop.tensor([1, 3])
    for wrong in (False, True, False, True):
        chosen = position + 4 if wrong else position
        chosen.numpy()
        if wrong:
            with pytest.raises(MetaopError, match="test_alone.py"):
                table[chosen].numpy()
        else:
            assert table[chosen].tolist() == [1.0, 1.0]


def test_gradients_are_those_of_calls_that_do_not_run_alone() -> None:
    for _ in range(2):
        w = metaop.tensor([1.0, 2.0], requires_grad=True)
        y = w * w
        assert y.tolist() == [1.0, 4.0]
        y.sum().backward()
        assert w.grad is not None and w.grad.tolist() == [2.0, 4.0]
        with metaop.no_grad():
            assert (w * w).tolist() == [1.0, 4.0]


def test_further_results_and_random_numbers_are_as_ever() -> None:
    x = metaop.tensor([3.0, 1.0, 2.0])
    for _ in range(3):
        values, indices = x.sort()
        assert values.tolist() == [1.0, 2.0, 3.0]
        assert indices.tolist() == [1, 2, 0]
    metaop.manual_seed(3)
    first = [metaop.rand(3).tolist() for _ in range(3)]
    metaop.manual_seed(3)
    assert first == [metaop.rand(3).tolist() for _ in range(3)]
    assert first[0] != first[1]


def test_programs_kept_for_calls_alone_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "_KEPT_PROGRAMS", 3)
    for size in range(2, 12):
        assert (metaop.ones(size).detach() + 1).tolist() == [2.0] * size
        assert len(executor._programs_alone) <= 3


def test_watchers_see_calls_that_run_alone() -> None:
    class Counting(executor.Watcher):
        cuts = 0

        def begun(self, subgraph: object) -> None:
            self.cuts += 1

    x = metaop.ones(3)
    (x + 1).numpy()
    watcher = Counting()
    executor.watchers.append(watcher)
    try:
        (x + 1).numpy()
    finally:
        executor.watchers.remove(watcher)
    assert watcher.cuts == 1
