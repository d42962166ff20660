"""Random loops written in Python give what PyTorch gives, gradients too, whether they become loops
of the program or not.

`METAOP_FUZZ_COUNT` and `METAOP_FUZZ_SEED` are those of the random programs; a third of them run.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch

import metaop
from metaop.execution import executor
from metaop.rerolling import rewriting

COUNT = int(os.environ.get("METAOP_FUZZ_COUNT", "100")) // 3
FIRST_SEED = int(os.environ.get("METAOP_FUZZ_SEED", "0"))
WIDTH = 4
# Breaks ties of equal elements, which rounding would decide otherwise.
RAMP = (0.0, 0.013, 0.029, 0.041)

# A value of a step from two earlier ones, a weight, and a number in [0, 1).
OPERATORS: tuple[Callable[[Any, Any, Any, Any, float], Any], ...] = (
    lambda m, p, q, w, c: p + q,
    lambda m, p, q, w, c: p - q * 0.5,
    lambda m, p, q, w, c: p * q,
    lambda m, p, q, w, c: m.tanh(p @ w),
    lambda m, p, q, w, c: m.relu(p @ w + q),
    lambda m, p, q, w, c: m.softmax(p, 1),
    lambda m, p, q, w, c: m.cat([p, q], 1) @ m.cat([w, w], 0) * 0.3,
    lambda m, p, q, w, c: p / (1 + p.pow(2).sum(1, keepdim=True)),
    lambda m, p, q, w, c: m.where(p > q, p, q * 0.5),
    lambda m, p, q, w, c: p * (0.5 + c),
    lambda m, p, q, w, c: p + q.detach() * 0.1,
    lambda m, p, q, w, c: p.mean(0, keepdim=True) + q,
    lambda m, p, q, w, c: p[:, :1] + q,
    lambda m, p, q, w, c: (p.t() @ q).sum(0) * 0.1 + p,
    lambda m, p, q, w, c: q - (p + m.tensor(RAMP, dtype=m.float64)).max(1, keepdim=True)[0],
    lambda m, p, q, w, c: m.sin(p) + c,
)
# The rows of a sequence along dimension 1, as users take them.
ROWS: dict[str, Callable[[Any, int], Sequence[Any]]] = {
    "index": lambda x, steps: [x[:, t] for t in range(steps)],
    "backwards": lambda x, steps: [x[:, steps - 1 - t] for t in range(steps)],
    "slice": lambda x, steps: [x[:, t : t + 1].squeeze(1) for t in range(steps)],
    "unbind": lambda x, steps: x.unbind(1),
    "iterate": lambda x, steps: list(x.transpose(0, 1)),
    "chunk": lambda x, steps: [one.squeeze(1) for one in x.chunk(steps, 1)],
    "twice": lambda x, steps: [x[:, t // 2] for t in range(steps)],
}
COLLECTED = ("last", "stack", "cat", "insert", "write", "loss")


class Program:
    """What one seed draws: sizes, the operators of a step, and where its results go."""

    def __init__(self, seed: int) -> None:
        draw = random.Random(seed)
        self.steps, self.rows = draw.randint(5, 11), draw.randint(1, 4)
        self.ways = [draw.choice(tuple(ROWS)) for _ in range(draw.randint(0, 2))]
        self.weights, self.states = draw.randint(1, 2), draw.randint(1, 3)
        self.calls = [
            (draw.choice(OPERATORS), draw.random(), draw.random(), draw.random())
            for _ in range(draw.randint(1, 7))
        ]
        self.updates = [draw.random() for _ in range(self.states)]
        self.collected = draw.choice(COLLECTED)
        self.keeps, self.twice = draw.random() < 0.3, draw.random() < 0.15
        self.reads = draw.random() < 0.3
        numbers = np.random.default_rng(seed)
        self.arrays = [
            *(numbers.normal(size=(self.rows, self.steps, WIDTH)) for _ in self.ways),
            *(numbers.normal(size=(WIDTH, WIDTH)) * 0.5 for _ in range(self.weights)),
        ]

    def run(self, module: Any) -> list[np.ndarray]:
        """The results, and the gradients of a number that all of them make."""
        leaves = [module.tensor(array).requires_grad_() for array in self.arrays]
        sequences, weights = leaves[: len(self.ways)], leaves[len(self.ways) :]
        rows = [ROWS[way](x, self.steps) for way, x in zip(self.ways, sequences)]
        shape = (self.rows, WIDTH)
        states = [
            module.full(shape, 0.1 * (k + 1), dtype=module.float64) for k in range(self.states)
        ]
        written = module.zeros((self.steps, *shape), dtype=module.float64)
        results, loss = [], 0.0
        for t in range(self.steps):
            states = self._step(module, states, [one[t] for one in rows], weights)
            if self.collected == "write":
                written[t] = states[0]
            elif self.collected == "insert":
                results.insert(0, states[0])
            elif self.collected == "loss":
                loss = loss + states[0].square().mean()
            elif self.collected != "last":
                results.append(states[0])
        made = {"write": written, "loss": loss, "last": states[-1]}.get(self.collected)
        if made is None:
            made = module.cat(results, 1) if self.collected == "cat" else module.stack(results, 1)
        total = made.square().sum() + sum(state.square().sum() for state in states)
        assert not self.reads or total.item() >= 0
        if self.twice and total.requires_grad:
            found = module.autograd.grad(total, leaves, create_graph=True, allow_unused=True)
            total = total * 0.1 + sum(one.square().sum() for one in found if one is not None)
        if total.requires_grad:
            total.backward()
        gradients = [leaf.grad for leaf in leaves if leaf.grad is not None]
        kept = results if self.keeps else []
        del results
        values = [*gradients, total, made, *states, *kept]
        return [value.detach().numpy() for value in values]

    def _step(
        self, module: Any, states: list[Any], rows: list[Any], weights: list[Any]
    ) -> list[Any]:
        values = [*states, *rows]
        for operator, first, second, number in self.calls:
            chosen = (values[int(one * len(values))] for one in (first, second))
            weight = weights[int(number * len(weights))]
            values.append(operator(module, *chosen, weight, number))
        chosen = [values[int(one * len(values))] for one in self.updates]
        # Some states are those of a step before, so that a step reads them one step later.
        further = [one if u < 0.3 else module.tanh(one) for one, u in zip(chosen, self.updates)]
        return [values[-1] * 0.7, *further[1:]]


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + COUNT))
def test_loops_in_python_give_what_pytorch_gives(seed: int) -> None:
    program = Program(seed)
    executor.clear_programs()
    for found, wanted in zip(program.run(metaop), program.run(torch), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-8, atol=1e-9 * (1 + abs(wanted).max()))


def test_most_of_them_become_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    class Watched(rewriting.Rerolled):
        def program(self, program: Any, leaves: int) -> Any:
            made.append(program)
            return super().program(program, leaves)

    monkeypatch.setattr(rewriting, "Rerolled", Watched)
    for seed in range(8):
        executor.clear_programs()
        Program(seed).run(metaop)
    assert len(made) >= 5
