"""Whole modules, optimizers and checkpoints that hold them."""

from __future__ import annotations

import importlib
import io
from argparse import Namespace
from collections import Counter
from typing import Any

import pytest

import metaop
from metaop import load, nn, optim, save
from metaop.errors import CheckpointError


class Net(nn.Module):
    """A module with everything: tied weights, a function, a buffer, a hook, a cycle."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.GRU(3, 3))
        self.head = nn.Linear(3, 3)
        self.head.weight = self.body[0].weight
        self.activation = nn.functional.relu
        self.register_buffer("scale", metaop.full((3,), 2.0))
        self.sizes = {"in": 3, "out": [3, (3,)]}
        self.head.register_forward_hook(double)

    def forward(self, x: metaop.Tensor) -> metaop.Tensor:
        return self.head(self.activation(self.body(x)[0])) * self.scale


def double(module: nn.Module, inputs: Any, output: metaop.Tensor) -> metaop.Tensor:
    return output * 2


class Stranger:
    """Neither a module nor an optimizer."""


def again(value: Any, **options: Any) -> Any:
    file = io.BytesIO()
    save(value, file)
    file.seek(0)
    return load(file, **options)


def test_a_module_comes_back_whole() -> None:
    net, x = Net().eval(), metaop.randn(4, 3)
    read = again(net, weights_only=False)
    assert type(read) is Net and not read.training and read.sizes == net.sizes
    assert read(x).tolist() == net(x).tolist()
    assert read.head.weight is read.body[0].weight
    read.train().requires_grad_(False).head.register_forward_hook(double)
    assert read.eval()(x).tolist() == (net(x) * 2).tolist()


def test_a_checkpoint_with_modules_trains_on() -> None:
    net = nn.Linear(2, 1)
    optimizer = optim.Adam(net.parameters(), lr=0.1)
    schedule = optim.lr_scheduler.StepLR(optimizer, 1)

    def step(net: Any, optimizer: Any, schedule: Any) -> list[float]:
        optimizer.zero_grad()
        net(metaop.ones(1, 2)).sum().backward()
        optimizer.step()
        schedule.step()
        return [*net.weight.flatten().tolist(), *schedule.get_last_lr()]

    step(net, optimizer, schedule)
    everything = {"net": net, "optimizer": optimizer, "schedule": schedule, "args": Namespace(a=1)}
    read = again(everything, weights_only=False)
    assert read["args"] == Namespace(a=1) and read["schedule"].optimizer is read["optimizer"]
    assert step(read["net"], read["optimizer"], read["schedule"]) == step(net, optimizer, schedule)


@pytest.mark.parametrize("weights_only", [None, True])
def test_whole_objects_are_read_only_of_trusted_files(weights_only: bool | None) -> None:
    with pytest.raises(CheckpointError, match=r"(?s)Linear.*weights_only=False"):
        again(nn.Linear(1, 1), weights_only=weights_only)


def test_what_no_import_finds_is_refused() -> None:
    class Local(nn.Module):
        pass

    with pytest.raises(CheckpointError, match=r"Local: it cannot be imported"):
        again(Local())
    module = nn.Linear(1, 1)
    module.register_forward_hook(lambda *_: None)
    with pytest.raises(CheckpointError, match=r"lambda"):
        again(module)


def test_only_modules_and_their_like_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.BytesIO()
    with monkeypatch.context() as patch:
        patch.setattr("metaop.serialization.objects._stateful", lambda: (Stranger,))
        save(Stranger(), file)
    file.seek(0)
    with pytest.raises(CheckpointError, match=r"makes a .*Stranger, which is not a module"):
        load(file, weights_only=False)


def test_lists_of_safe_classes_are_kept() -> None:
    torch = pytest.importorskip("torch")
    for lib in (metaop, torch):
        serialization = importlib.import_module(f"{lib.__name__}.serialization")
        before = set(serialization.get_safe_globals())
        serialization.add_safe_globals([set, Counter])
        with serialization.safe_globals([dict]):
            assert set(serialization.get_safe_globals()) == {*before, set, Counter, dict}
        assert set(serialization.get_safe_globals()) == {*before, set, Counter}
        serialization.clear_safe_globals()
        assert serialization.get_safe_globals() == []
        serialization.add_safe_globals([*before])
