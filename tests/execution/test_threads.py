"""Threads: their number, several that compute at once, and processes that fork meanwhile."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator

import numpy as np
import pytest

import metaop
from metaop.codegen.llvm.runtime import runtime
from metaop.execution import executor
from metaop.unified_graph.cut import Subgraph


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


class _Cuts(executor.Watcher):
    """The number of calls and of results of each cut."""

    def __init__(self) -> None:
        self.sizes: list[tuple[int, int]] = []

    def begun(self, subgraph: Subgraph) -> None:
        self.sizes.append((len(subgraph.order), len(subgraph.outputs)))


@pytest.fixture
def cuts() -> Iterator[list[tuple[int, int]]]:
    watcher = _Cuts()
    executor.watchers.append(watcher)
    yield watcher.sizes
    executor.watchers.remove(watcher)


def _on_a_thread(work: Callable[[], object], until: threading.Event | None = None) -> object:
    """Runs `work` on a thread; what it returns. The thread lives on until the event, if any."""
    found: list[object] = []
    ended = threading.Event()

    def run() -> None:
        try:
            found.append(work())
        finally:
            ended.set()
        if until is not None:
            until.wait()

    thread = threading.Thread(target=run)
    thread.start()
    ended.wait()
    if until is None:
        thread.join()
    return found[0]


def test_a_read_computes_nothing_of_other_threads(cuts: list[tuple[int, int]]) -> None:
    weight = metaop.ones(3)
    weight.tolist()
    mine = [weight * 2, weight + 1]
    read = threading.Event()
    try:
        theirs = _on_a_thread(lambda: (weight * 3).exp().tolist(), read)
        assert cuts[-1] == (2, 1)
        np.testing.assert_allclose(theirs, np.exp([3.0] * 3), rtol=1e-6)
    finally:
        read.set()
    assert mine[0].tolist() == [2.0] * 3 and mine[1].tolist() == [2.0] * 3
    assert cuts[-1] == (2, 2)


def test_what_threads_share_is_computed_once(cuts: list[tuple[int, int]]) -> None:
    weight = metaop.ones(3)
    weight.tolist()
    read = threading.Event()
    try:
        for number in range(1, 6):
            weight.mul_(2)
            found = _on_a_thread(lambda: weight.add(1).tolist(), read)
            assert found == [2.0**number + 1] * 3
            assert cuts[-1] == (2, 2), "the weight is computed on the way, and kept"
    finally:
        read.set()


def test_values_of_ended_threads_join_the_next_cut(cuts: list[tuple[int, int]]) -> None:
    base = metaop.ones(3)
    base.tolist()
    made = _on_a_thread(lambda: [base + k for k in range(4)])
    assert (base * 5).tolist() == [5.0] * 3
    assert cuts[-1] == (5, 5)
    assert [x.tolist() for x in made] == [[1.0 + k] * 3 for k in range(4)]
    assert len(cuts) == 2


@pytest.mark.usefixtures("hasty_threads")
def test_loops_are_recorded_beside_other_threads() -> None:
    kept = []

    def load() -> None:
        kept.append(metaop.rand(3) * 2)
        assert kept[-1].shape == (3,)

    def train() -> None:
        for _ in range(20):
            _, states = metaop.scan(lambda c, y: (c + y, c * y), metaop.ones(3), metaop.ones(4, 3))
            assert states[-1].tolist() == [4.0] * 3

    assert _beside(load, train) == []
