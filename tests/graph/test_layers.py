"""The layers against their formulas with dense matrices in PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import metaop
from metaop import graph as graphs
from metaop.errors import ArgumentError
from metaop.graph import nn as layers
from tests.graph.dense import features, random_graph, reduce_by_loop

torch = pytest.importorskip("torch")
NODES, EDGES = 9, 40


def full_graph() -> graphs.Graph:
    """A graph whose nodes all have incoming edges."""
    return graphs.add_self_loop(graphs.remove_self_loop(random_graph(NODES, EDGES)))


def weights_of(layer: Any) -> dict[str, Any]:
    """The parameters as leaves of PyTorch."""
    return {
        name: torch.tensor(parameter.detach().numpy(), requires_grad=True)
        for name, parameter in layer.named_parameters()
    }


def adjacency(g: graphs.Graph, values: Any = None) -> Any:
    """The matrix (destinations, sources); edges count once each, or with their value."""
    dense = torch.zeros(g.num_dst_nodes(), g.num_src_nodes(), dtype=torch.float64)
    ones = torch.ones(g.num_edges(), dtype=torch.float64) if values is None else values
    places = (torch.from_numpy(g.structure.destination), torch.from_numpy(g.structure.source))
    return dense.index_put(places, ones, accumulate=True)


def compare(layer: Any, found: Any, weights: dict[str, Any], expected: Any) -> None:
    """Equal outputs and gradients of all parameters."""
    np.testing.assert_allclose(
        found.detach().numpy(), expected.detach().numpy(), rtol=1e-9, atol=1e-9
    )
    cotangent = features(*expected.shape)
    found.backward(metaop.tensor(cotangent))
    expected.backward(torch.tensor(cotangent))
    for name, parameter in layer.named_parameters():
        np.testing.assert_allclose(
            parameter.grad.numpy(), weights[name].grad.numpy(), rtol=1e-8, atol=1e-8, err_msg=name
        )


@pytest.mark.parametrize("norm", ["none", "both", "right", "left"])
@pytest.mark.parametrize(("inputs", "outputs"), [(4, 6), (6, 4)])
def test_graph_convolution(norm: str, inputs: int, outputs: int) -> None:
    g, x = full_graph(), features(NODES, inputs)
    edge_weight = abs(features(g.num_edges()))
    layer = layers.GraphConv(inputs, outputs, norm=norm, activation=metaop.tanh).double()
    weights = weights_of(layer)
    found = layer(g, metaop.tensor(x), edge_weight=metaop.tensor(edge_weight).unsqueeze(1))
    incoming, outgoing = (
        torch.tensor(d.numpy()).double() for d in (g.in_degrees(), g.out_degrees())
    )
    power = -0.5 if norm == "both" else -1.0
    matrix = adjacency(g, torch.tensor(edge_weight))
    if norm in ("left", "both"):
        matrix = matrix * outgoing**power
    if norm in ("right", "both"):
        matrix = matrix * incoming[:, None] ** power
    expected = torch.tanh(matrix @ torch.tensor(x) @ weights["weight"] + weights["bias"])
    compare(layer, found, weights, expected)


def test_nodes_without_edges_are_refused_or_allowed() -> None:
    g = graphs.graph(([0], [1]))
    x = metaop.ones(2, 3)
    for layer in (layers.GraphConv(3, 2), layers.GATConv(3, 2, 1), layers.EdgeConv(3, 2)):
        with pytest.raises(ArgumentError, match="without incoming edges"):
            layer(g, x)
    allowed = layers.GraphConv(3, 2, allow_zero_in_degree=True)
    assert allowed(g, x)[0].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("kind", ["mean", "gcn", "pool", "lstm"])
@pytest.mark.parametrize(("inputs", "outputs"), [(3, 5), (5, 3)])
def test_sage_convolution(kind: str, inputs: int, outputs: int) -> None:
    g, x = random_graph(NODES, EDGES), features(NODES, inputs)
    layer = layers.SAGEConv(inputs, outputs, kind).double()
    weights = weights_of(layer)
    found = layer(g, metaop.tensor(x))
    expected = _sage(g, torch.tensor(x), kind, weights)
    compare(layer, found, weights, expected)


def _sage(g: graphs.Graph, x: Any, kind: str, w: dict[str, Any]) -> Any:
    sources = torch.from_numpy(g.structure.source)
    degrees = torch.tensor(g.in_degrees().numpy())[:, None]
    if kind == "gcn":
        return (adjacency(g) @ x + x) / (degrees + 1) @ w["fc_neigh.weight"].T + w["bias"]
    if kind == "mean":
        neighbours = adjacency(g) @ x / degrees.clamp(min=1)
    elif kind == "pool":
        pooled = (x @ w["fc_pool.weight"].T + w["fc_pool.bias"]).relu()
        neighbours = reduce_by_loop(g, pooled[sources], "max")
    else:
        neighbours = _lstm_states(g, x, w)
    own = x @ w["fc_self.weight"].T + w["fc_self.bias"]
    return own + neighbours @ w["fc_neigh.weight"].T


def _lstm_states(g: graphs.Graph, x: Any, w: dict[str, Any]) -> Any:
    lstm = torch.nn.LSTM(x.shape[1], x.shape[1], batch_first=True).double()
    own = {name.removeprefix("lstm."): value for name, value in w.items() if "lstm." in name}
    rows = []
    for node in range(g.num_nodes()):
        members = x[torch.tensor(g.predecessors(node).numpy())]
        state = torch.zeros(x.shape[1], dtype=x.dtype)
        if len(members):
            _, (states, _) = torch.func.functional_call(lstm, own, (members[None],))
            state = states[0, 0]
        rows.append(state)
    return torch.stack(rows)


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_graph_attention(residual: bool, weighted: bool) -> None:
    g, x = full_graph(), features(NODES, 5)
    edge_weight = abs(features(g.num_edges()))
    layer = layers.GATConv(5, 4, num_heads=3, residual=residual).double()
    weights = weights_of(layer)
    given = metaop.tensor(edge_weight) if weighted else None
    found, attention = layer(g, metaop.tensor(x), given, get_attention=True)
    h = (torch.tensor(x) @ weights["fc.weight"].T).reshape(-1, 3, 4)
    left, right = (h * weights["attn_l"]).sum(-1), (h * weights["attn_r"]).sum(-1)
    scores = torch.nn.functional.leaky_relu(right[:, None] + left[None], 0.2)
    edges = adjacency(g) > 0  # no edge is there twice
    share = scores.masked_fill(~edges[..., None], -torch.inf).softmax(1)
    np.testing.assert_allclose(
        attention.detach().numpy()[..., 0],
        share[g.structure.destination, g.structure.source].detach().numpy(),
    )
    if weighted:
        share = share * adjacency(g, torch.tensor(edge_weight))[..., None]
    expected = torch.einsum("vuh,uhf->vhf", share, h) + weights["bias"].reshape(1, 3, 4)
    if residual:
        expected = expected + (torch.tensor(x) @ weights["res_fc.weight"].T).reshape(-1, 3, 4)
    compare(layer, found, weights, expected)


@pytest.mark.parametrize("regularizer", [None, "basis", "bdd"])
def test_relational_convolution(regularizer: str | None) -> None:
    g, x = random_graph(NODES, EDGES), features(NODES, 6)
    kinds = np.random.default_rng(3).integers(0, 3, g.num_edges())
    norm = abs(features(g.num_edges(), 1))
    layer = layers.RelGraphConv(6, 4, 3, regularizer, num_bases=2).double()
    weights = weights_of(layer)
    found = layer(g, *map(metaop.tensor, (x, kinds, norm)))
    w = weights["linear_r.W"]
    if regularizer is None:
        matrices = w
    elif regularizer == "basis":
        matrices = torch.einsum("rb,bio->rio", weights["linear_r.coeff"], w)
    else:
        matrices = torch.stack([torch.block_diag(*row.reshape(2, 3, 2)) for row in w])
    x_there = torch.tensor(x)
    sent = torch.einsum("ei,eio->eo", x_there[g.structure.source], matrices[torch.tensor(kinds)])
    summed = reduce_by_loop(g, sent * torch.tensor(norm), "sum")
    expected = summed + weights["h_bias"] + x_there @ weights["loop_weight"]
    compare(layer, found, weights, expected)


@pytest.mark.parametrize("kind", ["sum", "max", "mean"])
def test_isomorphism_convolution(kind: str) -> None:
    g, x = random_graph(NODES, EDGES), features(NODES, 3)
    layer = layers.GINConv(metaop.nn.Linear(3, 2), kind, 0.5, learn_eps=True).double()
    weights = weights_of(layer)
    found = layer(g, metaop.tensor(x))
    x_there = torch.tensor(x)
    neighbours = reduce_by_loop(g, x_there[g.structure.source], kind)
    mixed = (1 + weights["eps"]) * x_there + neighbours
    expected = mixed @ weights["apply_func.weight"].T + weights["apply_func.bias"]
    compare(layer, found, weights, expected)


@pytest.mark.parametrize("normalised", [False, True])
def test_edge_convolution(normalised: bool) -> None:
    g, x = full_graph(), features(NODES, 3)
    layer = layers.EdgeConv(3, 4, batch_norm=normalised).double()
    weights = weights_of(layer)
    found = layer(g, metaop.tensor(x))
    x_there = torch.tensor(x)
    source, own = x_there[g.structure.source], x_there[g.structure.destination]
    edges = torch.nn.functional.linear(source - own, weights["theta.weight"], weights["theta.bias"])
    edges = edges + torch.nn.functional.linear(own, weights["phi.weight"], weights["phi.bias"])
    if normalised:
        edges = (edges - edges.mean(0)) / (edges.var(0, unbiased=False) + 1e-5).sqrt()
        edges = edges * weights["bn.weight"] + weights["bn.bias"]
    compare(layer, found, weights, reduce_by_loop(g, edges, "max"))


def test_layers_on_a_block_read_sources_and_write_destinations() -> None:
    block = graphs.create_block(([0, 1, 2, 3], [0, 1, 0, 1]), 4, 2)
    x = metaop.randn(4, 3)
    for layer in (
        layers.GraphConv(3, 5), layers.SAGEConv(3, 5, "mean"), layers.RelGraphConv(3, 5, 1),
    ):  # fmt: skip
        kinds = (metaop.zeros(4, dtype=metaop.int64),) if "Rel" in repr(layer) else ()
        assert layer(block, x, *kinds).shape == (2, 5)
    assert layers.GATConv(3, 5, 2)(block, x).shape == (2, 2, 5)
    assert layers.GATConv((3, 2), 5, 2)(block, (x, metaop.randn(2, 2))).shape == (2, 2, 5)
