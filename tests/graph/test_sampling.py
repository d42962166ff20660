"""Sampled neighbours and the blocks that layers run on."""

from __future__ import annotations

import numpy as np
import pytest

import metaop
from metaop import graph as graphs
from metaop.errors import ArgumentError
from metaop.graph import sampling
from tests.graph.dense import features, random_graph


def test_at_most_so_many_distinct_edges_are_drawn() -> None:
    g = random_graph(20, 150)
    drawn = sampling.sample_neighbors(g, [3, 7, 11], 4)
    assert drawn.num_nodes() == 20
    numbers = drawn.edata["_ID"].numpy()
    assert len(set(numbers)) == len(numbers)
    np.testing.assert_array_equal(g.structure.source[numbers], drawn.structure.source)
    for node in range(20):
        wanted = min(4, g.in_degrees(node)) if node in (3, 7, 11) else 0
        assert drawn.in_degrees(node) == wanted


def test_every_edge_is_drawn_equally_often() -> None:
    g = graphs.graph((range(6), [6] * 6))
    metaop.manual_seed(1)
    counts = np.zeros(6)
    for _ in range(400):
        counts[sampling.sample_neighbors(g, [6], 2).edata["_ID"].numpy()] += 1
    # 800 draws, 133 each; the standard deviation is about 9.4
    assert abs(counts - 400 / 3).max() < 45


@pytest.mark.parametrize("replace", [False, True])
def test_likelihoods_are_followed(replace: bool) -> None:
    g = graphs.graph((range(4), [4] * 4))
    g.edata["p"] = metaop.tensor([0.0, 1.0, 1.0, 6.0])
    metaop.manual_seed(2)
    counts = np.zeros(4)
    for _ in range(300):
        drawn = sampling.sample_neighbors(g, [4], 1, prob="p", replace=replace)
        counts[drawn.edata["_ID"].numpy()] += 1
    assert counts[0] == 0 and counts.sum() == 300
    assert abs(counts[3] - 225) < 40


def test_replacement_fills_the_fanout() -> None:
    g = random_graph(10, 30)
    drawn = sampling.sample_neighbors(g, range(10), 7, replace=True)
    degrees = g.in_degrees().numpy()
    np.testing.assert_array_equal(drawn.in_degrees().numpy(), np.where(degrees > 0, 7, 0))
    assert set(drawn.edata["_ID"].tolist()) <= set(range(30))


def test_all_edges_and_outgoing_edges() -> None:
    g = random_graph(10, 40)
    assert sampling.sample_neighbors(g, range(10), -1).num_edges() == 40
    out = sampling.sample_neighbors(g, [2], -1, edge_dir="out")
    assert set(out.structure.source) == {2} and out.num_edges() == g.out_degrees(2)


def test_a_block_keeps_destinations_first() -> None:
    g = random_graph(12, 50)
    g.ndata["h"] = features(12, 3)
    block = graphs.to_block(graphs.in_subgraph(g, [5, 1]), [5, 1])
    assert block.is_block and block.num_dst_nodes() == 2
    sources = block.srcdata["_ID"].numpy()
    assert sources[:2].tolist() == [5, 1] == block.dstdata["_ID"].tolist()
    np.testing.assert_array_equal(block.srcdata["h"].numpy(), g.ndata["h"].numpy()[sources])
    numbers = block.edata["_ID"].numpy()
    np.testing.assert_array_equal(sources[block.structure.source], g.structure.source[numbers])
    with pytest.raises(ArgumentError, match="not among dst_nodes"):
        graphs.to_block(g, [5])


def test_blocks_of_all_neighbours_give_what_the_whole_graph_gives() -> None:
    g = graphs.add_self_loop(random_graph(15, 60))
    x = metaop.tensor(features(15, 4).astype(np.float32))
    layers = [graphs.nn.SAGEConv(4, 8, "mean"), graphs.nn.SAGEConv(8, 3, "pool")]
    inputs, outputs, blocks = sampling.NeighborSampler([-1, -1]).sample_blocks(g, [2, 9])
    h, whole = x[inputs], x
    for layer, block in zip(layers, blocks):
        h, whole = layer(block, h), layer(g, whole)
    assert outputs.tolist() == [2, 9]
    np.testing.assert_allclose(
        h.detach().numpy(), whole[[2, 9]].detach().numpy(), rtol=1e-5, atol=1e-6
    )


def test_batches_of_nodes() -> None:
    g = random_graph(20, 80)
    loader = sampling.DataLoader(g, range(7), sampling.NeighborSampler([2, 3]), 3, shuffle=True)
    seen = []
    for inputs, outputs, blocks in loader:
        assert len(blocks) == 2 and blocks[0].num_src_nodes() == len(inputs)
        assert blocks[1].num_dst_nodes() == len(outputs)
        seen += outputs.tolist()
    assert sorted(seen) == list(range(7)) and len(loader) == 3
    assert len(sampling.DataLoader(g, range(7), loader.sampler, 3, drop_last=True)) == 2
