"""Programs that never read a value: the recorded graph stays bounded."""

from __future__ import annotations

import numpy as np
import pytest

import metaop
from metaop.unified_graph.cut import recorder

_LIMIT = 50


@pytest.fixture(autouse=True)
def small_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METAOP_PENDING_LIMIT", str(_LIMIT))
    metaop.zeros(1).add(1).tolist()
    recorder.own.handles.clear()
    monkeypatch.setattr(recorder.own, "room", 0)


def _pending(tensor: metaop.Tensor) -> int:
    seen, stack = {tensor.call}, [tensor.call]
    while stack:
        for source in stack.pop().inputs:
            if source.is_pending and source not in seen:
                seen.add(source)
                stack.append(source)
    return len(seen)


def test_a_chain_is_cut() -> None:
    x = metaop.zeros(3)
    largest = 0
    for _ in range(500):
        x = x + 1
        largest = max(largest, _pending(x))
    assert largest <= 2 * _LIMIT + 2
    assert x.tolist() == [500.0] * 3


def test_values_that_nobody_holds_are_forgotten_without_computing() -> None:
    x = metaop.zeros(3)
    for _ in range(500):
        (x + 1) * 2
    assert len(recorder.own.handles) <= 2 * _LIMIT + 2


def test_gradients_through_a_cut_chain() -> None:
    x = metaop.tensor([0.5, -0.25], requires_grad=True)
    y = x
    for _ in range(300):
        y = y * 1.01
    y.sum().backward()
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), np.full(2, 1.01**300), rtol=1e-4)


def test_training_that_never_reads() -> None:
    w = metaop.ones(4, requires_grad=True)
    for _ in range(100):
        loss = (w * w).sum()
        (gradient,) = metaop.autograd.grad(loss, w)
        with metaop.no_grad():
            w.sub_(gradient * 0.01)
    np.testing.assert_allclose(w.detach().numpy(), np.full(4, 0.98**100), rtol=1e-4)
