"""Captured calls that another thread runs: the same values, in order, whoever reads or writes."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import metaop
from metaop import nn, optim
from metaop.codegen.llvm import program, run_ahead
from metaop.codegen.memory.buffers import allocate, release_cached
from metaop.errors import CaptureError
from metaop.nn import functional as F


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The runs that were left to the other thread."""
    runs: list[Any] = []

    def note(*arguments: Any) -> None:
        runs.append(None)
        run_ahead.note(*arguments)

    monkeypatch.setattr(program, "note", note)
    return runs


class Gate:
    """Holds the other thread before each run until it is opened, so that runs surely wait."""

    def __init__(self) -> None:
        self.opened = threading.Event()

    def __call__(self, call: Callable[[], None], *rest: Any) -> None:
        def held() -> None:
            assert self.opened.wait(20)
            call()

        run_ahead.note(held, *rest)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    found = Gate()
    monkeypatch.setattr(program, "note", found)
    yield found
    found.opened.set()


class Training:
    """A network with everything that a step may change, and batches that nobody else holds."""

    def __init__(self, asynchronous: bool) -> None:
        metaop.manual_seed(0)
        self.net = nn.Sequential(
            nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 3)
        )
        self.optimizer = optim.AdamW(self.net.parameters(), lr=0.02)
        self.schedule = optim.lr_scheduler.StepLR(self.optimizer, 4)
        self.step = metaop.jit(self.plain, asynchronous=asynchronous)
        self.random = np.random.default_rng(0)

    def plain(self, x: Any, y: Any) -> Any:
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.net(x), y)
        loss.backward()
        self.optimizer.step()
        self.schedule.step()
        return loss

    def batch(self) -> tuple[Any, Any]:
        x = self.random.standard_normal((5, 6)).astype(np.float32)
        return metaop.from_numpy(x), metaop.from_numpy(self.random.integers(0, 3, 5))

    def run(self, steps: int) -> list[Any]:
        return [self.step(*self.batch()) for _ in range(steps)]

    def values(self) -> list[np.ndarray]:
        found = [*self.net.state_dict().values(), *(p.grad for p in self.net.parameters())]
        found += [one for state in self.optimizer.state.values() for one in state.values()]
        return [one.detach().numpy().copy() for one in found]


def pair() -> tuple[Training, Training]:
    return Training(False), Training(True)


def test_steps_are_those_of_one_thread(noted: list[Any]) -> None:
    one, other = pair()
    losses = []
    for training in (one, other):
        metaop.manual_seed(1)
        found = training.run(50)
        losses.append([loss.item() for loss in found])
    assert losses[0] == losses[1]
    for a, b in zip(one.values(), other.values()):
        np.testing.assert_array_equal(a, b)
    assert len(noted) > 40


def test_a_step_returns_before_it_has_run(gate: Gate) -> None:
    training = Training(True)
    gate.opened.set()
    training.run(8)[-1].item()
    gate.opened.clear()
    found = training.run(3)
    gate.opened.set()
    assert np.isfinite([loss.item() for loss in found]).all()


READS: dict[str, Callable[[Training, Any], Any]] = {
    "item": lambda training, loss: loss.item(),
    "numpy of a parameter": lambda training, loss: training.net[0].weight.detach().numpy().copy(),
    "an operator": lambda training, loss: (training.net[0].weight * 2).sum().item(),
    "a gradient": lambda training, loss: training.net[4].bias.grad.tolist(),
    "the network": lambda training, loss: training.net.eval()(metaop.ones(2, 6)).tolist(),
    "dlpack": lambda training, loss: np.from_dlpack(training.net[4].bias.detach()).copy(),
    "bytes": lambda training, loss: bytes(memoryview(training.net[4].bias.detach().numpy())),
    "a write": lambda training, loss: training.net[4].bias.data.zero_().tolist(),
    "a checkpoint": lambda training, loss: [
        value.numpy().copy() for value in training.net.state_dict().values()
    ],
}


@pytest.mark.parametrize("name", READS)
def test_whoever_reads_waits(name: str, gate: Gate) -> None:
    one, other = pair()
    gate.opened.set()
    for training in (one, other):
        metaop.manual_seed(1)
        training.run(8)[-1].item()
    metaop.manual_seed(2)
    expected = READS[name](one, one.run(2)[-1])
    metaop.manual_seed(2)
    gate.opened.clear()
    threading.Timer(0.05, gate.opened.set).start()
    found = READS[name](other, other.run(2)[-1])
    np.testing.assert_equal(found, expected)


def test_arguments_that_others_may_write_are_read_at_once(noted: list[Any]) -> None:
    total = metaop.zeros(3)

    @metaop.jit(asynchronous=True)
    def step(x: Any) -> Any:
        total.add_(x)
        return total * 2

    for _ in range(4):
        step(metaop.from_numpy(np.ones(3, np.float32)))
    total.tolist()
    noted.clear()
    array = np.ones(3, np.float32)
    x = metaop.from_numpy(array)
    del array
    array = x.numpy()
    found = []
    for k in range(5):
        array[:] = k
        found.append(step(x))
    assert not noted
    del array
    gc.collect()
    found += [step(metaop.from_numpy(np.full(3, k, np.float32))) for k in range(5, 9)]
    assert noted
    expected = 4 + np.cumsum(range(9))
    np.testing.assert_array_equal(metaop.stack(found), np.stack([2 * expected] * 3, 1))


def test_memory_that_is_freed_and_used_again(noted: list[Any]) -> None:
    """Batches and results are dropped while the runs that use them wait."""
    state = metaop.zeros(64, 64)

    @metaop.jit(asynchronous=True)
    def step(x: Any) -> Any:
        state.mul_(0.5).add_(x @ x)
        return state.sum()

    expected = np.zeros((64, 64))
    for k in range(60):
        x = metaop.full((64, 64), float(k % 7))
        x.numpy()
        step(x)
        del x
        expected = expected / 2 + 64.0 * (k % 7) ** 2
        if k % 20 == 0:
            release_cached()
    np.testing.assert_allclose(state, expected, rtol=1e-5)
    assert noted


def test_a_failed_step_leaves_everything_as_it_was(gate: Gate) -> None:
    one, other = pair()
    gate.opened.set()
    for training in (one, other):
        metaop.manual_seed(1)
        training.run(8)[-1].item()
    gate.opened.clear()
    x, _ = other.batch()
    results = [other.step(x, metaop.from_numpy(np.array([0, 1, 9, 0, 0])))]  # no class 9
    del x
    results += other.run(2)
    gate.opened.set()
    with pytest.raises(IndexError, match=r"9(.|\n)*test_asynchronous.py"):
        results[0].item()
    for loss in results:
        with pytest.raises(CaptureError, match="never computed"):
            loss.item()
        with pytest.raises(CaptureError, match="never computed"):
            (loss + 1).item()
    assert all(p.grad is None for p in other.net.parameters())
    for a, b in zip(one.net.state_dict().items(), other.net.state_dict().items()):
        if a[0] != "1.num_batches_tracked":  # the host has counted
            np.testing.assert_array_equal(a[1].numpy(), b[1].numpy())
    assert np.isfinite([loss.item() for loss in other.run(6)]).all()


def test_the_next_step_tells_of_an_error() -> None:
    training = Training(True)
    training.run(8)[-1].item()
    x, _ = training.batch()
    training.step(x, metaop.from_numpy(np.array([0, 1, 9, 0, 0])))
    deadline = time.monotonic() + 20
    with pytest.raises(IndexError, match="9"):
        while time.monotonic() < deadline:
            training.step(*training.batch())
    assert np.isfinite(training.run(1)[0].item())


def test_a_lost_value_tells_the_error_that_nobody_was_told() -> None:
    def fail() -> None:
        raise ValueError("the first error")

    buffer = allocate(8)
    run_ahead.note(fail, [], [buffer], lambda: None)
    with run_ahead._queue.changed:
        run_ahead._queue.wait()
    with pytest.raises(ValueError, match="the first error"):
        buffer.address  # noqa: B018
    with pytest.raises(CaptureError, match="never computed"):
        buffer.address  # noqa: B018


def test_two_threads(noted: list[Any]) -> None:
    alone = [Training(True), Training(True)]
    for training in alone:
        training.net.eval()
        training.run(6)[-1].item()
    errors: list[BaseException] = []

    def work(training: Training, is_wrong: bool) -> None:
        try:
            for _ in range(20):
                training.step(*training.batch())
            if is_wrong:
                training.step(training.batch()[0], metaop.from_numpy(np.full(5, 9)))
            training.net[0].weight.detach().numpy()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(one, one is alone[0])) for one in alone]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # Calls of the other thread that came behind the one that failed were not run either.
    told = [error for error in errors if not isinstance(error, CaptureError)]
    assert [isinstance(error, IndexError) for error in told] == [True] and len(errors) <= 2
    assert len(noted) > 10


def test_a_process_forks_and_ends(tmp_path: Any) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import os, numpy as np, metaop\n"
        "total = metaop.zeros(3)\n"
        "@metaop.jit(asynchronous=True)\n"
        "def step(x):\n"
        "    total.add_(x)\n"
        "    return total * 2\n"
        "for _ in range(30):\n"
        "    found = step(metaop.from_numpy(np.ones(3, np.float32)))\n"
        "child = os.fork()\n"
        "for _ in range(5):\n"
        "    found = step(metaop.from_numpy(np.ones(3, np.float32)))\n"
        "print(found.tolist(), flush=True)\n"
        "if child:\n"
        "    os.waitpid(child, 0)\n"
        "for _ in range(20):\n"
        "    step(metaop.from_numpy(np.ones(3, np.float32)))\n"
    )
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=300, env=os.environ
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("[70.0, 70.0, 70.0]") == 2
