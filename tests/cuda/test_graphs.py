"""Steps that find their memory where it was before start as one graph of the driver."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import metaop
from metaop import nn
from metaop.codegen.cuda import driver
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


@pytest.mark.skipif(not emulator.is_available(), reason="the emulator needs g++")
def test_on_an_emulated_gpu() -> None:
    program = (
        "from tests.cuda.emulator import cupy_stand_in; cupy_stand_in.install(devices=1);"
        "from tests.cuda.test_graphs import compare; compare()"
    )
    command, folder = [sys.executable, "-c", program], Path(__file__).parents[2]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= _STEPS // 2


@pytest.mark.cuda
@pytest.mark.skipif(not metaop.cuda.is_available(), reason="no GPU that cupy can use")
def test_on_a_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    compare()
    assert int(capsys.readouterr().out) >= _STEPS // 2
