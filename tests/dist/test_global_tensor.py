"""Global tensors on simulated ranks: values, gradients and training as on one device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import metaop
from metaop.dist.placement import Placement
from metaop.dist.sbp import BROADCAST, PARTIAL, Sbp, Split
from metaop.tensor.sharded.global_tensor import distribute_tensor

functional = metaop.nn.functional
STATES = [BROADCAST, PARTIAL, Split(0), Split(1)]


def row(ranks: int) -> Placement:
    return Placement("cpu", range(ranks), simulate=True)


@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("source", STATES)
@pytest.mark.parametrize("target", STATES)
def test_every_transition_keeps_the_value(ranks: int, source: Sbp, target: Sbp) -> None:
    value = np.random.default_rng(0).normal(size=(5, 7))
    tensor = distribute_tensor(metaop.tensor(value), row(ranks), source)
    moved = tensor.to_global(sbp=target)
    assert moved.sbp == target
    np.testing.assert_allclose(moved.full_tensor().numpy(), value)


@pytest.mark.parametrize("left", STATES)
@pytest.mark.parametrize("right", STATES)
def test_matmul_in_every_state(left: Sbp, right: Sbp) -> None:
    random = np.random.default_rng(0)
    a, b = random.normal(size=(5, 6)), random.normal(size=(6, 7))
    x = distribute_tensor(metaop.tensor(a), row(3), left)
    y = distribute_tensor(metaop.tensor(b), row(3), right)
    np.testing.assert_allclose((x @ y).full_tensor().numpy(), a @ b)


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("kind", ["to_sparse_coo", "to_sparse_csr", "to_sparse_csc"])
def test_products_with_sparse_matrices(kind: str, state: Sbp) -> None:
    """Every rank has the matrix; gradients arrive at its values and at the dense factor."""
    random = np.random.default_rng(0)
    dense = random.normal(size=(5, 6)) * (random.random((5, 6)) < 0.5)
    factor, places = random.normal(size=(6, 4)), np.nonzero(dense)
    values: Any = metaop.tensor(dense[places]).requires_grad_()
    matrix = getattr(metaop.sparse_coo_tensor(np.stack(places), values, (5, 6)), kind)()
    x = distribute_tensor(metaop.tensor(factor), row(3), state).detach().requires_grad_()
    y = matrix @ x
    (y * y).sum().backward()
    np.testing.assert_allclose(y.full_tensor().detach().numpy(), dense @ factor, atol=1e-12)
    gradient = 2 * dense @ factor @ factor.T
    np.testing.assert_allclose(values.grad.numpy(), gradient[places], atol=1e-12)
    slope = x.grad.full_tensor().numpy()  # type: ignore[union-attr]
    np.testing.assert_allclose(slope, 2 * dense.T @ dense @ factor, atol=1e-12)


@pytest.mark.parametrize("data", [BROADCAST, Split(0)])
@pytest.mark.parametrize("weights", [BROADCAST, Split(0)])
@pytest.mark.parametrize("optimizer", ["SGD", "Adam"])
def test_training_gives_the_losses_of_one_device(data: Sbp, weights: Sbp, optimizer: str) -> None:
    random = np.random.default_rng(0)
    inputs = random.normal(size=(10, 6)).astype(np.float32)
    labels = random.integers(0, 4, 10)
    first = _losses(inputs, labels, None, data, weights, optimizer)
    second = _losses(inputs, labels, row(3), data, weights, optimizer)
    np.testing.assert_allclose(second, first, rtol=1e-5)


def _losses(
    inputs: np.ndarray,
    labels: np.ndarray,
    placement: Placement | None,
    data: Sbp,
    weights: Sbp,
    optimizer: str,
) -> list[float]:
    random = np.random.default_rng(1)
    shapes = [(6, 8), (8,), (8, 4), (4,)]
    values = [metaop.tensor(random.normal(size=s).astype(np.float32) * 0.3) for s in shapes]
    x, target = metaop.tensor(inputs), metaop.tensor(labels)
    if placement is not None:
        x = distribute_tensor(x, placement, data)
        target = distribute_tensor(target, placement, data)
        values = [distribute_tensor(value, placement, weights) for value in values]
    for value in values:
        value.requires_grad_()
    chosen = getattr(metaop.optim, optimizer)(values, lr=0.05)
    losses = []
    for _ in range(8):
        hidden = functional.gelu(x @ values[0] + values[1])
        loss = functional.cross_entropy(hidden @ values[2] + values[3], target)
        chosen.zero_grad()
        loss.backward()
        chosen.step()
        losses.append(loss.item())
    if placement is not None:
        assert [value.sbp for value in values] == [weights] * 4
    return losses


def test_lists_and_local_tensors_are_indices() -> None:
    value = np.random.default_rng(0).normal(size=(5, 4))
    tensor = distribute_tensor(metaop.tensor(value), row(3), Split(0))
    np.testing.assert_array_equal(tensor[:, [2, 0]].numpy(), value[:, [2, 0]])
    np.testing.assert_array_equal(tensor[metaop.tensor([4, 1])].numpy(), value[[4, 1]])
    tensor[[0, 3]] = 7.0
    value[[0, 3]] = 7
    np.testing.assert_array_equal(tensor.numpy(), value)
    assert tensor.sbp == Split(0)


def test_states_are_loaded_to_where_a_module_is() -> None:
    first, second = metaop.nn.Linear(4, 6), metaop.nn.Linear(4, 6)
    spread = metaop.nn.Linear(4, 6).to_global(row(3), Split(0))
    spread.load_state_dict(first.state_dict())
    second.load_state_dict(spread.state_dict())
    for name, value in first.state_dict().items():
        assert spread.state_dict()[name].sbp == Split(0)
        assert second.state_dict()[name].is_local
        np.testing.assert_array_equal(second.state_dict()[name].numpy(), value.numpy())


def test_what_is_printed_says_where_it_lies() -> None:
    tensor = metaop.ones(3, 2, placement=row(3), sbp=Split(0))
    assert repr(tensor).endswith('placement(type="cpu", ranks=[0, 1, 2]), sbp=S0)')
    assert repr(tensor).startswith("tensor([[1., 1.],")


def test_a_file_has_whole_values(tmp_path: Path) -> None:
    spread = metaop.nn.Linear(4, 6).to_global(row(3), Split(0))
    metaop.save(spread.state_dict(), tmp_path / "model.pth")
    found = metaop.load(tmp_path / "model.pth")
    assert found["weight"].is_local
    np.testing.assert_array_equal(found["weight"].numpy(), spread.weight.detach().numpy())


def test_local_tensors_refuse_to_mix_with_global_ones() -> None:
    tensor = distribute_tensor(metaop.ones(4, 4), row(2), BROADCAST)
    with pytest.raises(metaop.errors.DeviceError):
        tensor + metaop.ones(4, 4)


@pytest.mark.parametrize("state", [BROADCAST, Split(0), Split(1)])
def test_loops_and_choices(state: Sbp) -> None:
    random = np.random.default_rng(0)
    weight, xs = random.normal(size=(4, 4)) * 0.3, random.normal(size=(3, 6, 4))

    def loss(weight: metaop.Tensor, xs: metaop.Tensor) -> metaop.Tensor:
        def step(hidden: metaop.Tensor, x: metaop.Tensor) -> tuple[metaop.Tensor, metaop.Tensor]:
            hidden = (hidden @ weight + x).tanh()
            return hidden, metaop.cond(x.sum() > 0, lambda h: h * 2, lambda h: h.sin(), (hidden,))

        last, kept = metaop.scan(step, xs[0] * 0, xs)
        return last.sum() + (kept**2).sum()

    alone = metaop.tensor(weight).requires_grad_()
    wanted = loss(alone, metaop.tensor(xs))
    wanted.backward()
    spread = distribute_tensor(metaop.tensor(weight), row(2), BROADCAST).requires_grad_()
    found = loss(spread, distribute_tensor(metaop.tensor(xs), row(2), state))
    found.backward()
    np.testing.assert_allclose(found.full_tensor().detach().numpy(), wanted.detach().numpy())
    gradient = spread.grad.full_tensor().numpy()
    np.testing.assert_allclose(gradient, alone.grad.numpy(), rtol=1e-9, atol=1e-12)
