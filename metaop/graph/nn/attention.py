"""Graph attention."""

from __future__ import annotations

from typing import Any

from metaop import nn
from metaop.graph import function as fn
from metaop.graph.core import Graph
from metaop.graph.nn.sides import (
    Activation,
    Features,
    Sizes,
    both_sides,
    both_sizes,
    refuse_isolated_nodes,
)
from metaop.graph.ops import edge_softmax
from metaop.tensor.core import Tensor
from metaop.tensor.functions.creation import empty


class GATConv(nn.Module):
    """Multi-head attention over neighbours (Veličković and others, 2017).

    Features (nodes, in_feats) to (nodes, num_heads, out_feats).

    >>> g = metaop.graph.graph(([0, 1, 2], [1, 2, 0]))
    >>> metaop.graph.nn.GATConv(4, 5, num_heads=2)(g, metaop.ones(3, 4)).shape
    metaop.Size([3, 2, 5])
    """

    def __init__(
        self,
        in_feats: Sizes,
        out_feats: int,
        num_heads: int,
        feat_drop: float = 0.0,
        attn_drop: float = 0.0,
        negative_slope: float = 0.2,
        residual: bool = False,
        activation: Activation = None,
        allow_zero_in_degree: bool = False,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self._num_heads, self._out_feats = num_heads, out_feats
        self._allow_zero_in_degree = allow_zero_in_degree
        source, destination = both_sizes(in_feats)
        width = out_feats * num_heads
        if isinstance(in_feats, tuple):
            self.fc_src = nn.Linear(source, width, bias=False)
            self.fc_dst = nn.Linear(destination, width, bias=False)
        else:
            self.fc = nn.Linear(source, width, bias=False)
        self.attn_l = nn.Parameter(empty(1, num_heads, out_feats))
        self.attn_r = nn.Parameter(empty(1, num_heads, out_feats))
        self.feat_drop, self.attn_drop = nn.Dropout(feat_drop), nn.Dropout(attn_drop)
        self.leaky_relu = nn.LeakyReLU(negative_slope)
        self.bias = nn.Parameter(empty(width)) if bias else None
        self.res_fc = self._residual(destination, width) if residual else None
        self.activation = activation
        self.reset_parameters()

    @staticmethod
    def _residual(size: int, width: int) -> nn.Module:
        return nn.Identity() if size == width else nn.Linear(size, width, bias=False)

    def reset_parameters(self) -> None:
        gain = nn.init.calculate_gain("relu")
        for name in ("fc", "fc_src", "fc_dst", "res_fc"):
            layer = self._modules.get(name)
            if isinstance(layer, nn.Linear):
                nn.init.xavier_normal_(layer.weight, gain)
        nn.init.xavier_normal_(self.attn_l, gain)
        nn.init.xavier_normal_(self.attn_r, gain)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(
        self,
        graph: Graph,
        feat: Features,
        edge_weight: Tensor | None = None,
        get_attention: bool = False,
    ) -> Any:
        if not self._allow_zero_in_degree:
            refuse_isolated_nodes("GATConv", graph)
        source, own, before = self._projected(graph, feat)
        with graph.local_scope():
            graph.srcdata["ft"] = source
            graph.srcdata["el"] = (source * self.attn_l).sum(-1, keepdim=True)
            graph.dstdata["er"] = (own * self.attn_r).sum(-1, keepdim=True)
            graph.apply_edges(fn.u_add_v("el", "er", "e"))
            attention = edge_softmax(graph, self.leaky_relu(graph.edata["e"]))
            weights = self.attn_drop(attention)
            if edge_weight is not None:
                weights = weights * edge_weight.reshape(-1, 1, 1)
            graph.edata["a"] = weights
            graph.update_all(fn.u_mul_e("ft", "a", "m"), fn.sum("m", "out"))
            found = graph.dstdata["out"]
        if self.res_fc is not None:
            found = found + self.res_fc(before).reshape(-1, self._num_heads, self._out_feats)
        if self.bias is not None:
            found = found + self.bias.reshape(1, self._num_heads, self._out_feats)
        if self.activation is not None:
            found = self.activation(found)
        return (found, attention) if get_attention else found

    def _projected(self, graph: Graph, feat: Features) -> tuple[Tensor, Tensor, Tensor]:
        """Projections of sources and destinations to heads, and the destinations themselves."""
        shape = (-1, self._num_heads, self._out_feats)
        if isinstance(feat, tuple):
            first, second = map(self.feat_drop, feat)
            shared = self._modules.get("fc")
            left, right = (shared, shared) if shared else (self.fc_src, self.fc_dst)
            return left(first).reshape(shape), right(second).reshape(shape), second
        dropped = self.feat_drop(feat)
        source = self.fc(dropped).reshape(shape)
        own = both_sides(graph, source)[1]
        return source, own, both_sides(graph, dropped)[1]
