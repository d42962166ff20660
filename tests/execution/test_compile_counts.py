"""How many kernels are compiled, and how often forward kernels run."""

from __future__ import annotations

import gc
import math
import os
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest

import metaop
import metaop.nn.functional as F
from metaop import garbage
from metaop.codegen.caches.kernels import KernelCache
from metaop.codegen.llvm import kernels, rows
from metaop.codegen.llvm.machine import host_machine
from metaop.codegen.nest.ir import LoopNest
from metaop.execution import executor
from models.lenet import LeNet


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the kernels that are compiled, as in a process that has none yet."""
    names: list[str] = []

    def counting(nest: LoopNest) -> str:
        names.append(nest.name)
        return kernels.start_compiling(nest)

    cache = KernelCache(counting)
    monkeypatch.setenv("METAOP_DISK_CACHE", "false")
    monkeypatch.setattr(rows, "kernel_cache", lambda: cache)
    executor.clear_programs()
    return names


@pytest.mark.parametrize(
    "change",
    [
        lambda x, k: F.pad(x, (k + 1, 1)),
        lambda x, k: x[:, k : k + 20],
        lambda x, k: x.roll(k + 1, 1),
    ],
    ids=["pad", "slice", "roll"],
)
def test_ten_widths_compile_once(
    change: Callable[[metaop.Tensor, int], metaop.Tensor], compiled: list[str]
) -> None:
    x = metaop.randn(6, 50)
    x.numpy()
    compiled.clear()
    for k in range(10):
        (change(x, k) * 2).numpy()
    assert len(compiled) == 1


def test_a_changed_batch_size_compiles_in_its_first_step_only(compiled: list[str]) -> None:
    model = LeNet()
    optimizer = metaop.optim.Adam(model.parameters())

    def step(count: int) -> int:
        before = len(compiled)
        loss = F.cross_entropy(
            model(metaop.randn(count, 1, 28, 28)), metaop.randint(0, 10, (count,))
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        assert np.isfinite(loss.item())
        return len(compiled) - before

    # Batches that tiles of registers fit exactly, on any processor, and whose sums are loops.
    rows = math.lcm(host_machine().tile.rows, 16)
    fitting = rows * math.ceil(32 / rows)
    first = step(2 * fitting)
    assert first > 0 and step(2 * fitting) == 0
    # Kernels of the general program have other arguments than those of the first size, and some
    # have another schedule: products of few steps, of which the first size has one, and gradients
    # of filters, which take one image at a time where nobody knows how many there are.
    most = first * 2 // 3
    assert step(fitting) <= most and step(fitting) == 0
    # The longest sums that one loop adds up bound the batches of a variant: one in each range.
    assert sum(map(step, (200, 100, 50, 17))) <= most
    assert sum(map(step, (2 * fitting, 33, 5, 64, 91, 180))) == 0


def test_the_loss_before_backward_runs_every_contraction_once() -> None:
    model = LeNet()
    images, labels = metaop.randn(8, 1, 28, 28), metaop.randint(0, 10, (8,))
    for tensor in (images, labels, *model.parameters()):
        tensor.numpy(force=True)

    def contractions(early: bool) -> int:
        model.zero_grad()
        with metaop.profile() as profile:
            loss = F.cross_entropy(model(images), labels)
            if early:
                loss.item()
            loss.backward()
            for parameter in model.parameters():
                assert parameter.grad is not None
                parameter.grad.numpy()
            loss.item()
        lines = profile.table().splitlines()[1:]
        counts = [line.split() for line in lines if "contraction" in line]
        return sum(int(line[0]) for line in counts)

    assert contractions(early=True) == contractions(early=False) > 0


def test_loaded_values_are_no_part_of_the_next_program(compiled: list[str]) -> None:
    saved, model, x = LeNet().state_dict(), LeNet().eval(), metaop.randn(2, 1, 28, 28)

    def values() -> np.ndarray:
        return model(x).detach().numpy()

    first = values()
    second = values()
    np.testing.assert_array_equal(first, second)
    programs = len(executor._programs)
    model.load_state_dict(saved)
    third = values()
    assert not np.array_equal(third, first)
    assert len(executor._programs) == programs
    # They are copies all the same.
    for value in saved.values():
        value.zero_()
    np.testing.assert_array_equal(values(), third)


def test_steps_of_a_recursion_share_their_kernels(compiled: list[str]) -> None:
    def kernels(steps: int) -> int:
        before = len(compiled)
        scores = metaop.randn(steps, 2, 5).requires_grad_()
        targets = metaop.tensor([[1, 2], [3, 1]])
        loss = F.ctc_loss(scores.log_softmax(2), targets, (steps, steps), (2, 2))
        loss.backward()
        scores.grad.numpy()
        return len(compiled) - before

    kernels(12)
    # Fewer than one a step, though each step has several.
    assert kernels(24) < 24


@pytest.mark.parametrize(
    "function",
    [
        lambda x, k: F.gumbel_softmax(x, tau=1 / (k + 1)),
        lambda x, k: F.pad(x, (1, 1), value=float("nan")),
        lambda x, k: x.nan_to_num(float("nan"), k * float("inf")),
        lambda x, k: x * k + x ** (k + 0.5),
    ],
    ids=["temperature", "NaN", "infinities", "factors"],
)
def test_numbers_compile_nothing(function: Callable[[metaop.Tensor, int], metaop.Tensor]) -> None:
    x = metaop.rand(3, 4)
    for k in range(3, 6):
        function(x, k).numpy()
        if k == 4:
            programs = len(executor._programs)
    assert len(executor._programs) == programs


def test_products_of_other_widths_share_a_kernel(compiled: list[str]) -> None:
    widths = range(96, 1441, 32)
    factors = [(metaop.randn(64, k), metaop.randn(k, n)) for k, n in pairwise(widths)]
    for factor in (factor for pair in factors for factor in pair):
        factor.numpy()
    compiled.clear()
    products = [x @ y for x, y in factors]
    products[0].numpy()  # the others belong to the same program
    # The register tile, and whether blocks of rows, of columns or of both fit it, tell them apart.
    assert len(compiled) <= len(products) / 2, compiled
    for (x, y), product in zip(factors, products):
        wanted = x.numpy().astype(np.float64) @ y.numpy()
        np.testing.assert_allclose(product.numpy(), wanted, rtol=1e-5, atol=1e-4)


_YOUNG = """
import gc, metaop
from metaop import garbage
garbage._MANY_OBJECTS = 0
x = metaop.ones(8, 8)
gc.collect()
(x @ x).softmax(1).sum().numpy()
print(gc.isenabled(), gc.get_freeze_count(), len(gc.get_objects(0)) + len(gc.get_objects(1)))
"""


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="its collector has no young generations")
def test_what_a_large_program_leaves_is_not_looked_through() -> None:
    command = [sys.executable, "-c", _YOUNG]
    environment = {**os.environ, "METAOP_DISK_CACHE": "0"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    is_enabled, frozen, young = done.stdout.split()
    assert (is_enabled, frozen) == ("True", "0") and int(young) < 1000


def test_a_small_program_does_not_count_frozen_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python counts them one by one, which took half of the time of tests that freeze many."""
    monkeypatch.setattr(gc, "get_freeze_count", lambda: pytest.fail("frozen objects are counted"))
    threshold = gc.get_threshold()
    gc.set_threshold(10 * garbage._MANY_OBJECTS)
    try:
        young = [[k] for k in range(2 * garbage._MANY_OBJECTS)]
        executor.clear_programs()
        assert (metaop.ones(3, 5) * 7).sum().item() == 105 and young
    finally:
        gc.set_threshold(*threshold)
