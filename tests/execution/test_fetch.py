"""Values that are handed over when they are there."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest

import metaop
from metaop import nn, optim
from metaop.errors import CaptureError
from metaop.execution import executor
from metaop.nn import functional as F


def test_results_are_values_of_their_own() -> None:
    x = metaop.randn(3, 4, requires_grad=True)
    expected = x.detach().numpy() * 2
    y = x * 2
    found = y.fetch().result(timeout=300)
    assert not found.requires_grad and found.dtype is metaop.float32
    np.testing.assert_array_equal(found, expected)
    found.zero_()
    np.testing.assert_array_equal(y.detach(), expected)


def test_asking_computes_nothing_and_changes_no_program() -> None:
    net = nn.Linear(4, 3)
    optimizer = optim.SGD(net.parameters(), lr=0.1)
    x, y = metaop.randn(8, 4), metaop.randint(0, 3, (8,))

    def step(fetches: bool) -> Any:
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x), y)
        future = loss.fetch() if fetches else None
        if future is not None:
            assert not future.done() and loss.call.is_pending
        loss.backward()
        optimizer.step()
        return loss, future

    for _ in range(3):
        step(False)
    before = len(executor._programs)
    pairs = [step(True) for _ in range(5)]
    assert len(executor._programs) == before
    for loss, future in pairs:
        assert future.result(timeout=300).item() == loss.item()


def test_a_value_is_that_of_the_time_of_asking() -> None:
    x = metaop.ones(3)
    views = [x[1:], x.detach()]
    first = x.fetch()
    x.add_(1)
    second = metaop.fetch(views)
    x.mul_(5)
    np.testing.assert_array_equal(first.result(20), 1)
    assert [one.tolist() for one in second.result(20)] == [[2, 2], [2, 2, 2]]
    np.testing.assert_array_equal(x, 10)


def test_parameters_of_a_captured_step() -> None:
    weight = metaop.zeros(5)
    step = metaop.jit(lambda x: weight.add_(x).sum() * 2)
    futures = []
    for _ in range(8):
        step(metaop.ones(5))
        futures.append(weight.fetch())
    found = [future.result(20).tolist() for future in futures]
    assert found == [[k + 1.0] * 5 for k in range(8)]


def test_callbacks_are_called_in_order_by_one_thread() -> None:
    found: list[float] = []
    threads = set()
    done = threading.Event()

    def note(value: Any) -> None:
        threads.add(threading.current_thread())
        found.append(value["loss"][0].item() + (value["loss"][1] * 2).sum().item())
        if len(found) == 20:
            done.set()

    total = metaop.zeros(2)
    for k in range(20):
        total = total + k
        metaop.fetch({"loss": (total.sum(), total)}, note)
        if k % 3 == 0:
            total.numpy()
    total.numpy()
    assert done.wait(20)
    assert found == [6.0 * sum(range(k + 1)) for k in range(20)]
    assert len(threads) == 1 and threading.current_thread() not in threads


def test_asynchronous_steps() -> None:
    total = metaop.zeros(3)

    @metaop.jit(asynchronous=True)
    def step(x: Any) -> Any:
        total.add_(x)
        return total.sum() * 2

    futures = []
    for _ in range(30):
        futures.append(step(metaop.from_numpy(np.ones(3, np.float32))).fetch())
    assert [one.result(20).item() for one in futures] == [6.0 * (k + 1) for k in range(30)]


@pytest.mark.parametrize("kind", [metaop.bfloat16, metaop.bool, metaop.int64, metaop.complex64])
def test_types(kind: Any) -> None:
    x = metaop.tensor([[0.0, 1.0], [2.0, 3.0]]).to(kind)
    found = x.fetch().result(20)
    assert found.dtype is kind and found.tolist() == x.tolist()


def test_errors(caplog: pytest.LogCaptureFixture) -> None:
    x = metaop.ones(3)
    wrong = x[metaop.tensor([5])]
    future = wrong.fetch()
    with pytest.raises(IndexError, match="5"):
        future.result(20)
    assert isinstance(future.exception(20), IndexError)
    del wrong
    with pytest.raises(TypeError, match="int is not a tensor"):
        metaop.fetch([x, 3])
    with pytest.raises(CaptureError, match="fetches a value"):
        metaop.jit(lambda x: x.fetch())(x)

    def failing(value: Any) -> None:
        raise ZeroDivisionError("in the callback")

    with caplog.at_level(logging.ERROR):
        x.fetch(failing)
        assert x.fetch().result(20).tolist() == [1, 1, 1]  # comes behind it
    assert "in the callback" in caplog.text


def test_a_callback_may_wait_for_values() -> None:
    x = metaop.tensor([1.0, 1.0, 1.0])
    x.numpy()
    found = []
    done = threading.Event()

    def ask(value: Any) -> None:
        found.append((value + 1).fetch().result(20).sum().item())
        done.set()

    x.fetch(ask)
    assert done.wait(20) and found == [6]


def test_the_end_of_a_process_and_its_children(tmp_path: Any) -> None:
    script = tmp_path / "ends.py"
    script.write_text(
        "import os, metaop\n"
        "x = metaop.ones(3)\n"
        "x.fetch().result()\n"
        "if os.fork() == 0:\n"
        "    (x + 1).fetch(lambda value: print('child', value.tolist(), flush=True))\n"
        "else:\n"
        "    os.wait()\n"
        "    (x + 2).fetch(lambda value: print('parent', value.tolist(), flush=True))\n"
    )
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=300, env=os.environ
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["child [2.0, 2.0, 2.0]", "parent [3.0, 3.0, 3.0]"]
