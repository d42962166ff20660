"""Graphs, their features, and graphs made of graphs."""

from __future__ import annotations

import networkx
import numpy as np
import pytest

import metaop
from metaop import graph as graphs
from metaop.errors import ArgumentError, ShapeError
from metaop.graph import function as fn
from tests.graph.dense import features, random_graph


def pairs(g: graphs.Graph) -> set[tuple[int, int]]:
    return set(zip(g.structure.source.tolist(), g.structure.destination.tolist()))


def test_counts_degrees_and_neighbours() -> None:
    g = graphs.graph(([0, 0, 2, 1], [1, 2, 1, 1]), num_nodes=4)
    assert (g.num_nodes(), g.num_edges(), g.number_of_edges()) == (4, 4, 4)
    assert g.in_degrees().tolist() == [0, 3, 1, 0] and g.out_degrees([0, 3]).tolist() == [2, 0]
    assert g.in_degrees(1) == 3
    assert g.predecessors(1).tolist() == [0, 2, 1] and g.successors(0).tolist() == [1, 2]
    assert g.has_edges_between(0, 2) is True
    assert g.has_edges_between([0, 2], [1, 0]).tolist() == [True, False]
    u, v, numbers = g.edges("all", order="srcdst")
    assert (u.tolist(), v.tolist(), numbers.tolist()) == ([0, 0, 1, 2], [1, 2, 1, 1], [0, 1, 3, 2])
    assert graphs.graph([(0, 1), (2, 1)]).num_nodes() == 3


def test_compressed_forms_are_those_of_the_adjacency_matrix() -> None:
    g = random_graph(9, 30)
    dense = np.zeros((9, 9))
    dense[g.structure.source, g.structure.destination] = np.arange(30) + 1
    starts, ends, edges = (part.numpy() for part in g.adj_tensors("csr"))
    for u in range(9):
        own = slice(starts[u], starts[u + 1])
        row = np.zeros(9)
        row[ends[own]] = edges[own] + 1
        np.testing.assert_array_equal(row, dense[u])
    starts, ends, edges = (part.numpy() for part in g.adj_tensors("csc"))
    for v in range(9):
        own = slice(starts[v], starts[v + 1])
        np.testing.assert_array_equal(
            np.sort(edges[own] + 1), np.sort(dense[:, v][dense[:, v] > 0])
        )
        assert set(ends[own]) == set(np.flatnonzero(dense[:, v]))


def test_compressed_forms_are_kept() -> None:
    g = random_graph(5, 9)
    assert g.structure.incoming is g.structure.incoming
    assert g.in_degrees() is g.in_degrees()
    assert graphs.reverse(g).structure.outgoing is g.structure.incoming


def test_features_have_a_row_for_each() -> None:
    g = random_graph(5, 9)
    g.ndata["a"] = np.ones((5, 2))
    g.edata.update(w=metaop.zeros(9))
    with pytest.raises(ShapeError, match=r"'b' has shape \[4\], expected 5 rows"):
        g.ndata["b"] = metaop.zeros(4)
    assert repr(g) == "Graph(num_nodes=5, num_edges=9, ndata={a: [5, 2]}, edata={w: [9]})"


def test_what_a_scope_sets_is_forgotten() -> None:
    g = random_graph(4, 6)
    g.ndata["h"] = metaop.ones(4)
    with g.local_scope():
        g.ndata["h"] = metaop.zeros(4)
        g.edata["e"] = metaop.zeros(6)
    assert g.ndata["h"].tolist() == [1.0] * 4 and not g.edata
    clone = g.local_var()
    clone.ndata["x"] = metaop.zeros(4)
    assert "x" not in g.ndata


def test_bad_edges_are_refused() -> None:
    with pytest.raises(ArgumentError, match="destination nodes lie in 0..3, but there are 3"):
        graphs.graph(([0, 1], [0, 3]), num_nodes=3)
    with pytest.raises(ShapeError, match=r"sources \[2\] and destinations \[1\]"):
        graphs.graph(([0, 1], [0]))


def test_graphs_are_joined_and_parted() -> None:
    parts = [random_graph(n, e) for n, e in ((3, 4), (5, 9), (2, 1))]
    for g in parts:
        g.ndata["h"] = features(g.num_nodes(), 2)
        g.edata["w"] = features(g.num_edges())
    parts[0].ndata["only"] = np.zeros(3)
    joined = graphs.batch(parts)
    assert joined.batch_size == 3 and set(joined.ndata) == {"h"}
    assert joined.batch_num_nodes().tolist() == [3, 5, 2]
    assert joined.batch_num_edges().tolist() == [4, 9, 1]
    again = graphs.batch([joined, parts[1]])
    assert again.batch_num_nodes().tolist() == [3, 5, 2, 5]
    for original, part in zip([*parts, parts[1]], graphs.unbatch(again)):
        np.testing.assert_array_equal(original.structure.source, part.structure.source)
        np.testing.assert_array_equal(original.structure.destination, part.structure.destination)
        np.testing.assert_array_equal(original.ndata["h"].numpy(), part.ndata["h"].numpy())
        np.testing.assert_array_equal(original.edata["w"].numpy(), part.edata["w"].numpy())


def test_messages_of_joined_graphs_are_those_of_each() -> None:
    parts = [random_graph(4, 8), random_graph(6, 11)]
    for g in parts:
        g.ndata["h"] = features(g.num_nodes(), 3)
        g.update_all(fn.copy_u("h", "m"), fn.max("m", "out"))
    joined = graphs.batch(parts)
    joined.update_all(fn.copy_u("h", "m"), fn.max("m", "again"))
    np.testing.assert_array_equal(joined.ndata["again"].numpy(), joined.ndata["out"].numpy())


def test_readouts() -> None:
    parts = [random_graph(3, 2), random_graph(4, 5)]
    for g in parts:
        g.ndata["h"], g.ndata["w"] = features(g.num_nodes(), 2), abs(features(g.num_nodes(), 1))
        g.edata["e"] = features(g.num_edges(), 2)
    joined = graphs.batch(parts)
    rows = [g.ndata["h"].numpy() for g in parts]
    weights = [g.ndata["w"].numpy() for g in parts]
    expected = {
        "sum": [h.sum(0) for h in rows], "mean": [h.mean(0) for h in rows],
        "max": [h.max(0) for h in rows],
    }  # fmt: skip
    for name, values in expected.items():
        found = getattr(graphs, f"{name}_nodes")(joined, "h").numpy()
        np.testing.assert_allclose(found, values)
    weighted = [(h * w).sum(0) / w.sum(0) for h, w in zip(rows, weights)]
    np.testing.assert_allclose(graphs.mean_nodes(joined, "h", "w").numpy(), weighted)
    edges = [g.edata["e"].numpy().sum(0) for g in parts]
    np.testing.assert_allclose(graphs.sum_edges(joined, "e").numpy(), edges)
    softmax = np.concatenate([np.exp(h) / np.exp(h).sum(0) for h in rows])
    np.testing.assert_allclose(graphs.softmax_nodes(joined, "h").numpy(), softmax)


def test_edges_are_added_removed_and_turned() -> None:
    g = graphs.graph(([0, 1, 1], [1, 1, 2]))
    g.edata["w"] = metaop.tensor([1.0, 2.0, 3.0])
    looped = graphs.add_self_loop(g)
    assert looped.edata["w"].tolist() == [1.0, 2.0, 3.0, 0.0, 0.0, 0.0]
    assert pairs(looped) == {(0, 1), (1, 1), (1, 2), (0, 0), (2, 2)}
    bare = graphs.remove_self_loop(looped)
    assert pairs(bare) == {(0, 1), (1, 2)} and bare.num_nodes() == 3
    assert bare.edata["w"].tolist() == [1.0, 3.0]
    assert pairs(graphs.to_bidirected(g)) == {(0, 1), (1, 0), (1, 1), (1, 2), (2, 1)}
    assert pairs(graphs.reverse(g, copy_edata=True)) == {(1, 0), (1, 1), (2, 1)}


def test_parts_of_a_graph() -> None:
    g = graphs.graph(([0, 1, 2, 3], [1, 2, 3, 0]))
    g.ndata["h"] = metaop.arange(4)
    part = graphs.node_subgraph(g, [3, 0])
    assert part.ndata["_ID"].tolist() == part.ndata["h"].tolist() == [3, 0]
    assert pairs(part) == {(0, 1)} and part.edata["_ID"].tolist() == [3]
    edges = graphs.edge_subgraph(g, [1, 2])
    assert edges.ndata["_ID"].tolist() == [1, 2, 3] and pairs(edges) == {(0, 1), (1, 2)}
    entering = graphs.in_subgraph(g, [0])
    assert entering.num_nodes() == 4 and pairs(entering) == {(3, 0)}


def test_nearest_neighbours() -> None:
    points = metaop.tensor([[0.0], [1.0], [1.5], [9.0]])
    assert pairs(graphs.knn_graph(points, 2)) == {
        *((0, 0), (1, 0), (1, 1), (2, 1), (2, 2), (1, 2), (3, 3), (2, 3))
    }


def test_graphs_of_networkx() -> None:
    original = networkx.karate_club_graph()
    g = graphs.from_networkx(original, edge_attrs=["weight"])
    assert (g.num_nodes(), g.num_edges()) == (34, 156)
    assert g.in_degrees().tolist() == [degree for _, degree in original.degree()]
    back = graphs.to_networkx(g, edge_attrs=["weight"])
    assert sorted(back.edges()) == sorted(original.to_directed().edges())
    assert back.edges[0, 1, 0]["weight"] == original.edges[0, 1]["weight"]


def test_random_graphs_follow_the_seed() -> None:
    metaop.manual_seed(4)
    first = graphs.rand_graph(10, 30)
    metaop.manual_seed(4)
    second = graphs.rand_graph(10, 30)
    np.testing.assert_array_equal(first.structure.source, second.structure.source)
    assert (first.num_nodes(), first.num_edges()) == (10, 30)
