"""Graphs and message passing, under DGL's names."""

from metaop.graph import function, nn, ops, sampling
from metaop.graph.core import EID, NID, Graph, create_block, graph
from metaop.graph.ops import edge_softmax, segment_reduce
from metaop.graph.points import ball_query, farthest_point_sampler, group_points
from metaop.graph.readout import (
    broadcast_nodes,
    max_edges,
    max_nodes,
    mean_edges,
    mean_nodes,
    readout_edges,
    readout_nodes,
    softmax_nodes,
    sum_edges,
    sum_nodes,
)
from metaop.graph.sampling import to_block
from metaop.graph.transforms import (
    add_self_loop,
    batch,
    edge_subgraph,
    from_networkx,
    in_subgraph,
    knn_graph,
    node_subgraph,
    rand_graph,
    remove_self_loop,
    reverse,
    to_bidirected,
    to_networkx,
    unbatch,
)
