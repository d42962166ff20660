"""Modules with complex parameters beside PyTorch's: outputs, gradients, steps, initial values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import metaop

torch = pytest.importorskip("torch")

MODULES: dict[str, tuple[tuple[Any, ...], tuple[int, ...]]] = {
    "Linear": ((4, 3), (5, 4)),
    "Conv1d": ((2, 3, 3), (2, 2, 8)),
    "Conv2d": ((2, 4, 3, 2, 1), (2, 2, 7, 6)),
    "Conv3d": ((1, 2, 2), (1, 1, 4, 4, 4)),
    "ConvTranspose1d": ((2, 3, 3, 2), (2, 2, 5)),
    "ConvTranspose2d": ((2, 3, 3), (1, 2, 4, 4)),
}
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "SGD": {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01},
    "Adam": {"lr": 0.01, "amsgrad": True},
    "AdamW": {"lr": 0.01},
    "Adamax": {"lr": 0.01},
    "NAdam": {"lr": 0.01},
    "RAdam": {"lr": 0.01},
    "RMSprop": {"lr": 0.01, "momentum": 0.5},
    "Adagrad": {"lr": 0.1},
    "Adadelta": {"lr": 1.0},
    "Rprop": {"lr": 0.01},
    "ASGD": {"lr": 0.01},
    "LBFGS": {"lr": 0.5, "max_iter": 4},
}


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    draw = np.random.default_rng(seed).standard_normal
    return draw(shape) + 1j * draw(shape)


def pair_of(name: str, dtype: str) -> tuple[Any, Any]:
    """A module of PyTorch and one of metaop with its parameters."""
    torch.manual_seed(0)
    arguments = MODULES[name][0]
    theirs = getattr(torch.nn, name)(*arguments, dtype=getattr(torch, dtype))
    mine = getattr(metaop.nn, name)(*arguments, dtype=getattr(metaop, dtype))
    state = {key: metaop.tensor(value.numpy()) for key, value in theirs.state_dict().items()}
    mine.load_state_dict(state)
    return mine, theirs


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_outputs_and_gradients(name: str, dtype: str) -> None:
    mine, theirs = pair_of(name, dtype)
    given = numbers(*MODULES[name][1]).astype(dtype)
    results = []
    for library, module in ((metaop, mine), (torch, theirs)):
        x = library.tensor(given).requires_grad_()
        output = module(x)
        output.abs().square().sum().backward()
        found = [output, *(leaf.grad for leaf in (x, *module.parameters()))]
        results.append([x.detach().resolve_conj().numpy() for x in found])
    tolerance = 2e-5 if dtype == "complex64" else 1e-10
    for got, wanted in zip(*results):
        scale = np.abs(wanted).max()
        np.testing.assert_allclose(got, wanted, tolerance, tolerance * scale)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps(name: str) -> None:
    mine, theirs = pair_of("Linear", "complex128")
    given, target = numbers(6, 4), numbers(6, 3, seed=1)
    for library, module in ((metaop, mine), (torch, theirs)):
        optimizer = getattr(library.optim, name)(module.parameters(), **OPTIMIZERS[name])
        x, y = library.tensor(given), library.tensor(target)

        def closure(
            module: Any = module, optimizer: Any = optimizer, x: Any = x, y: Any = y
        ) -> Any:
            optimizer.zero_grad()
            loss = (module(x) - y).abs().square().mean()
            loss.backward()
            return loss

        for _ in range(4):
            optimizer.step(closure)
        library.nn.utils.clip_grad_norm_(module.parameters(), 0.1)
    for one, other in zip(mine.parameters(), theirs.parameters()):
        np.testing.assert_allclose(one.detach().numpy(), other.detach().numpy(), 1e-7, 1e-9)
        np.testing.assert_allclose(one.grad.numpy(), other.grad.numpy(), 1e-5, 1e-8)


def test_conversion_and_files(tmp_path: Any) -> None:
    mine, theirs = pair_of("Conv2d", "complex64")
    metaop.save(mine.state_dict(), tmp_path / "m.pt")
    loaded = torch.load(tmp_path / "m.pt")
    np.testing.assert_array_equal(loaded["weight"].numpy(), theirs.weight.detach().numpy())
    assert mine.to(metaop.complex128).weight.dtype is metaop.complex128
    assert metaop.nn.Linear(2, 2).to(metaop.complex64).weight.dtype is metaop.complex64
    parameter = metaop.nn.Parameter(metaop.ones(2, dtype=metaop.complex64))
    assert parameter.requires_grad and parameter.is_complex()


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_random_numbers(dtype: str) -> None:
    kind = getattr(metaop, dtype)
    metaop.manual_seed(0)
    z = metaop.randn(200, 200, dtype=kind)
    assert z.dtype is kind and abs(z.abs().square().mean().item() - 1) < 0.03
    assert abs((z * z).mean().item()) < 0.03
    u = metaop.rand(100, 100, dtype=kind)
    assert bool(((u.real >= 0) & (u.imag < 1)).all()) and abs(u.mean().item() - 0.5 - 0.5j) < 0.03
    assert metaop.randn_like(z).shape == z.shape
    filled = metaop.empty(200, 200, dtype=kind).normal_(0, 2)
    assert abs(filled.abs().square().mean().item() - 4) < 0.1


def test_initial_values() -> None:
    weight = metaop.nn.Parameter(metaop.empty(30, 40, dtype=metaop.complex128))
    metaop.nn.init.orthogonal_(weight)
    product = (weight @ weight.mH).detach().numpy()
    np.testing.assert_allclose(product, np.eye(30), atol=1e-10)
    for name in ("xavier_normal_", "kaiming_uniform_", "normal_", "zeros_", "ones_"):
        getattr(metaop.nn.init, name)(weight)
    assert bool((weight == 1).all())
