"""Random recurrences: `scan` gives what a Python loop over the same steps gives, gradients too."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import metaop

FUNCTIONS: tuple[Callable[[Any], Any], ...] = (
    metaop.tanh,
    metaop.sin,
    metaop.relu,
    lambda x: x.softmax(-1),
    lambda x: (x - x.mean(-1, keepdim=True)) / (x.square().mean(-1, keepdim=True) + 0.1).sqrt(),
    lambda x: x.cumsum(-1) * 0.3,
    lambda x: x.flip(-1),
    lambda x: x.roll(1, -1),
)


class Recurrence:
    """What one seed draws: sizes, the function of a step, and what has a gradient."""

    def __init__(self, seed: int) -> None:
        draw = random.Random(seed)
        self.length = draw.choice((0, 1, 2, 3, 5, 8, 9))
        self.reverse, self.recompute = draw.random() < 0.4, draw.random() < 0.3
        self.carried = draw.choice((1, 1, 2))
        self.functions = [draw.choice(FUNCTIONS) for _ in range(4)]
        self.reads_rows, self.reads_table, self.has_weight = (draw.random() < 0.7 for _ in "abc")
        self.output = draw.randrange(5)
        self.twice = draw.random() < 0.3
        batch, width, features = draw.choice((1, 2, 3)), draw.choice((1, 2, 4)), draw.choice((1, 3))
        shapes = {
            "state": (batch, width),
            "memory": (batch, width),
            "rows": (self.length, batch, features),
            "weight": (width, width),
            "entry": (features, width),
            "table": (width,),
        }
        numbers = np.random.default_rng(seed)
        self.values = {name: numbers.standard_normal(shape) for name, shape in shapes.items()}
        self.differentiable = [name for name in shapes if draw.random() < 0.8]

    def step(self, given: dict[str, Any], carry: Sequence[Any], row: Any) -> tuple[Any, Any]:
        """The next carry, and the output of a step."""
        first, second, third, fourth = self.functions
        state = carry[0]
        value = state @ given["weight"] if self.has_weight else state
        if self.reads_rows:
            value = value + row @ given["entry"]
        value = first(value)
        if self.reads_table:
            value = value * second(given["table"])
        new = third(value) + 0.1 * state
        outputs = (new, state, value.sum(-1), (new * 2).detach(), fourth(value))
        if self.carried == 1:
            return (new,), outputs[self.output]
        return (new, carry[1] * 0.5 + value.sum() * 0.1), outputs[self.output]

    def run(self, scans: bool) -> list[Any]:
        """The last carry, the outputs, and gradients of a number that all of them make."""
        given = {name: metaop.tensor(value) for name, value in self.values.items()}
        leaves = [given[name].requires_grad_() for name in self.differentiable]
        carry: Any = (given["state"], given["memory"])[: self.carried]
        if scans:
            carry, outputs = metaop.scan(
                lambda carry, row: self.step(given, carry, row),
                carry,
                given["rows"],
                reverse=self.reverse,
                recompute=self.recompute,
            )
        else:
            found = [None] * self.length
            for i in sorted(range(self.length), reverse=self.reverse):
                carry, found[i] = self.step(given, carry, given["rows"][i])
            outputs = metaop.stack(found) if found else metaop.zeros(0)
        total = sum(value.sin().sum() * factor for value, factor in zip(carry, (1, 0.7)))
        if self.length:
            total = total + (outputs.movedim(0, -1) * metaop.arange(self.length)).sum()
        results = [total, *carry, *([outputs] if self.length else [])]
        return results + self._gradients(total, leaves)

    def _gradients(self, total: Any, leaves: list[Any]) -> list[Any]:
        def of(value: Any) -> list[Any]:
            if not (leaves and value.requires_grad):
                return [metaop.zeros_like(leaf) for leaf in leaves]
            return list(
                metaop.autograd.grad(value, leaves, create_graph=self.twice, materialize_grads=True)
            )

        found = of(total)
        return found + of(sum(g.square().sum() for g in found)) if self.twice and found else found


@pytest.mark.parametrize("seed", range(40))
def test_scans_are_loops(seed: int) -> None:
    drawn = Recurrence(seed)
    for found, wanted in zip(drawn.run(True), drawn.run(False), strict=True):
        found, wanted = found.numpy(force=True), wanted.numpy(force=True)
        np.testing.assert_allclose(found, wanted, 1e-8, 1e-9)
