"""Policies choose the modules that PyTorch's choose."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

import metaop
from metaop.distributed import wrapping as ours
from metaop.errors import ArgumentError

torch = pytest.importorskip("torch")
theirs = pytest.importorskip("torch.distributed.fsdp.wrap")


def network(nn: Any) -> Any:
    layers = [nn.TransformerEncoderLayer(8, 2, 16) for _ in range(2)]
    return nn.Sequential(nn.Linear(4, 8), nn.ModuleList(layers), nn.ModuleDict({"a": nn.ReLU()}))


POLICIES = {
    "always": lambda room, nn: room.always_wrap_policy,
    "by function": lambda room, nn: partial(
        room.lambda_auto_wrap_policy, lambda_fn=lambda module: isinstance(module, nn.LayerNorm)
    ),
    "layers": lambda room, nn: partial(
        room.transformer_auto_wrap_policy, transformer_layer_cls={nn.TransformerEncoderLayer}
    ),
    "by size": lambda room, nn: partial(room.size_based_auto_wrap_policy, min_num_params=100),
    "large leaves": lambda room, nn: partial(
        room.size_based_auto_wrap_policy,
        min_num_params=30,
        force_leaf_modules={nn.TransformerEncoderLayer},
        exclude_wrap_modules={nn.Linear},
    ),
    "classes": lambda room, nn: room.ModuleWrapPolicy({nn.Linear, nn.Dropout}),
    "custom": lambda room, nn: room.CustomPolicy(lambda module: isinstance(module, nn.ReLU)),
}


@pytest.mark.parametrize("name", POLICIES)
def test_the_same_modules_are_chosen(name: str) -> None:
    chosen: list[set[str]] = []
    for room, nn in ((ours, metaop.nn), (theirs, torch.nn)):
        model, policy = network(nn), POLICIES[name](room, nn)
        if room is theirs and isinstance(policy, theirs._Policy):
            found = set(policy._run_policy(model, set(), {})) - {model}
        else:
            found = set()

            def wrap(module: Any, found: set[Any] = found) -> Any:
                found.add(module)
                return module

            if room is ours:
                ours.wrap_inside(model, wrap, policy)
            else:
                theirs._recursive_wrap(model, policy, wrap, set(), set())
        names = {module: name for name, module in model.named_modules()}
        chosen.append({names[module] for module in found} - {""})
    assert chosen[0] == chosen[1] and (chosen[0] or name == "large leaves")


def test_modules_are_wrapped_one_by_one_within_a_block() -> None:
    layer = metaop.nn.Linear(2, 2)
    with ours.enable_wrap(wrapper_cls=metaop.nn.Sequential):
        assert isinstance(ours.wrap(layer), metaop.nn.Sequential)
        with pytest.raises(TypeError):
            ours.wrap(layer, anything=3)
    assert ours.wrap(layer) is layer


def test_settings_of_their_own_are_refused() -> None:
    policy: Any = ours.CustomPolicy(lambda module: {"mixed_precision": None})  # type: ignore
    with pytest.raises(ArgumentError, match="same settings"):
        ours.wrap_inside(network(metaop.nn), lambda module: module, policy)
