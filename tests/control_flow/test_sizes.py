"""Loops and choices of other sizes are the same programs with other numbers."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch

import metaop
from metaop.codegen.llvm import program
from metaop.execution import executor
from tests.control_flow.test_loops import random

WEIGHT = 0.3 * random(4, 4)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """An entry for each program that was compiled since the last `clear()`."""
    found: list[int] = []

    class Counted(program.LLVMProgram):
        def __init__(self, plan):
            super().__init__(plan)
            found.append(len(self.launches))

    monkeypatch.setenv("METAOP_DISK_CACHE", "false")
    monkeypatch.setattr("metaop.codegen.llvm.backend.LLVMProgram", Counted)
    monkeypatch.setattr("metaop.codegen.llvm.general.LLVMProgram", Counted)
    executor.clear_programs()
    return found


def gradient(loss: metaop.Tensor, weight: metaop.Tensor) -> list[metaop.Tensor]:
    return [loss.detach(), metaop.autograd.grad(loss, weight)[0]]


def expected_gradient(loss: torch.Tensor, weight: torch.Tensor) -> list[torch.Tensor]:
    return [loss.detach(), torch.autograd.grad(loss, weight)[0]]


def scan(rows: int, steps: int) -> tuple[Sequence, Sequence]:
    xs = random(steps, rows, 4)

    def step(lib, weight, carry, x):
        carry = lib.tanh(carry @ weight + x).reshape(rows * 2, 2).reshape(rows, 4)
        return carry, lib.cat([carry, x], 1).mean(0)

    weight = metaop.tensor(WEIGHT).requires_grad_()
    last, stacked = metaop.scan(
        lambda c, x: step(metaop, weight, c, x), metaop.zeros(rows, 4), metaop.tensor(xs)
    )
    theirs, carry, total = torch.tensor(WEIGHT).requires_grad_(), torch.zeros(rows, 4), 0.0
    for x in torch.tensor(xs):
        carry, y = step(torch, theirs, carry, x)
        total = total + y.sum()
    ours = gradient(stacked.sum() + last.sum(), weight)
    return ours, expected_gradient(total + carry.sum(), theirs)


def choice(rows: int, steps: int) -> tuple[Sequence, Sequence]:
    x = random(rows, 4) + (2 if rows % 2 else -2)
    weight, theirs = metaop.tensor(WEIGHT).requires_grad_(), torch.tensor(WEIGHT).requires_grad_()
    y = metaop.tensor(x)
    found = metaop.cond(y.sum() > 0, lambda y: (y @ weight).relu(), lambda y: y @ weight / 2, (y,))
    t = torch.tensor(x)
    wanted = (t @ theirs).relu() if t.sum() > 0 else t @ theirs / 2
    return gradient(found.sum(), weight), expected_gradient(wanted.sum(), theirs)


def search(rows: int, steps: int) -> tuple[Sequence, Sequence]:
    x = np.abs(random(rows, 7)) + 1
    found = metaop.while_loop(
        lambda y: y.sum() < 4000, lambda y: (y * 2 + y.flip(0),), (metaop.tensor(x),)
    )
    wanted = torch.tensor(x)
    while wanted.sum() < 4000:
        wanted = wanted * 2 + wanted.flip(0)
    return found, [wanted]


@pytest.mark.parametrize("run", [scan, choice, search])
def test_other_sizes_compile_nothing(run: Callable, made: list[int]) -> None:
    for rows, steps in ((3, 5), (6, 9), (7, 12), (10, 4), (5, 20)):
        made.clear()
        for found, wanted in zip(*run(rows, steps), strict=True):
            np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-4, atol=1e-5)
    assert not made


def test_a_step_with_a_gradient_of_its_own() -> None:
    """A derived composite has one form for its sizes; each choice of sizes gets its program."""
    for rows in (3, 5, 6):
        start = random(rows)
        found = metaop.fori_loop(
            0,
            4,
            lambda i, x: x - 0.1 * metaop.func.grad(lambda y: (y**4).sum())(x),
            metaop.tensor(start),
        )
        wanted = start
        for _ in range(4):
            wanted = wanted - 0.4 * wanted**3
        np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-4)
