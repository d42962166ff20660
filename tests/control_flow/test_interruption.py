"""A loop that never ends by itself ends when a signal raises, and leaves everything as it was."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import metaop


class Alarm(Exception):
    """What the handler of the tests raises."""


@pytest.fixture
def alarm() -> Iterator[None]:
    """Raises Alarm on the main thread a moment after a timer was set."""

    def handler(number: int, frame: Any) -> None:
        raise Alarm

    before = signal.signal(signal.SIGALRM, handler)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def endless(x: Any) -> Any:
    return metaop.while_loop(lambda i: i >= 0, lambda i: (i + 1) % 1000, (x,))[0]


@pytest.mark.usefixtures("alarm")
def test_an_endless_loop_is_interrupted_and_others_run_afterwards() -> None:
    for _ in range(2):
        found = endless(metaop.tensor(0))
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(Alarm):
            found.item()
        del found
        ended = metaop.while_loop(lambda i: i < 50, lambda i: i + 7, (metaop.tensor(0),))[0]
        assert ended.item() == 56
    names = [one.name for one in threading.enumerate()]
    assert names.count("metaop program") <= 1


@pytest.mark.usefixtures("alarm")
def test_what_else_the_program_writes_stays_as_it_was() -> None:
    weight = metaop.ones(50)
    limit = metaop.tensor(100)
    total = weight * 1
    weight.add_(1)
    total.numpy(), weight.numpy()

    @metaop.jit
    def step(limit: Any) -> Any:
        weight.mul_(2)
        return metaop.while_loop(
            lambda i, end: (i < end) | (end < 0), lambda i, end: (i + 1, end), (0, limit)
        )[0]

    for _ in range(4):
        assert step(limit).item() == 100
    np.testing.assert_array_equal(weight, 32)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    with pytest.raises(Alarm):
        step(metaop.tensor(-1))
    np.testing.assert_array_equal(weight, 32)
    assert step(limit).item() == 100
    np.testing.assert_array_equal(weight, 64)


@pytest.mark.usefixtures("alarm")
def test_a_handler_that_returns_ends_nothing() -> None:
    calls = []
    signal.signal(signal.SIGALRM, lambda number, frame: calls.append(number))
    signal.setitimer(signal.ITIMER_REAL, 0.01)
    count = metaop.while_loop(lambda i: i < 3_000_000, lambda i: i + 1, (metaop.tensor(0),))[0]
    assert count.item() == 3_000_000
    deadline = time.monotonic() + 10
    while not calls and time.monotonic() < deadline:
        time.sleep(0.01)
    assert calls


def test_other_threads_run_such_loops_by_themselves() -> None:
    found = []

    def work() -> None:
        count = metaop.while_loop(lambda i: i < 9, lambda i: i + 1, (metaop.tensor(0),))[0]
        found.append(count.item())

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [9, 9, 9]
