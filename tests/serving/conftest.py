"""Small programs, and a server of two of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import httpx
import numpy as np
import pytest

import metaop
from metaop import nn
from metaop.serving.application import Application, Limits
from metaop.serving.server import application, serving

random = np.random.default_rng(11)


def perceptron(seed: int = 0) -> nn.Module:
    metaop.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)).eval()


def against_mean(values: metaop.Tensor) -> metaop.Tensor:
    """Rows that depend on each other."""
    return values - values.mean(0)


def chosen(table: metaop.Tensor, at: metaop.Tensor) -> dict[str, metaop.Tensor]:
    """Rows of a table; places outside of it are refused while the program runs."""
    return {"rows": table[at] * 2, "places": at + 1}


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `mlp.mo`, `mean.mo` and `table.mo`."""
    folder = tmp_path_factory.mktemp("programs")
    x = metaop.rand(2, 4)
    metaop.export(perceptron(), x, folder / "mlp.mo", dynamic={"input": {0: "batch"}})
    metaop.export(against_mean, x, folder / "mean.mo", dynamic={"values": {0: "batch"}})
    table = metaop.from_numpy(np.arange(12, dtype=np.float32).reshape(6, 2))
    axes = {"at": {0: "batch"}}
    metaop.export(chosen, (table, metaop.tensor([1, 2])), folder / "table.mo", dynamic=axes)
    return folder


class Running(NamedTuple):
    """A server, a client of it, and its address."""

    application: Application
    client: httpx.Client
    address: str


@pytest.fixture(scope="package")
def running(programs: Path) -> Iterator[Running]:
    """A server of the three programs, with small bounds."""
    sources = [str(programs / f"{name}.mo") for name in ("mlp", "mean", "table")]
    made = application(sources, Limits(8, 0.005, 64, 1 << 16))
    with serving(made) as address, httpx.Client(base_url=address, timeout=300) as client:
        yield Running(made, client, address)


def floats(*shape: int) -> np.ndarray:
    return random.standard_normal(shape).astype(np.float32)


def body(array: np.ndarray, name: str = "input", **further: object) -> dict[str, object]:
    """The JSON of a request with one float32 input."""
    one = {"name": name, "shape": list(array.shape), "datatype": "FP32", "data": array.tolist()}
    return {"inputs": [one], **further}
