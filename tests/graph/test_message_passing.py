"""Built-in and user-defined functions against loops over nodes in PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import metaop
from metaop import graph as graphs
from metaop.graph import function as fn
from tests.graph.dense import assert_same, features, leaves, random_graph, reduce_by_loop

torch = pytest.importorskip("torch")

REDUCERS = ("sum", "mean", "max", "min", "prod")
OPERATORS = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "dot": lambda a, b: (a * b).sum(-1, keepdim=True),
}


def ends(g: graphs.Graph) -> tuple[Any, Any]:
    return torch.from_numpy(g.structure.source), torch.from_numpy(g.structure.destination)


@pytest.mark.parametrize("reducer", REDUCERS)
@pytest.mark.parametrize("shape", [(), (5,), (2, 3)])
def test_copied_features_are_reduced(reducer: str, shape: tuple[int, ...]) -> None:
    g = random_graph(7, 20)
    inputs = leaves(features(7, *shape))
    g.ndata["h"] = inputs[0][0]
    g.update_all(fn.copy_u("h", "m"), getattr(fn, reducer)("m", "out"))
    expected = reduce_by_loop(g, inputs[1][0][ends(g)[0]], reducer)
    assert_same(g.ndata["out"], expected, inputs)


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("sides", ["uv", "vu", "ue", "eu", "ve", "ev"])
def test_binary_messages(operator: str, sides: str) -> None:
    g = random_graph(6, 17)
    inputs = leaves(features(6, 4), features(17, 4))
    g.ndata["h"], g.edata["w"] = inputs[0]
    u, v = ends(g)
    on_edges = {"u": inputs[1][0][u], "v": inputs[1][0][v], "e": inputs[1][1]}
    fields = ["w" if side == "e" else "h" for side in sides]
    message = getattr(fn, f"{sides[0]}_{operator}_{sides[1]}")(*fields, "m")
    expected = OPERATORS[operator](on_edges[sides[0]], on_edges[sides[1]])
    g.apply_edges(message)
    assert_same(g.edata["m"], expected, inputs)
    g.update_all(message, fn.sum("m", "out"))
    assert_same(g.ndata["out"], reduce_by_loop(g, expected, "sum"), inputs)


def test_features_of_fewer_dimensions_weigh_whole_rows() -> None:
    g = random_graph(6, 14)
    inputs = leaves(features(6, 2, 3), features(14, 2, 1))
    g.ndata["h"], g.edata["w"] = inputs[0]
    g.update_all(fn.u_mul_e("h", "w", "m"), fn.mean("m", "out"))
    expected = reduce_by_loop(g, inputs[1][0][ends(g)[0]] * inputs[1][1], "mean")
    assert_same(g.ndata["out"], expected, inputs)


def test_functions_of_python() -> None:
    g = random_graph(8, 25)
    inputs = leaves(features(8, 3), features(25, 1))
    g.ndata["h"], g.edata["w"] = inputs[0]

    def message(edges: Any) -> dict[str, Any]:
        return {"m": edges.src["h"] * edges.data["w"] + edges.dst["h"]}

    def reduce(nodes: Any) -> dict[str, Any]:
        assert nodes.mailbox["m"].shape[0] == nodes.batch_size() == len(nodes.nodes())
        return {"out": nodes.mailbox["m"].std(1, unbiased=False) + nodes.data["h"]}

    g.update_all(message, reduce, lambda nodes: {"twice": nodes.data["out"] * 2})
    u, v = ends(g)
    h, w = inputs[1]
    sent = h[u] * w + h[v]
    rows = []
    for node in range(8):
        own = sent[v == node]
        rows.append(own.std(0, unbiased=False) + h[node] if len(own) else torch.zeros(3))
    assert_same(g.ndata["twice"], 2 * torch.stack(rows), inputs)


def test_edges_of_a_batch_are_numbered() -> None:
    g = random_graph(5, 11)
    seen = {}

    def message(edges: Any) -> dict[str, Any]:
        u, v, numbers = edges.edges()
        seen["edges"] = (u.numpy(), v.numpy(), numbers.numpy())
        return {"m": numbers.float().unsqueeze(1)}

    g.update_all(message, fn.sum("m", "out"))
    u, v, numbers = seen["edges"]
    np.testing.assert_array_equal(g.structure.source[numbers], u)
    np.testing.assert_array_equal(g.structure.destination[numbers], v)
    assert g.ndata["out"].sum().item() == 55
    g.apply_edges(message)
    np.testing.assert_array_equal(seen["edges"][2], np.arange(11))


@pytest.mark.parametrize("shape", [(), (3,), (2, 1)])
@pytest.mark.parametrize("norm_by", ["dst", "src"])
def test_edge_softmax(shape: tuple[int, ...], norm_by: str) -> None:
    g = random_graph(6, 18)
    inputs = leaves(5 * features(18, *shape))
    ends_of = g.structure.destination if norm_by == "dst" else g.structure.source
    rows: list[Any] = [None] * 18
    for node in range(6):
        members = np.flatnonzero(ends_of == node)
        for place, row in zip(members, inputs[1][0][torch.from_numpy(members)].softmax(0)):
            rows[place] = row
    found = graphs.edge_softmax(g, inputs[0][0], norm_by=norm_by)
    assert_same(found, torch.stack(rows), inputs)


def test_edge_softmax_of_large_logits_is_finite() -> None:
    g = graphs.graph(([0, 1], [2, 2]))
    found = graphs.edge_softmax(g, metaop.tensor([1000.0, 999.0]))
    np.testing.assert_allclose(found.numpy(), [0.7310586, 0.2689414], rtol=1e-5)


def test_edge_softmax_of_some_edges() -> None:
    g = graphs.graph(([0, 1, 2], [2, 2, 2]))
    found = graphs.edge_softmax(g, metaop.tensor([0.0, 0.0]), eids=[0, 2])
    np.testing.assert_allclose(found.numpy(), [0.5, 0.5])


@pytest.mark.parametrize("reducer", REDUCERS)
def test_segments(reducer: str) -> None:
    inputs = leaves(features(6, 2))
    found = graphs.segment_reduce([2, 0, 4], inputs[0][0], reducer)
    method = {"max": "amax", "min": "amin"}.get(reducer, reducer)
    parts = [getattr(part, method)(0) for part in (inputs[1][0][:2], inputs[1][0][2:])]
    expected = torch.stack([parts[0], torch.zeros(2, dtype=torch.float64), parts[1]])
    assert_same(found, expected, inputs)


def test_sparse_products() -> None:
    g = random_graph(6, 15)
    inputs = leaves(features(6, 3), features(15, 1))
    u, _ = ends(g)
    (x, w), (tx, tw) = inputs
    assert_same(graphs.ops.copy_u_sum(g, x), reduce_by_loop(g, tx[u], "sum"), inputs)
    assert_same(graphs.ops.u_mul_e_sum(g, x, w), reduce_by_loop(g, tx[u] * tw, "sum"), inputs)
    found = graphs.ops.gspmm(g, "add", "max", x, w)
    assert_same(found, reduce_by_loop(g, tx[u] + tw, "max"), inputs)


def test_second_derivatives() -> None:
    g = random_graph(5, 12)
    x, t = metaop.tensor(features(5, 2)).requires_grad_(), None
    t = torch.tensor(x.detach().numpy(), requires_grad=True)
    g.ndata["h"] = x
    g.update_all(fn.u_mul_v("h", "h", "m"), fn.sum("m", "out"))
    (first,) = metaop.autograd.grad((g.ndata["out"] ** 2).sum(), x, create_graph=True)
    u, v = ends(g)
    out = torch.zeros(5, 2, dtype=torch.float64).index_add(0, v, t[u] * t[v])
    (wanted,) = torch.autograd.grad((out**2).sum(), t, create_graph=True)
    (second,) = metaop.autograd.grad((first**2).sum(), x)
    (wanted_second,) = torch.autograd.grad((wanted**2).sum(), t)
    np.testing.assert_allclose(second.numpy(), wanted_second.numpy(), rtol=1e-8)


def test_missing_features_are_named() -> None:
    g = random_graph(4, 5)
    g.ndata["h"] = metaop.ones(4)
    with pytest.raises(metaop.errors.ArgumentError, match="no feature 'x', only \\['h'\\]"):
        g.update_all(fn.copy_u("x", "m"), fn.sum("m", "out"))
    with pytest.raises(metaop.errors.ArgumentError, match="reads message 'n'"):
        g.update_all(fn.copy_u("h", "m"), fn.sum("n", "out"))
