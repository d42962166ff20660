"""Threads: their number, several that compute at once, and processes that fork meanwhile."""

from __future__ import annotations

import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterator

import numpy as np
import pytest

import metaop
from metaop.codegen.llvm.runtime import runtime


@pytest.fixture(autouse=True)
def same_number_afterwards() -> Iterator[None]:
    before = metaop.get_num_threads()
    yield
    metaop.set_num_threads(before)


def test_the_number_of_threads_changes_at_any_time() -> None:
    x = metaop.randn(300, 300)
    product = x.numpy() @ x.numpy()
    for count in (1, 3, 2):
        metaop.set_num_threads(count)
        assert metaop.get_num_threads() == runtime().get_num_threads() == count
        np.testing.assert_allclose((x @ x).numpy(), product, rtol=1e-3, atol=1e-3)


def test_illegal_numbers() -> None:
    with pytest.raises(ValueError, match="0 threads"):
        metaop.set_num_threads(0)


def test_threads_compute_at_once() -> None:
    metaop.set_num_threads(2)
    found: dict[int, np.ndarray] = {}

    def work(number: int) -> None:
        x = metaop.full((200, 200), float(number))
        for _ in range(20):
            y = (x @ x).relu().sum(1)
            y.numpy()
        found[number] = y.numpy()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, result in found.items():
        np.testing.assert_allclose(result, 200 * 200 * number**2, rtol=1e-5)
    assert len(found) == 4


def test_beside_the_threads_of_pytorch() -> None:
    torch = pytest.importorskip("torch")
    metaop.set_num_threads(2)
    x = np.random.default_rng(0).standard_normal((400, 400)).astype(np.float32)
    ours, theirs = metaop.tensor(x), torch.from_numpy(x)
    for _ in range(20):
        np.testing.assert_allclose(
            (ours @ ours).numpy(), (theirs @ theirs).numpy(), rtol=1e-3, atol=1e-3
        )


@pytest.fixture
def hasty_threads() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def _beside(work: Callable[[], None], main: Callable[[], None]) -> list[BaseException]:
    """Runs `main` while a thread does `work` over and over; what failed there."""
    ended, errors = threading.Event(), []

    def again() -> None:
        try:
            while not ended.is_set():
                work()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=again)
    thread.start()
    try:
        main()
    finally:
        ended.set()
        thread.join()
    return errors


@pytest.mark.usefixtures("hasty_threads")
def test_modes_are_those_of_a_thread() -> None:
    def validate() -> None:
        with metaop.no_grad(), metaop.autocast("cpu", dtype=metaop.bfloat16):
            assert not (metaop.ones(3, requires_grad=True) * 2).requires_grad

    def train() -> None:
        weight = metaop.ones(2, 2, requires_grad=True)
        for _ in range(200):
            product = weight @ weight
            assert product.requires_grad and product.dtype is metaop.float32

    assert _beside(validate, train) == []


@pytest.mark.usefixtures("hasty_threads")
def test_functions_are_captured_beside_other_threads() -> None:
    total, count = metaop.zeros(4), [0]

    def load() -> None:
        count[0] += 1
        total.add_(metaop.rand(4) * 0 + 1)
        assert total.tolist() == [float(count[0])] * 4

    def train() -> None:
        for size in range(2, 7):
            weight = metaop.ones(size, requires_grad=True)
            optimizer = metaop.optim.SGD([weight], lr=0.1)

            def plain(x: metaop.Tensor) -> metaop.Tensor:
                optimizer.zero_grad()  # noqa: B023
                loss = (weight * x).sum() + metaop.rand(1) * 0  # noqa: B023
                loss.backward()
                optimizer.step()  # noqa: B023
                return loss

            step = metaop.jit(plain)
            with warnings.catch_warnings():
                # A trace that met another thread's work is made again.
                warnings.simplefilter("ignore")
                for k in range(6):
                    loss = step(metaop.ones(size)).item()
                    np.testing.assert_allclose(loss, size * (1 - 0.1 * k), rtol=1e-4)

    assert _beside(load, train) == []


def test_forking_while_other_threads_compute() -> None:
    metaop.set_num_threads(2)
    ended = threading.Event()

    def work() -> None:
        x = metaop.randn(100, 100)
        size = 50
        while not ended.is_set():
            (x @ x).sum().item()
            size += 1
            metaop.ones(size).cumsum(0).numpy()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for _ in range(10):
            child = os.fork()
            if child == 0:
                total = (metaop.ones(200, 200) @ metaop.ones(200, 200)).sum().item()
                os._exit(0 if total == 200**3 else 1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        ended.set()
        thread.join()
