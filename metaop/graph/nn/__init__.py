"""Layers of graph networks, named and called as in DGL."""

from metaop.graph.nn.attention import GATConv
from metaop.graph.nn.convolution import GraphConv
from metaop.graph.nn.neighbourhood import EdgeConv, GINConv, SAGEConv
from metaop.graph.nn.relational import RelGraphConv, TypedLinear
