"""What a training step consists of, as `python -m models coverage` tells it."""

from __future__ import annotations

import numpy as np
import pytest

import metaop
from metaop import nn
from metaop.kernels import task
from models.__main__ import main
from models.coverage import coverage_of


@metaop.kernel(tasks=lambda x: x.shape[0], outputs=lambda x: x)
def halved(x, y):  # type: ignore[no-untyped-def]
    y[task()] = x[task()] * 0.5


def program() -> None:
    """Steps that sort, run a kernel, and read values: a number, data and two computed tensors."""
    layer = nn.Linear(3, 2)
    optimizer = metaop.optim.SGD(layer.parameters(), lr=0.1)
    data = metaop.from_numpy(np.ones((4, 3), "f"))
    for number in range(9):
        assert number < 2, "the program goes on behind the second step"
        out = layer(data)
        data.numpy()
        halved(out.detach().sort(1).values.reshape(-1)).tolist()
        loss = (out * metaop.from_numpy(out.numpy(force=True) + 1)).sum()
        optimizer.zero_grad()
        loss.backward()
        loss.item()
        optimizer.step()


def test_operators_are_told_apart() -> None:
    found = coverage_of(program)
    assert dict(found.code) == {"`halved`": 1}
    assert dict(found.host) == {"`program` in tests/models/test_coverage.py": 2}
    assert {"`sort`", "`linear`"} <= set(found.pure)
    assert found.total == found.pure.total() + 3
    row = found.row("example")
    assert row.startswith(f"| example | {found.total} | {100 - 300 / found.total:.1f} % | kernel")
    assert row.endswith("test_coverage.py × 2 |")


def test_a_network_of_the_families_alone(capsys: pytest.CaptureFixture[str]) -> None:
    lines = main(["coverage", "mlp"]).split("\n")
    assert lines[2].startswith("| mlp |") and lines[2].endswith("| 100.0 % |  |")
    assert capsys.readouterr().out.rstrip("\n").split("\n") == lines
