"""Values of views that are read where they lie, without a program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import metaop
from metaop.execution import executor

VIEWS: dict[str, Callable[[Any], Any]] = {
    "element": lambda x: x[2, 3],
    "last": lambda x: x[-1, -1],
    "row": lambda x: x[1],
    "column": lambda x: x[:, 2],
    "steps": lambda x: x[1::2, ::3],
    "turned": lambda x: x.T,
    "flipped": lambda x: metaop.flip(x, (0, 1)) if isinstance(x, metaop.Tensor) else x[::-1, ::-1],
    "longer": lambda x: x[None, :, 3, None],
    "reshaped": lambda x: x.reshape(2, 3, 6),
    "rows by three": lambda x: x[:, 1:].reshape(-1, 1)[4:9],
    "view of a view": lambda x: x[1:3].T[2:],
}


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool", "float16", "uint8"])
@pytest.mark.parametrize("name", VIEWS)
def test_views_as_numpy_reads_them(name: str, dtype: str) -> None:
    values = (np.arange(36).reshape(6, 6) % 7 - 2).astype(dtype)
    x = metaop.tensor(values)
    assert VIEWS[name](x).tolist() == VIEWS[name](values).tolist()


@pytest.mark.parametrize("name", ["bool", "uint8", "int8", "int16", "int32", "int64"])
@pytest.mark.parametrize("number", [0, 1, 100, -7])
def test_integers_that_programs_computed(name: str, number: int) -> None:
    values = torch.tensor([number]).to(getattr(torch, name))
    found = metaop.tensor([number]).to(getattr(metaop, name)).flip(0)
    assert repr(found.item()) == repr(found[0].item()) == repr(values.item())


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("number", [0.0, -0.0, 1 / 3, -1e30, float("inf"), float("nan")])
def test_reals_that_programs_computed(name: str, number: float) -> None:
    values = torch.tensor([number], dtype=torch.float64).to(getattr(torch, name))
    found = metaop.tensor([number], dtype=metaop.float64).to(getattr(metaop, name)).flip(0)
    assert repr(found.item()) == repr(found[0].item()) == repr(values.item())


def test_reading_elements_runs_no_program(monkeypatch: pytest.MonkeyPatch) -> None:
    x = metaop.arange(50) * 3
    x.numpy()

    class Refusing(executor.Watcher):
        def begun(self, _: object) -> None:
            raise AssertionError("a program ran for a view")

    monkeypatch.setattr(executor, "watchers", [Refusing()])
    assert [int(x[k]) for k in range(50)] == list(range(0, 150, 3))
    assert x[10:14].tolist() == [30, 33, 36, 39]
    assert bool(x[1]) and not bool(x[0]) and float(x[2:3]) == 6.0


def test_reading_sees_what_was_written() -> None:
    x = metaop.zeros(4, 4)
    x.numpy()
    row = x[1]
    assert row.tolist() == [0.0] * 4
    x[1, 2] = 5.0
    assert row.tolist() == [0.0, 0.0, 5.0, 0.0] and float(x[1, 2]) == 5.0
    row[0] = 7.0
    assert x.tolist()[1] == [7.0, 0.0, 5.0, 0.0]


def test_a_pending_view_is_computed_for_its_readers() -> None:
    x = metaop.arange(6).float().requires_grad_()
    y = x[2:5]
    assert y.tolist() == [2.0, 3.0, 4.0]
    (y * y).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [0, 0, 4, 6, 8, 0]
