"""Parametrisations, pruning, stateless calls and fusion against PyTorch's."""

from __future__ import annotations

import copy
import importlib
from typing import Any

import numpy as np
import pytest

import metaop
from metaop import nn
from tests.nn.parity import close, draw, pair, same_behaviour, same_text, to_metaop

torch = pytest.importorskip("torch")


def _symmetric(library: Any) -> Any:
    class Symmetric(library.Module):
        def forward(self, X):
            return X.triu() + X.triu(1).transpose(-1, -2)

        def right_inverse(self, A):
            return A.triu()

    return Symmetric()


def _rank_one(library: Any) -> Any:
    class RankOne(library.Module):
        def forward(self, x, y):
            return x.unsqueeze(-1) @ y.unsqueeze(-2)

        def right_inverse(self, Z):
            return Z[..., :, 0], Z[..., 0, :]

    return RankOne()


def _both(change, *arguments: int):
    """The same change made to a linear layer of either library, with the same values."""
    ours, theirs = pair("Linear", *arguments)
    change(ours, nn), change(theirs, torch.nn)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    ours.load_state_dict(to_metaop(dict(theirs.state_dict())))
    return ours, theirs


@pytest.mark.parametrize("make", [_symmetric, _rank_one])
def test_custom(make) -> None:
    def change(module, library):
        parametrize = library.utils.parametrize
        parametrize.register_parametrization(module, "weight", make(library))

    ours, theirs = _both(change, 4, 4)
    same_text(ours, theirs)
    assert [name for name, _ in ours.named_parameters()] == [
        name for name, _ in theirs.named_parameters()
    ]
    same_behaviour(ours, theirs, (draw(5, 4),))
    value = draw(4, 4, grad=False, seed=8)
    with metaop.no_grad(), torch.no_grad():
        ours.weight, theirs.weight = to_metaop(value), value
    close(ours.weight, theirs.weight, 1e-6)
    copied = copy.deepcopy(ours)
    close(copied(to_metaop(draw(5, 4))), theirs(draw(5, 4)), 1e-5)
    for module, library in ((ours, nn), (theirs, torch.nn)):
        assert library.utils.parametrize.is_parametrized(module, "weight")
        library.utils.parametrize.remove_parametrizations(module, "weight")
        assert type(module) is library.Linear
    assert list(ours.state_dict()) == list(theirs.state_dict())
    close(ours.weight, theirs.weight, 1e-6)


def test_several_and_cached() -> None:
    class Doubled(nn.Module):
        calls = 0

        def forward(self, X):
            Doubled.calls += 1
            return 2 * X

    parametrize = nn.utils.parametrize
    layer = nn.Linear(3, 3)
    before = layer.weight.detach().clone()
    parameter = layer.weight
    for _ in range(2):
        parametrize.register_parametrization(layer, "weight", Doubled())
    assert layer.parametrizations.weight.original is parameter
    np.testing.assert_allclose(layer.weight.detach().numpy(), 4 * before.numpy())
    Doubled.calls = 0
    with parametrize.cached():
        assert layer.weight is layer.weight
    assert Doubled.calls == 2
    with pytest.raises((RuntimeError, ValueError), match="right_inverse"):
        layer.weight = before
    other = parametrize.transfer_parametrizations_and_params(layer, nn.Linear(3, 3))
    np.testing.assert_allclose(other.weight.detach().numpy(), 4 * before.numpy())
    assert parametrize.type_before_parametrizations(layer) is nn.Linear
    parametrize.remove_parametrizations(layer, "weight", leave_parametrized=False)
    assert layer.weight is parameter
    with pytest.raises(ValueError, match="shape"):
        parametrize.register_parametrization(layer, "weight", nn.Flatten(0))


@pytest.mark.parametrize("shape", [(4, 4), (6, 4), (3, 5)])
@pytest.mark.parametrize("kind", ["matrix_exp", "cayley", "householder"])
@pytest.mark.parametrize("trivialized", [True, False])
def test_orthogonal(shape, kind, trivialized) -> None:
    def change(module, library):
        library.utils.parametrizations.orthogonal(
            module, "weight", kind, use_trivialization=trivialized
        )

    ours, theirs = _both(change, *shape)
    weight = ours.weight.detach().numpy()
    weight = weight if weight.shape[0] >= weight.shape[1] else weight.T
    np.testing.assert_allclose(weight.T @ weight, np.eye(weight.shape[1]), atol=1e-5)
    same_behaviour(ours, theirs, (draw(2, shape[0]),), 1e-4)


def test_weight_and_spectral_norm() -> None:
    ours, theirs = _both(lambda m, lib: lib.utils.parametrizations.weight_norm(m), 4, 3)
    same_text(ours, theirs)
    same_behaviour(ours, theirs, (draw(5, 4),))
    older = torch.nn.Linear(4, 3)
    with pytest.warns(FutureWarning):
        torch.nn.utils.weight_norm(older)
    ours.load_state_dict(to_metaop(dict(older.state_dict())))
    close(ours.weight, older.weight, 1e-6)

    ours, theirs = _both(lambda m, lib: lib.utils.parametrizations.spectral_norm(m), 4, 3)
    for _ in range(2):
        same_behaviour(ours, theirs, (draw(5, 4),), 1e-4)
    same_behaviour(ours.eval(), theirs.eval(), (draw(5, 4),), 1e-4)


def _prune(library: Any, module: Any, kind: str) -> None:
    prune = importlib.import_module(f"{library.__name__}.utils.prune")
    if kind == "l1":
        prune.l1_unstructured(module, "weight", 0.4)
    elif kind == "ln":
        prune.ln_structured(module, "weight", 2, n=2, dim=0)
    elif kind == "twice":
        prune.l1_unstructured(module, "weight", 3)
        prune.ln_structured(module, "weight", 0.5, n=1, dim=1)
    elif kind == "identity":
        prune.identity(module, "bias")
    else:
        pairs = [(module, "weight"), (module, "bias")]
        prune.global_unstructured(pairs, prune.L1Unstructured, amount=0.3)


@pytest.mark.parametrize("kind", ["l1", "ln", "twice", "identity", "global"])
def test_pruning(kind) -> None:
    ours, theirs = pair("Linear", 6, 5)
    _prune(nn, ours, kind), _prune(torch.nn, theirs, kind)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    for key, wanted in theirs.state_dict().items():
        close(ours.state_dict()[key], wanted, 0)
    same_behaviour(ours, theirs, (draw(4, 6),))
    assert nn.utils.prune.is_pruned(ours)
    name = "bias" if kind == "identity" else "weight"
    nn.utils.prune.remove(ours, name)
    importlib.import_module("torch.nn.utils.prune").remove(theirs, name)
    assert set(ours.state_dict()) == set(theirs.state_dict())
    same_behaviour(ours, theirs, (draw(4, 6),))


def test_random_pruning() -> None:
    layer = nn.utils.prune.random_unstructured(nn.Linear(10, 10), "weight", 0.3)
    assert int(layer.weight_mask.sum()) == 70
    layer = nn.utils.prune.random_structured(nn.Linear(10, 10), "weight", 4, dim=1)
    assert sorted(layer.weight_mask.sum(0).tolist()) == [0.0] * 4 + [10.0] * 6
    with pytest.raises(ValueError, match="amount"):
        nn.utils.prune.l1_unstructured(nn.Linear(2, 2), "weight", 1.5)
    with pytest.raises(ValueError, match="has to be pruned"):
        nn.utils.prune.remove(nn.Linear(2, 2), "weight")


def test_functional_call() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    model[0].bias = model[1].bias
    x = metaop.ones(2, 3)
    before = model.eval()(x).detach()
    weight = metaop.zeros(3, 3, requires_grad=True)
    bias = metaop.ones(3)
    call = nn.utils.stateless.functional_call
    result = call(model, {"0.weight": weight, "0.bias": bias}, (x,))
    # The tied bias of the normalisation changes too.
    np.testing.assert_allclose(result.detach().numpy(), 2.0, rtol=1e-4)
    result.sum().backward()
    assert weight.grad is not None and model[0].weight.grad is None
    np.testing.assert_array_equal(model(x).detach().numpy(), before.numpy())
    with pytest.raises((RuntimeError, ValueError), match="missing"):
        call(model, {"0.weight": weight}, x, strict=True)
    with pytest.raises(AttributeError):
        call(model, {"nothing": weight}, x)


def test_fusion() -> None:
    for conv, transpose in ((nn.Conv2d(3, 4, 3), False), (nn.ConvTranspose2d(3, 4, 3), True)):
        norm = nn.BatchNorm2d(4)
        norm(metaop.randn(6, 4, 5, 5))
        conv.eval(), norm.eval()
        x = metaop.randn(2, 3, 8, 8)
        fused = nn.utils.fuse_conv_bn_eval(conv, norm, transpose)
        np.testing.assert_allclose(
            fused(x).detach().numpy(), norm(conv(x)).detach().numpy(), atol=1e-4
        )
    linear, norm = nn.Linear(3, 4, bias=False).eval(), nn.BatchNorm1d(4)
    norm(metaop.randn(9, 4))
    fused = nn.utils.fuse_linear_bn_eval(linear, norm.eval())
    x = metaop.randn(5, 3)
    np.testing.assert_allclose(
        fused(x).detach().numpy(), norm(linear(x)).detach().numpy(), atol=1e-5
    )
