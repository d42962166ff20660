"""Which of many operands are the same tensor makes no difference to the program."""

from __future__ import annotations

import numpy as np
import pytest

import metaop
from metaop.compiler import compile_subgraph
from metaop.execution import specialisation


def drawn(random: np.random.Generator, pool: list[metaop.Tensor]) -> list[metaop.Tensor]:
    return [pool[k] for k in random.integers(0, len(pool), 12)]


def test_batches_from_a_replay_memory_share_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    pool = [metaop.from_numpy(random.standard_normal((1, 4), np.float32)) for _ in range(20)]
    weight = metaop.randn(4, 3, requires_grad=True)
    weight.numpy(force=True)
    made = []
    monkeypatch.setattr(
        specialisation, "compile_subgraph", lambda cut: made.append(cut) or compile_subgraph(cut)
    )
    for turn in range(5):
        left, right = drawn(random, pool), drawn(random, pool)
        loss = ((metaop.cat(left) @ weight) * (metaop.cat(right) @ weight)).sum()
        (gradient,) = metaop.autograd.grad(loss, weight)
        a, b = (np.concatenate([x.numpy() for x in part]) for part in (left, right))
        w = weight.detach().numpy().copy()
        np.testing.assert_allclose(loss.item(), ((a @ w) * (b @ w)).sum(), rtol=1e-4)
        wanted = a.T @ (b @ w) + b.T @ (a @ w)
        np.testing.assert_allclose(gradient.numpy(), wanted, rtol=1e-4, atol=1e-4)
        if turn == 0:
            assert made
            made.clear()
    assert not made


def test_an_operand_that_is_read_elsewhere_too_keeps_its_value() -> None:
    random = np.random.default_rng(1)
    arrays = [random.standard_normal((2, 3)).astype(np.float32) for _ in range(10)]
    tensors = [metaop.from_numpy(array.copy()) for array in arrays]
    joined = metaop.cat(tensors)
    tensors[3] += 1
    total = joined.sum() + (tensors[3] * tensors[4]).sum()
    wanted = np.concatenate(arrays).sum() + ((arrays[3] + 1) * arrays[4]).sum()
    np.testing.assert_allclose(total.item(), wanted, rtol=1e-5)
    np.testing.assert_array_equal(joined.numpy(), np.concatenate(arrays))
