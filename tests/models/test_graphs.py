"""Graph networks: their formulas with dense matrices in PyTorch, parts of graphs, and learning."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import networkx
import numpy as np
import pytest

import metaop
from metaop import graph as graphs
from models import gat, gcn, gin, graphsage, rgcn, sgc
from tests.graph.dense import random_graph

torch = pytest.importorskip("torch")


def twins(model: metaop.nn.Module) -> list[Any]:
    """The parameters of a model, in float64, as leaves of PyTorch."""
    return [torch.tensor(p.detach().numpy(), requires_grad=True) for p in model.parameters()]


def assert_same(found: metaop.Tensor, expected: Any, model: metaop.nn.Module, leaves: Any) -> None:
    """Equal values, and equal gradients of the sum of squares by all parameters."""
    np.testing.assert_allclose(found.detach().numpy(), expected.detach().numpy(), atol=1e-9)
    (found**2).sum().backward()
    (expected**2).sum().backward()
    for (name, parameter), leaf in zip(model.named_parameters(), leaves):
        scale = float(leaf.grad.abs().max()) + 1e-3
        gradient = parameter.grad.numpy() / scale
        np.testing.assert_allclose(gradient, leaf.grad.numpy() / scale, atol=1e-8, err_msg=name)


def adjacency(graph: graphs.Graph) -> Any:
    """Ones (nodes, nodes) where an edge leads from the column to the row."""
    dense = torch.zeros(graph.num_nodes(), graph.num_nodes(), dtype=torch.float64)
    dense[graph.structure.destination, graph.structure.source] = 1
    return dense


def features(graph: graphs.Graph, width: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((graph.num_nodes(), width))


def test_sgc_is_a_linear_map_of_means_of_means() -> None:
    graph, _ = gcn.karate_club()
    inputs = features(graph, 5)
    model = sgc.SGC(5, 3, hops=3).double()
    assert list(model.state_dict()) == ["fc.weight", "fc.bias"]
    weight, bias = leaves = twins(model)
    dense = adjacency(graph)
    roots = dense.sum(1) ** -0.5
    spread = roots[:, None] * dense * roots
    expected = spread @ spread @ spread @ torch.tensor(inputs) @ weight.t() + bias
    assert_same(model(graph, metaop.tensor(inputs)), expected, model, leaves)


def test_gat_listens_by_attention() -> None:
    graph, _ = gcn.karate_club()
    inputs = features(graph, 5)
    model = gat.GAT(5, 4, 3, heads=2, dropout=0.0).double()
    leaves = twins(model)
    kept = adjacency(graph)[:, :, None] == 0

    def layer(x: Any, left: Any, right: Any, bias: Any, weight: Any) -> Any:
        x = (x @ weight.t()).view(len(x), *left.shape[1:])
        scores = (x * right).sum(-1)[:, None] + (x * left).sum(-1)[None]
        scores = torch.nn.functional.leaky_relu(scores, 0.2).masked_fill(kept, -torch.inf)
        found = torch.einsum("vuh,uhc->vhc", scores.softmax(1), x)
        return found + bias.view(left.shape[1:])

    names = [name for name, _ in model.layers[0].named_parameters()]
    assert names == ["attn_l", "attn_r", "bias", "fc.weight"]
    hidden = torch.nn.functional.elu(layer(torch.tensor(inputs), *leaves[:4])).flatten(1)
    expected = layer(hidden, *leaves[4:]).mean(1)
    assert_same(model(graph, metaop.tensor(inputs)), expected, model, leaves)


def test_graphsage_takes_means_of_neighbours() -> None:
    graph = random_graph(9, 30)
    inputs = features(graph, 5)
    model = graphsage.GraphSAGE(5, 4, 3).double()
    names = [name for name, _ in model.layers[0].named_parameters()]
    assert names == ["fc_neigh.weight", "fc_self.weight", "fc_self.bias"]
    leaves = twins(model)
    dense = adjacency(graph)
    mean = dense / dense.sum(1, keepdim=True).clamp(min=1)

    def layer(x: Any, neighbours: Any, own: Any, bias: Any) -> Any:
        return x @ own.t() + bias + mean @ x @ neighbours.t()

    expected = layer(torch.relu(layer(torch.tensor(inputs), *leaves[:3])), *leaves[3:])
    assert_same(model(graph, metaop.tensor(inputs)), expected, model, leaves)


def test_blocks_of_all_neighbours_are_the_whole_graph() -> None:
    graph = random_graph(20, 60)
    inputs = features(graph, 5)
    model = graphsage.GraphSAGE(5, 4, 3).double()
    sampler = graphs.sampling.NeighborSampler([-1, -1])
    sources, destinations, blocks = sampler.sample_blocks(graph, [7, 3, 12])
    with metaop.no_grad():
        whole = model(graph, metaop.tensor(inputs)).numpy()
        found = model(blocks, metaop.tensor(inputs[sources.numpy()])).numpy()
    assert destinations.tolist() == [7, 3, 12] and found.shape == (3, 3)
    np.testing.assert_allclose(found, whole[[7, 3, 12]], atol=1e-12)


def test_gin_sums_over_neighbours_and_nodes() -> None:
    parts = [random_graph(6, 14), random_graph(4, 7)]
    graph = graphs.batch(parts)
    inputs = features(graph, 3)
    model = gin.GIN(3, 4, 2, layers=2).double().eval()
    for layer in model.layers:
        metaop.nn.init.constant_(layer.eps, 0.3)
    leaves = twins(model)
    by_name = dict(zip([name for name, _ in model.named_parameters()], leaves))
    dense, x = adjacency(graph), torch.tensor(inputs)
    own = torch.tensor([[1.0] * 6 + [0.0] * 4, [0.0] * 6 + [1.0] * 4]).double()
    expected = own @ x @ by_name["heads.0.weight"].t() + by_name["heads.0.bias"]
    for number in range(2):
        x = (1 + by_name[f"layers.{number}.eps"]) * x + dense @ x
        for name in (f"layers.{number}.apply_func.{place}" for place in (0, 1, 3)):
            # A norm that has seen nothing yet has mean 0 and variance 1.
            weight = by_name[f"{name}.weight"]
            x = x * weight / (1 + 1e-5) ** 0.5 if weight.ndim == 1 else x @ weight.t()
            x = x + by_name[f"{name}.bias"]
            x = x if name.endswith("0") else torch.relu(x)
        head = f"heads.{number + 1}"
        expected = expected + own @ x @ by_name[f"{head}.weight"].t() + by_name[f"{head}.bias"]
    assert_same(model(graph, metaop.tensor(inputs)), expected, model, leaves)


def test_rgcn_has_weights_for_each_relation() -> None:
    graph = random_graph(9, 30)
    inputs, kinds = features(graph, 3), np.random.default_rng(1).integers(0, 4, 30)
    model = rgcn.RGCN(3, 5, 2, relations=4, bases=2).double()
    leaves = twins(model)
    names = [name for name, _ in model.layers[0].named_parameters()]
    assert names == ["h_bias", "loop_weight", "linear_r.W", "linear_r.coeff"]
    dense = adjacency(graph)
    source, destination = graph.structure.source, graph.structure.destination

    def layer(x: Any, bias: Any, loop: Any, bases: Any, coefficients: Any) -> Any:
        found = x @ loop + bias
        for kind in range(4):
            own = torch.zeros_like(dense)
            own[destination[kinds == kind], source[kinds == kind]] = 1
            mean = own / own.sum(1, keepdim=True).clamp(min=1)
            found = found + mean @ x @ torch.einsum("b,bio->io", coefficients[kind], bases)
        return found

    expected = layer(torch.relu(layer(torch.tensor(inputs), *leaves[:4])), *leaves[4:])
    found = model(graph, metaop.tensor(inputs), metaop.tensor(kinds))
    assert_same(found, expected, model, leaves)


def test_generations_are_the_numbers_of_ancestors() -> None:
    facts = rgcn.family(30, np.random.default_rng(2))
    found = rgcn.generations(facts, 3)
    parents = {child: parent for parent, kind, child in facts.tolist() if kind == 0}
    for person, generation in enumerate(found.tolist()):
        ancestors = 0
        while person in parents:
            person, ancestors = parents[person], ancestors + 1
        assert generation == min(ancestors, 3)


def test_drawn_graphs_are_of_their_kinds() -> None:
    graph, kinds = gin.drawn_graphs(40, np.random.default_rng(0))
    assert set(kinds) == {0, 1, 2, 3}
    for part, kind in zip(graphs.unbatch(graph), kinds):
        network = networkx.Graph(graphs.to_networkx(part))
        degrees = sorted(degree for _, degree in network.degree)
        assert kind != 0 or set(degrees) == {2}
        assert kind != 1 or degrees[-1] == len(network) - 1
        assert kind not in (1, 2) or networkx.is_tree(network)


@pytest.mark.parametrize(
    ("module", "words", "least"),
    [
        (sgc, ["--steps", "40"], 0.9),
        (gat, ["--steps", "30", "--heads", "2"], 0.8),
        (graphsage, ["--steps", "25", "--groups", "2", "--size", "40"], 0.8),
        (gin, ["--steps", "20", "--layers", "2", "--lr", "3e-2"], 0.5),
        (rgcn, ["--steps", "30"], 0.8),
    ],
)
def test_training_finds_what_was_not_told(module: Any, words: list[str], least: float) -> None:
    assert module.main(words) >= least


def test_training_goes_on_where_it_was_interrupted(tmp_path: Path) -> None:
    """Batches of neighbours follow from the random state that a checkpoint keeps."""
    words = ["--groups", "2", "--size", "20", "--batch-size", "8", "--checkpoint"]
    graphsage.main([*words, str(tmp_path / "whole.pth"), "--steps", "6"])
    graphsage.main([*words, str(tmp_path / "parts.pth"), "--steps", "2"])
    graphsage.main([*words, str(tmp_path / "parts.pth"), "--steps", "6"])
    whole, parts = (metaop.load(tmp_path / f"{name}.pth") for name in ("whole", "parts"))
    assert len(whole["history"]["loss"]) == 6 and whole["history"] == parts["history"]
    for name, value in whole["model"].items():
        np.testing.assert_array_equal(value.numpy(), parts["model"][name].numpy())
