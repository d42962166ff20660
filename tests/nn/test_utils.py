"""Gradient clipping, parameter vectors and weight reparametrisations against PyTorch's."""

from __future__ import annotations

import numpy as np
import pytest

import metaop
from metaop import nn
from tests.nn.parity import close, draw, pair, to_metaop

torch = pytest.importorskip("torch")


def _with_gradients(scale: float):
    ours, theirs = pair("Linear", 4, 3)
    x = draw(5, 4, grad=False) * scale
    ours(to_metaop(x)).pow(2).sum().backward()
    theirs(x).pow(2).sum().backward()
    return ours, theirs


@pytest.mark.parametrize("norm_type", [2.0, 1.0, 3.0, float("inf")])
@pytest.mark.parametrize("scale", [0.01, 3.0])
def test_clip_norm(norm_type, scale):
    ours, theirs = _with_gradients(scale)
    norm = nn.utils.clip_grad_norm_(ours.parameters(), 1.5, norm_type)
    wanted = torch.nn.utils.clip_grad_norm_(theirs.parameters(), 1.5, norm_type)
    close(norm, wanted, 1e-4)
    for own, other in zip(ours.parameters(), theirs.parameters()):
        close(own.grad, other.grad, 1e-4)


def test_clip_value():
    ours, theirs = _with_gradients(3.0)
    nn.utils.clip_grad_value_(ours.parameters(), 0.7)
    torch.nn.utils.clip_grad_value_(theirs.parameters(), 0.7)
    for own, other in zip(ours.parameters(), theirs.parameters()):
        close(own.grad, other.grad, 1e-4)
    assert nn.utils.clip_grad_norm_([], 1.0).item() == 0


def test_norm_that_is_not_finite():
    parameter = nn.Parameter(metaop.ones(2))
    parameter.grad = metaop.tensor([float("nan"), 1.0])
    with pytest.raises(RuntimeError, match="non-finite"):
        nn.utils.clip_grad_norm_([parameter], 1.0, error_if_nonfinite=True)


def test_vectors():
    ours, theirs = pair("Linear", 4, 3)
    vector = nn.utils.parameters_to_vector(ours.parameters())
    close(vector, torch.nn.utils.parameters_to_vector(theirs.parameters()), 0)
    values = draw(15, grad=False)
    nn.utils.vector_to_parameters(to_metaop(values), ours.parameters())
    torch.nn.utils.vector_to_parameters(values, theirs.parameters())
    for own, other in zip(ours.parameters(), theirs.parameters()):
        close(own, other, 0)
        assert own.requires_grad and own.is_leaf


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("dim", [0, 1, None])
def test_weight_norm(dim):
    ours, theirs = pair("Conv2d", 3, 4, 2)
    nn.utils.weight_norm(ours, dim=dim)
    torch.nn.utils.weight_norm(theirs, dim=dim)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    x = draw(2, 3, 5, 5)
    result, wanted = ours(to_metaop(x)), theirs(x)
    close(result, wanted, 1e-5)
    result.sum().backward()
    wanted.sum().backward()
    close(ours.weight_g.grad, theirs.weight_g.grad, 1e-3)
    close(ours.weight_v.grad, theirs.weight_v.grad, 1e-3)
    nn.utils.remove_weight_norm(ours)
    assert isinstance(ours.weight, nn.Parameter) and not ours._forward_pre_hooks
    close(ours(to_metaop(x)), wanted, 1e-5)


def test_spectral_norm():
    ours, theirs = pair("Linear", 4, 6)
    nn.utils.spectral_norm(ours)
    torch.nn.utils.spectral_norm(theirs)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    ours.load_state_dict(to_metaop(dict(theirs.state_dict())))
    x = draw(3, 4)
    for _ in range(3):
        result, wanted = ours(to_metaop(x)), theirs(x)
        close(result, wanted, 1e-5)
    result.sum().backward()
    wanted.sum().backward()
    close(ours.weight_orig.grad, theirs.weight_orig.grad, 1e-4)
    ours.eval()
    theirs.eval()
    close(ours(to_metaop(x)), theirs(x), 1e-5)
    for _ in range(30):
        ours.train()(to_metaop(x))
    assert abs(np.linalg.norm(ours.weight.detach().numpy(), 2) - 1) < 1e-3
    nn.utils.remove_spectral_norm(ours)
    assert list(dict(ours.named_parameters())) == ["bias", "weight"]
