"""L-BFGS finds the minima that PyTorch's finds, on the same path."""

from __future__ import annotations

import numpy as np
import pytest

import metaop
from metaop import nn, optim

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
