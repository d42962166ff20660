"""The graph network: its formula with a dense matrix in PyTorch, and the karate club."""

from __future__ import annotations

import numpy as np
import pytest

import metaop
from models import gcn

torch = pytest.importorskip("torch")


def test_values_and_gradients_are_those_of_the_formula() -> None:
    graph, _ = gcn.karate_club()
    features = np.random.default_rng(0).standard_normal((34, 5))
    model = gcn.GCN(5, 8, 3, dropout=0.0).double()
    names = list(model.state_dict())
    assert names == ["layers.0.weight", "layers.0.bias", "layers.1.weight", "layers.1.bias"]
    weights = [torch.tensor(p.detach().numpy(), requires_grad=True) for p in model.parameters()]
    dense = torch.zeros(34, 34, dtype=torch.float64)
    dense[graph.structure.destination, graph.structure.source] = 1
    roots = dense.sum(1) ** -0.5
    dense = roots[:, None] * dense * roots
    hidden = torch.relu(dense @ torch.tensor(features) @ weights[0] + weights[1])
    expected = dense @ hidden @ weights[2] + weights[3]
    found = model(graph, metaop.tensor(features))
    np.testing.assert_allclose(found.detach().numpy(), expected.detach().numpy(), rtol=1e-9)
    (found**2).sum().backward()
    (expected**2).sum().backward()
    for parameter, weight in zip(model.parameters(), weights):
        np.testing.assert_allclose(parameter.grad.numpy(), weight.grad.numpy(), rtol=1e-8)


def test_the_sides_of_the_club_are_found() -> None:
    assert gcn.main(["--steps", "60"]) >= 0.9
