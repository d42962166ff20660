"""L-BFGS finds the minima that PyTorch's finds, on the same path."""

from __future__ import annotations

import numpy as np
import pytest

import metaop
from metaop import nn, optim
from metaop.codegen.llvm.objects.engine import statistics
from metaop.optim.lbfgs import _store

torch = pytest.importorskip("torch")


def _descend(library, parameter, optimizer, steps):
    losses = []

    def closure():
        optimizer.zero_grad()
        x, y = parameter[0], parameter[1]
        loss = (1 - x) ** 2 + 10 * (y - x * x) ** 2
        loss.backward()
        return loss

    for _ in range(steps):
        losses.append(optimizer.step(closure).item())
    return losses


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
def test_same_path(search):
    options = {"max_iter": 5, "lr": 0.2 if search is None else 1.0, "line_search_fn": search}
    ours = nn.Parameter(metaop.tensor([-1.0, 0.5], dtype=metaop.float64))
    theirs = torch.nn.Parameter(torch.tensor([-1.0, 0.5], dtype=torch.float64))
    got = _descend(metaop, ours, optim.LBFGS([ours], **options), 4)
    wanted = _descend(torch, theirs, torch.optim.LBFGS([theirs], **options), 4)
    np.testing.assert_allclose(got, wanted, rtol=1e-6)
    np.testing.assert_allclose(ours.tolist(), theirs.tolist(), rtol=1e-6)


def test_finds_the_minimum():
    parameter = nn.Parameter(metaop.tensor([-1.0, 0.5], dtype=metaop.float64))
    optimizer = optim.LBFGS([parameter], max_iter=60, line_search_fn="strong_wolfe")
    _descend(metaop, parameter, optimizer, 1)
    np.testing.assert_allclose(parameter.tolist(), [1, 1], atol=1e-4)
    with pytest.raises(TypeError, match="closure"):
        optimizer.step()


def _fit(library, history, reload_before=None):
    """Losses of a regression; the optimizer is replaced by a loaded one before a step."""
    rng = np.random.default_rng(0)
    rows, targets = (library.tensor(rng.normal(size=size)) for size in ((40, 12), (40,)))
    weight = library.nn.Parameter(library.tensor(np.zeros(12)))

    def made():
        return library.optim.LBFGS([weight], lr=0.3, max_iter=3, history_size=history)

    def closure():
        optimizer.zero_grad()
        loss = ((rows @ weight - targets) ** 2).mean() + 0.1 * (weight**4).sum()
        loss.backward()
        return loss

    optimizer, losses = made(), []
    for number in range(8):
        if number == reload_before:
            state = optimizer.state_dict()
            optimizer = made()
            optimizer.load_state_dict(state)
        losses.append(optimizer.step(closure).item())
    return losses, optimizer


@pytest.mark.parametrize("history", [1, 3, 6, 100])
def test_histories(history):
    """Rows of the history are stored in a ring, which fills early, late or never."""
    wanted, theirs = _fit(torch, history)
    np.testing.assert_allclose(_fit(metaop, history)[0], wanted, rtol=1e-9)
    losses, ours = _fit(metaop, history, reload_before=5)
    np.testing.assert_allclose(losses, wanted, rtol=1e-9)
    got, kept = (one.state_dict()["state"][0] for one in (ours, theirs))
    for name in ("old_dirs", "old_stps", "ro"):
        assert len(got[name]) == len(kept[name])
        for mine, other in zip(got[name], kept[name]):
            np.testing.assert_allclose(mine.numpy(), other.numpy(), rtol=1e-5, atol=1e-12)


@pytest.mark.parametrize("history", [2, 100])
def test_weights_that_change_after_convergence(history):
    """A step that ends because the slope is flat is remembered like any other."""
    paths = []
    for library in (metaop, torch):
        weight = library.nn.Parameter(library.tensor(np.linspace(-1, 1, 8)))
        optimizer = library.optim.LBFGS([weight], max_iter=5, history_size=history)

        def closure(library=library, weight=weight, optimizer=optimizer):
            optimizer.zero_grad()
            loss = ((weight[1:] - weight[:-1] ** 2) ** 2).sum() + ((1 - weight) ** 2).sum()
            loss.backward()
            return loss

        losses = []
        for number in range(8):
            losses.append(optimizer.step(closure).item())
            if number == 3:
                with library.no_grad():
                    weight.add_(0.1)
        paths.append(losses)
    np.testing.assert_allclose(*paths, rtol=1e-6, atol=1e-12)


def test_a_history_whose_size_changes():
    """The latest entries stay, in their order, when the setting changes between steps."""
    _, optimizer = _fit(metaop, 5)
    for most in (5, 8, 3, 4):
        before = optimizer.state_dict()["state"][0]["ro"]
        optimizer.param_groups[0]["history_size"] = most
        one = metaop.ones(12, dtype=metaop.float64)
        _store(optimizer.state[optimizer._params[0]], (one, one, one[0] * most), most)
        after = [value.item() for value in optimizer.state_dict()["state"][0]["ro"]]
        assert after == [*(value.item() for value in before), most][-most:]


def test_ever_longer_histories_compile_nothing():
    weight = nn.Parameter(metaop.arange(5.0))
    optimizer = optim.LBFGS([weight], lr=0.01, max_iter=1)

    def closure():
        optimizer.zero_grad()
        loss = (weight**4 + weight).sum()
        loss.backward()
        return loss

    compiled = []
    for _ in range(40):
        before = statistics.compiled
        optimizer.step(closure)
        compiled.append(statistics.compiled - before)
    # The history grows by doubling.
    assert not any(compiled[9:15]) and not any(compiled[17:31]) and not any(compiled[33:])
