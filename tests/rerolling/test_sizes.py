"""One program serves loops in Python of any number of steps, and of any other sizes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import metaop as mo
from metaop import Tensor, nn
from metaop.codegen.llvm.objects.engine import statistics
from metaop.execution import executor

VOCABULARY = 12

Step = Callable[[Tensor], Tensor]


def language_model(reads: bool) -> Step:
    """One training step of a recurrent language model whose loop is Python's.

    The loss may be read before its gradient, which then reads what an earlier program has kept.
    """
    mo.manual_seed(0)
    embedding, cell = nn.Embedding(VOCABULARY, 6), nn.LSTMCell(6, 8)
    head = nn.Linear(8, VOCABULARY)
    parts = nn.ModuleList([embedding, cell, head]).double()
    optimizer = mo.optim.SGD(parts.parameters(), 0.5)

    def step(tokens: Tensor) -> Tensor:
        h = c = mo.zeros(len(tokens), 8, dtype=mo.float64)
        embedded, logits = embedding(tokens), []
        for t in range(tokens.shape[1]):
            h, c = cell(embedded[:, t], (h, c))
            logits.append(head(h))
        scores = mo.stack(logits, 1).reshape(-1, VOCABULARY)
        loss = nn.functional.cross_entropy(scores, tokens.reshape(-1))
        assert not reads or float(loss) > 0
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return step


def compiled() -> int:
    """Kernels that were compiled or read."""
    return statistics.compiled + statistics.loaded_from_disk


@pytest.mark.parametrize("batches", [(4,), (2, 3, 5)], ids=["steps", "steps and batches"])
@pytest.mark.parametrize("reads", [False, True], ids=["at once", "read before the gradient"])
def test_a_new_number_of_steps_compiles_nothing(
    batches: tuple[int, ...], reads: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = np.random.default_rng(0)
    sizes = [(batches[k % len(batches)], 7 + 11 * k % 23) for k in range(14)]
    texts = [generator.integers(0, VOCABULARY, size) for size in sizes]
    losses: dict[str, list[float]] = {}
    for mode in ("1", "0"):
        monkeypatch.setenv("METAOP_REROLL", mode)
        # Without loops, a program for any sizes of each number of steps would take long to make.
        monkeypatch.setenv("METAOP_SIZES", "any" if mode == "1" else "exact")
        executor.clear_programs()
        step, losses[mode] = language_model(reads), []
        for number, text in enumerate(texts if mode == "1" else texts[:2]):
            before = compiled()
            losses[mode].append(float(step(mo.from_numpy(text))))
            if mode == "1" and number >= 4:
                assert compiled() == before, text.shape
    np.testing.assert_allclose(losses["1"][:2], losses["0"], rtol=1e-12)


def test_slices_of_every_step_count() -> None:
    """Each number of steps from 0 on, short loops among them, agrees with NumPy."""
    executor.clear_programs()
    generator = np.random.default_rng(1)
    weights = generator.normal(size=(5, 5)) / 3
    w = mo.from_numpy(weights)
    for steps in range(20):
        values = generator.normal(size=(3, steps, 5))
        x, h, expected = mo.from_numpy(values), mo.zeros(3, 5, dtype=mo.float64), np.zeros((3, 5))
        for t in range(steps):
            h = mo.tanh(h @ w + x[:, t])
            expected = np.tanh(expected @ weights + values[:, t])
        np.testing.assert_allclose(h.numpy(), expected, rtol=1e-12)
