"""Modules that are checkpointed whenever they are called, against PyTorch."""

from __future__ import annotations

import copy
import importlib
from typing import Any

import numpy as np
import pytest

import metaop

torch = pytest.importorskip("torch")

LIBRARIES = pytest.mark.parametrize("lib", [metaop, torch], ids=["metaop", "torch"])


def wrappers(lib: Any) -> Any:
    inner = "algorithms._checkpoint." if lib is torch else ""
    return importlib.import_module(f"{lib.__name__}.distributed.{inner}checkpoint_wrapper")


def model(lib: Any) -> Any:
    return lib.nn.Sequential(
        lib.nn.Linear(2, 3), lib.nn.Sequential(lib.nn.Tanh(), lib.nn.Linear(3, 2)), lib.nn.ReLU()
    )


def kinds(module: Any) -> list[str]:
    return [f"{name}:{type(part).__name__}" for name, part in module.named_modules()]


@LIBRARIES
@pytest.mark.parametrize("way", ["REENTRANT", "NO_REENTRANT"])
def test_gradients(lib: Any, way: str) -> None:
    plain = model(lib)
    wrapped = copy.deepcopy(plain)
    runs: list[int] = []
    wrapped[1][0].register_forward_hook(lambda *_: runs.append(1))
    wrapped = wrappers(lib).checkpoint_wrapper(wrapped, wrappers(lib).CheckpointImpl[way])
    x, y = (lib.ones(1, 2, requires_grad=True) for _ in range(2))
    plain(x).sum().backward()
    wrapped(y).sum().backward()
    np.testing.assert_allclose(y.grad.numpy(), x.grad.numpy(), rtol=1e-6)
    for one, other in zip(plain.parameters(), wrapped.parameters(), strict=True):
        np.testing.assert_allclose(other.grad.numpy(), one.grad.numpy(), rtol=1e-6)
    assert len(runs) == 2


@LIBRARIES
def test_keywords(lib: Any) -> None:
    class Scaled(lib.nn.Module):  # type: ignore[name-defined, misc]
        def forward(self, x: Any, *, factor: float) -> Any:
            return x * factor

    for way in wrappers(lib).CheckpointImpl:
        x = lib.ones(2, requires_grad=True)
        wrappers(lib).checkpoint_wrapper(Scaled(), way)(x, factor=3.0).sum().backward()
        assert x.grad.tolist() == [3, 3]


@LIBRARIES
def test_another_function(lib: Any) -> None:
    calls: list[Any] = []

    def run(module: Any, x: Any, *, extra: int) -> Any:
        calls.append(extra)
        return module(x)

    wrapped = wrappers(lib).checkpoint_wrapper(model(lib), checkpoint_fn=run, extra=7)
    assert wrapped(lib.ones(1, 2)).shape == (1, 2) and calls == [7]


@LIBRARIES
def test_names_and_attributes(lib: Any) -> None:
    plain, wrapped = model(lib), wrappers(lib).checkpoint_wrapper(model(lib))
    whole = lib.nn.Sequential(wrapped)
    assert wrapped.state_dict().keys() == plain.state_dict().keys()
    assert [*whole.state_dict()] == [f"0.{name}" for name in plain.state_dict()]
    assert [name for name, _ in wrapped.named_parameters()] == [*plain.state_dict()]
    wrapped.load_state_dict(plain.state_dict())
    whole.load_state_dict({f"0.{name}": value for name, value in plain.state_dict().items()})
    plain.load_state_dict(wrapped.state_dict())
    assert wrapped[0].weight.tolist() == plain[0].weight.tolist()
    assert wrapped[0].in_features == 2 and len(wrapped[1]) == 2
    single = wrappers(lib).CheckpointWrapper(lib.nn.Linear(2, 3))
    assert single.out_features == 3 and single.weight.shape == (3, 2)
    assert not hasattr(wrapped, "nothing")
    assert copy.deepcopy(wrapped).state_dict().keys() == plain.state_dict().keys()


def policies(lib: Any) -> list[dict[str, Any]]:
    linear = lib.nn.Linear

    def large(module: Any, recurse: bool, nonwrapped_numel: int) -> bool:
        return nonwrapped_numel >= 8

    return [
        {},
        {"check_fn": lambda module: isinstance(module, linear)},
        {"auto_wrap_policy": large},
        {
            "check_fn": lambda module: isinstance(module, lib.nn.ReLU),
            "checkpoint_wrapper_fn": lambda module: lib.nn.Sequential(module),
        },
    ]


@pytest.mark.parametrize("number", range(4))
def test_wrapped_parts(number: int) -> None:
    found = []
    for lib in (metaop, torch):
        network = model(lib)
        apply = wrappers(lib).apply_activation_checkpointing
        assert apply(network, **policies(lib)[number]) is None
        assert network(lib.ones(1, 2)).shape == (1, 2)
        found.append(kinds(network))
    assert found[0] == found[1]


@LIBRARIES
def test_a_policy_that_cannot_be_called(lib: Any) -> None:
    with pytest.raises(ValueError, match="call"):
        wrappers(lib).apply_activation_checkpointing(model(lib), auto_wrap_policy=3)
