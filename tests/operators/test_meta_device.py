"""Tensors without values: shapes and dtypes as in PyTorch, and no memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import metaop
from metaop import nn

torch = pytest.importorskip("torch")
LIBRARIES = pytest.mark.parametrize("lib", [metaop, torch], ids=["metaop", "torch"])

MAKERS: dict[str, Callable[[Any], Any]] = {
    "empty": lambda lib: lib.empty(2, 3, device="meta"),
    "zeros": lambda lib: lib.zeros(2, 3, device=lib.device("meta"), dtype=lib.float16),
    "full": lambda lib: lib.full((4,), 7, device="meta"),
    "tensor": lambda lib: lib.tensor([1, 2], device="meta"),
    "arange": lambda lib: lib.arange(5, device="meta"),
    "linspace": lambda lib: lib.linspace(0, 1, 5, device="meta"),
    "eye": lambda lib: lib.eye(3, device="meta"),
    "randn": lambda lib: lib.randn(2, 2, device="meta"),
    "randint": lambda lib: lib.randint(0, 5, (3,), device="meta"),
    "like": lambda lib: lib.ones_like(lib.ones(3, dtype=lib.float64), device="meta"),
    "new": lambda lib: lib.empty(1, device="meta").new_zeros(2, 5),
    "moved": lambda lib: lib.ones(3).to("meta"),
    "parameter": lambda lib: lib.nn.Parameter(lib.empty(2, device="meta")),
    "promoted": lambda lib: lib.ones(3, device="meta") + lib.ones(2, 1, device="meta").double(),
    "compared": lambda lib: lib.ones(3, device="meta") > 0,
    "reduced": lambda lib: lib.ones(2, 3, 4, device="meta").sum((0, 2)),
    "product": lambda lib: lib.ones(2, 3, device="meta") @ lib.ones(3, 5, device="meta"),
    "view": lambda lib: lib.ones(2, 3, device="meta").mT.reshape(-1)[1:4:2],
    "written": lambda lib: lib.zeros(2, 3, device="meta").add_(1).copy_(lib.ones(3)),
    "convolved": lambda lib: lib.nn.Conv2d(3, 8, 3, stride=2, device="meta")(
        lib.ones(2, 3, 9, 9, device="meta")
    ),
    "recurrent": lambda lib: lib.nn.LSTM(3, 4, device="meta")(lib.ones(5, 2, 3, device="meta"))[0],
}


@pytest.mark.parametrize("name", MAKERS)
def test_shapes_and_types_are_worked_out(name: str) -> None:
    ours, theirs = MAKERS[name](metaop), MAKERS[name](torch)
    assert tuple(ours.shape) == tuple(theirs.shape)
    assert str(ours.dtype).split(".")[1] == str(theirs.dtype).split(".")[1]
    assert ours.is_meta and theirs.is_meta and not ours.is_cpu
    assert ours.requires_grad == theirs.requires_grad and ours.stride() == theirs.stride()
    if not ours.requires_grad or ours.is_leaf:
        assert repr(ours) == repr(theirs).replace("torch.", "metaop.")


READERS: dict[str, Callable[[Any, Any], Any]] = {
    "item": lambda lib, x: x.sum().item(),
    "list": lambda lib, x: x.tolist(),
    "NumPy": lambda lib, x: x.numpy(),
    "cpu": lambda lib, x: x.cpu(),
    "to": lambda lib, x: (x + 1).to("cpu"),
    "truth": lambda lib, x: bool(x.sum()),
    "copy": lambda lib, x: lib.ones(2).copy_(x),
    "mixed": lambda lib, x: x + lib.ones(2),
    "nonzero": lambda lib, x: lib.nonzero(x),
    "module": lambda lib, x: lib.nn.Linear(2, 3, device="meta").to("cpu"),
}


@LIBRARIES
@pytest.mark.parametrize("name", READERS)
def test_reading_is_refused(lib: Any, name: str) -> None:
    with pytest.raises((RuntimeError, TypeError)):
        READERS[name](lib, lib.ones(2, device="meta"))


def test_the_refusal_says_what_to_do() -> None:
    with pytest.raises(NotImplementedError, match=r"(?s)no data!.*to_empty"):
        metaop.ones(2, device="meta").tolist()
    assert metaop.ones(2, device="meta").data_ptr() == 0


@LIBRARIES
def test_modules_are_built_without_memory_and_filled_later(lib: Any) -> None:
    with lib.device("meta"):
        net = lib.nn.Sequential(lib.nn.Linear(2, 1000000), lib.nn.BatchNorm1d(3))
        assert lib.ones(2).is_meta and lib.get_default_device().type == "meta"
    assert lib.ones(2).is_cpu
    assert all(value.is_meta for value in net.state_dict().values())
    net[0] = lib.nn.Linear(2, 3, device="meta")
    loaded = lib.nn.Sequential(lib.nn.Linear(2, 3), lib.nn.BatchNorm1d(3))
    made = net.to_empty(device="cpu")
    made.load_state_dict(loaded.state_dict())
    x = lib.ones(4, 2)
    assert made is net and net(x).tolist() == loaded(x).tolist()
    assigned = lib.nn.Linear(2, 3, device="meta")
    assigned.load_state_dict(loaded[0].state_dict(), assign=True)
    assert assigned(x).tolist() == loaded[0](x).tolist()


@LIBRARIES
def test_gradients_have_shapes_too(lib: Any) -> None:
    layer = lib.nn.Linear(3, 2, device="meta")
    layer(lib.ones(4, 3, device="meta")).relu().sum().backward()
    assert layer.weight.grad.is_meta and tuple(layer.weight.grad.shape) == (2, 3)


def test_what_has_no_value_computes_nothing() -> None:
    huge = nn.Linear(1 << 20, 1 << 20, device="meta")
    result = huge(metaop.ones(8, 1 << 20, device="meta"))
    before = metaop.ones(3) * 2
    assert before.tolist() == [2.0] * 3 and result.shape == (8, 1 << 20)
