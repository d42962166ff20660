"""Graphs are freed by reference counts alone, and deep ones need no recursion."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from weakref import ref

import numpy as np
import pytest

import metaop
from metaop.codegen.memory.buffers import host
from metaop.unified_graph.recording import Call


@pytest.fixture(autouse=True)
def _no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def live_calls() -> int:
    return sum(1 for x in gc.get_objects() if type(x) is Call)


def training_step(weight: metaop.Tensor, x: metaop.Tensor) -> float:
    loss = ((x @ weight).tanh() - 1).square().mean()
    loss.backward()
    with metaop.no_grad():
        weight.sub_(weight.grad * 0.1)
        weight.grad = None
    return loss.item()


def test_training_loop_frees_its_memory() -> None:
    rng = np.random.default_rng(0)
    weight = metaop.tensor(rng.standard_normal((64, 64)), requires_grad=True)
    x = metaop.tensor(rng.standard_normal((32, 64)))
    for _ in range(3):
        training_step(weight, x)
    calls, used = live_calls(), host.used
    for _ in range(10):
        training_step(weight, x)
    assert live_calls() <= calls
    assert host.used <= used


def test_detached_values_do_not_hold_the_graph() -> None:
    weight = metaop.ones(8, 8, requires_grad=True)
    kept = []
    counts = []
    for _ in range(6):
        hidden = (weight @ weight).tanh()
        kept.append(hidden.sum().detach())
        kept.append(hidden.sum().detach().requires_grad_())
        del hidden
        kept[-1].item()
        counts.append(live_calls())
    # Each round adds what is kept, and nothing else.
    assert counts[-1] - counts[-2] == counts[-2] - counts[-3] <= 8


def test_truncated_recurrence_frees_older_steps() -> None:
    weight = metaop.full((8, 8), 0.1, requires_grad=True)
    state = metaop.ones(8)
    counts = []
    for _ in range(8):
        state = (weight @ state).tanh()
        state.sum().backward()
        state = state.detach()
        weight.grad.tolist()
        counts.append(live_calls())
    assert counts[-1] <= counts[2]


def test_views_and_writes_free_their_values() -> None:
    x = metaop.zeros(16, 16)
    counts = []
    for step in range(6):
        x[step].add_(1.0)
        x.t()[step].detach().mul_(2.0)
        x.tolist()
        counts.append(live_calls())
    assert counts[-1] <= counts[1]


def test_saved_values_are_freed_by_backward() -> None:
    x = metaop.ones(1000, requires_grad=True)
    y = x.exp()
    loss = (y * y).sum()
    loss.item()
    saved = ref(y.call)
    del y
    assert saved() is not None
    loss.backward()
    x.grad.tolist()
    assert saved() is None


def test_functions_free_what_they_saved() -> None:
    class Square(metaop.autograd.Function):
        @staticmethod
        def forward(ctx, x):  # type: ignore[no-untyped-def]
            y = x * x
            ctx.save_for_backward(x, y)
            return y

        @staticmethod
        def backward(ctx, gradient):  # type: ignore[no-untyped-def]
            x, _ = ctx.saved_tensors
            return 2 * x * gradient

    x = metaop.ones(4, requires_grad=True)
    calls = live_calls()
    for _ in range(3):
        Square.apply(x * 1).sum().backward()
        Square.apply(x * 1)
        x.grad.tolist()
    assert live_calls() <= calls + 2


@pytest.mark.parametrize("depth", [50_000])
def test_deep_graphs(depth: int) -> None:
    x = metaop.ones(2, requires_grad=True)
    y = x
    for _ in range(depth):
        y = y + 1
    y.sum().backward()
    calls = live_calls()
    assert calls > depth
    del y
    x.grad = None
    assert live_calls() < 1000


def test_deep_graph_of_saved_values() -> None:
    x = metaop.full((2,), 0.5, requires_grad=True)
    y = x
    for _ in range(300):
        y = (y * 1.01).tanh()
    y.sum().backward()
    assert np.isfinite(x.grad.numpy()).all()
