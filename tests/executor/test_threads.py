"""Threads: their number, several that compute at once, and processes that fork meanwhile."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

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
