"""Steps that find their memory where it was before start as one graph of the driver."""

from __future__ import annotations

import numpy as np
import pytest

import metaop
from metaop import nn
from metaop.codegen.cuda import driver
from metaop.codegen.cuda.dependencies import Access, predecessors
from tests.cuda import emulator

_STEPS = 20


def losses_on(place: str, sizes: tuple[int, ...] = (5,)) -> list[float]:
    """The losses of a few steps, with batches of some sizes in turn."""
    metaop.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 3)).to(place)
    optimizer = metaop.optim.Adam(model.parameters(), lr=0.01)
    random = np.random.default_rng(0)
    losses = []
    for step in range(_STEPS):
        rows = sizes[step % len(sizes)]
        x = metaop.tensor(random.standard_normal((rows, 8)).astype(np.float32)).to(place)
        y = metaop.tensor(random.integers(0, 3, rows)).to(place)
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def compare() -> None:
    """The current GPU beside the CPU; prints how many graphs were started."""
    started = []
    start = driver.Graph.start

    def counted(graph: driver.Graph, stream: object) -> None:
        started.append(graph)
        start(graph, stream)

    driver.Graph.start = counted  # type: ignore[method-assign]
    try:
        for sizes in ((5,), (5, 7, 5, 4)):
            np.testing.assert_allclose(losses_on("cuda", sizes), losses_on("cpu", sizes), 1e-5)
    finally:
        driver.Graph.start = start  # type: ignore[method-assign]
    print(len(started))


def test_launches_wait_for_those_whose_memory_they_touch() -> None:
    read, write = (
        lambda start, stop: Access(start, stop, False),
        lambda start, stop: Access(start, stop, True),
    )
    launches = [
        [read(0, 8), write(8, 16)],
        [read(0, 8), write(16, 24)],  # reads what the first reads
        [read(12, 20), write(24, 32)],  # reads a part of both results
        [read(24, 32), write(0, 4)],  # overwrites what the first two read
        [read(8, 12), write(40, 44)],
        [],
    ]
    assert list(predecessors(launches)) == [[], [], [1, 0], [2], [0], []]


@pytest.mark.parametrize("seed", range(20))
def test_all_pairs_that_conflict_are_ordered(seed: int) -> None:
    random = np.random.default_rng(seed)
    launches = [
        [
            Access(start, start + int(random.integers(1, 6)), bool(random.integers(2)))
            for start in random.integers(0, 30, random.integers(1, 4)).tolist()
        ]
        for _ in range(25)
    ]
    found = list(predecessors(launches))
    behind: list[set[int]] = []
    for direct in found:
        behind.append(set(direct).union(*(behind[one] for one in direct)))
    for later, accesses in enumerate(launches):
        conflicting = {
            earlier
            for earlier in range(later)
            for one in launches[earlier]
            for other in accesses
            if one.start < other.stop and other.start < one.stop and (one.writes or other.writes)
        }
        # None is missing, and none waits without a reason.
        assert conflicting <= behind[later] and set(found[later]) <= conflicting


@pytest.mark.skipif(not emulator.is_available(), reason="the emulator needs g++")
def test_on_an_emulated_gpu() -> None:
    assert int(emulator.output_on_stand_in("tests.cuda.test_graphs:compare")) >= _STEPS // 4


@pytest.mark.cuda
@pytest.mark.skipif(not metaop.cuda.is_available(), reason="no GPU that cupy can use")
def test_on_a_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    compare()
    assert int(capsys.readouterr().out) >= _STEPS // 4
