"""Containers of modules and parameters behave as PyTorch's."""

from __future__ import annotations

import pytest

import metaop
from metaop import nn

torch = pytest.importorskip("torch")


def _sequential(module):
    layers = module.Sequential(module.Linear(1, 2), module.ReLU())
    layers.append(module.Linear(2, 3))
    layers.insert(1, module.Tanh())
    layers.extend([module.Sigmoid(), module.Identity()])
    layers[0] = module.Linear(1, 2, bias=False)
    del layers[-1]
    layers += module.Sequential(module.GELU())
    popped = layers.pop(1)
    assert type(popped).__name__ == "Tanh"
    return [layers, layers[1:3], layers + layers[:1], layers[:2] * 2, layers[-1]]


def _module_list(module):
    layers = module.ModuleList([module.ReLU() for _ in range(3)])
    layers.append(module.Linear(2, 2))
    layers.insert(0, module.Tanh())
    layers.extend([module.Linear(2, 2)])
    layers += [module.ReLU()]
    del layers[1]
    return [layers, layers[2:], layers + [module.GELU()], layers[-2]]


def _module_dict(module):
    layers = module.ModuleDict({"a": module.ReLU()})
    layers["b"] = module.Linear(2, 2)
    layers.update({"c": module.Tanh(), "a": module.GELU()})
    layers.pop("c")
    assert list(layers.keys()) == ["a", "b"] and "a" in layers and len(layers) == 2
    return [layers, layers["b"]]


@pytest.mark.parametrize("build", [_sequential, _module_list, _module_dict])
def test_same_text(build):
    for ours, theirs in zip(build(nn), build(torch.nn)):
        assert repr(ours) == repr(theirs)
        assert list(ours.state_dict()) == list(theirs.state_dict())


def test_errors():
    layers = nn.Sequential(nn.ReLU())
    for bad in (lambda: layers[3], lambda: nn.ModuleList([nn.ReLU()])[-2]):
        with pytest.raises(IndexError, match="out of range"):
            bad()
    with pytest.raises(TypeError):
        nn.ModuleList().extend(3)
    with pytest.raises(ValueError):
        layers * 0
    with pytest.raises(TypeError):
        layers + 3


def test_parameter_containers():
    ours = nn.ParameterList([metaop.ones(2, 3)])
    theirs = torch.nn.ParameterList([torch.ones(2, 3)])
    ours.append(metaop.ones(1)).extend([nn.Parameter(metaop.zeros(2))])
    theirs.append(torch.ones(1)).extend([torch.nn.Parameter(torch.zeros(2))])
    assert repr(ours).replace("metaop", "torch") == repr(theirs)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    assert len(ours[1:]) == 2 and ours[-1].requires_grad
    by_name = nn.ParameterDict({"w": metaop.ones(2)})
    by_name["v"] = metaop.ones(3)
    by_name.update({"u": nn.Parameter(metaop.ones(1))})
    assert list(by_name.keys()) == ["w", "v", "u"]
    assert len(list(by_name.parameters())) == 3
    assert by_name.pop("v").shape == (3,) and "v" not in by_name
    assert by_name.get("none", 5) == 5
    with pytest.raises(RuntimeError, match="should not be called"):
        by_name(1)
