"""Graph convolution."""

from __future__ import annotations

from metaop import nn
from metaop.errors import ArgumentError
from metaop.graph import function as fn
from metaop.graph.core import Graph
from metaop.graph.nn.sides import (
    Activation,
    Features,
    both_sides,
    refuse_isolated_nodes,
    weighted_copies,
)
from metaop.tensor.core import Tensor
from metaop.tensor.functions.creation import empty


class GraphConv(nn.Module):
    """Graph convolution: the normalised sum over neighbours, times a weight (Kipf, Welling, 2016).

    `norm` is "both" (by the roots of both degrees), "right" (mean), "left" (by the out-degree of
    the source) or "none". Features (nodes, in_feats) get the shape (nodes, out_feats).

    >>> g = metaop.graph.graph(([0, 1, 2], [1, 2, 0]))
    >>> layer = metaop.graph.nn.GraphConv(4, 4, weight=False, bias=False)
    >>> layer(g, metaop.eye(3, 4))
    tensor([[0., 0., 1., 0.],
            [1., 0., 0., 0.],
            [0., 1., 0., 0.]])
    """

    def __init__(
        self,
        in_feats: int,
        out_feats: int,
        norm: str = "both",
        weight: bool = True,
        bias: bool = True,
        activation: Activation = None,
        allow_zero_in_degree: bool = False,
    ) -> None:
        super().__init__()
        if norm not in ("none", "both", "right", "left"):
            raise ArgumentError(f"GraphConv: norm must be none, both, right or left, got {norm!r}")
        self._in_feats, self._out_feats, self._norm = in_feats, out_feats, norm
        self._allow_zero_in_degree = allow_zero_in_degree
        self.weight = nn.Parameter(empty(in_feats, out_feats)) if weight else None
        self.bias = nn.Parameter(empty(out_feats)) if bias else None
        self._activation = activation
        self.reset_parameters()

    def reset_parameters(self) -> None:
        if self.weight is not None:
            nn.init.xavier_uniform_(self.weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(
        self,
        graph: Graph,
        feat: Features,
        weight: Tensor | None = None,
        edge_weight: Tensor | None = None,
    ) -> Tensor:
        if not self._allow_zero_in_degree:
            refuse_isolated_nodes("GraphConv", graph)
        if weight is not None and self.weight is not None:
            raise ArgumentError("GraphConv: a weight is given, but the layer has one of its own")
        weight = self.weight if weight is None else weight
        source, _ = both_sides(graph, feat)
        if self._norm in ("left", "both"):
            source = source * self._norm_of(graph.out_degrees(), source)
        # Multiply before or after the sum, whichever leaves fewer features to sum.
        early = weight is not None and self._in_feats > self._out_feats
        if early:
            source = source @ weight
        with graph.local_scope():
            message = weighted_copies(graph, source, edge_weight)
            graph.update_all(message, fn.sum("m", "h"))
            found = graph.dstdata["h"]
        if weight is not None and not early:
            found = found @ weight
        if self._norm in ("right", "both"):
            found = found * self._norm_of(graph.in_degrees(), found)
        if self.bias is not None:
            found = found + self.bias
        return found if self._activation is None else self._activation(found)

    def _norm_of(self, degrees: Tensor, like: Tensor) -> Tensor:
        power = -0.5 if self._norm == "both" else -1.0
        norm = degrees.clamp(min=1).to(like.dtype).pow(power)
        return norm.reshape(-1, *(1,) * (like.ndim - 1))

    def extra_repr(self) -> str:
        return f"in={self._in_feats}, out={self._out_feats}, normalization={self._norm}"
