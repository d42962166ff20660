"""Layers that combine a node with a summary of its neighbours."""

from __future__ import annotations

from metaop import nn
from metaop.errors import ArgumentError
from metaop.graph import function as fn
from metaop.graph.built_in import Message
from metaop.graph.core import Graph
from metaop.graph.message_passing import NodeBatch, ReduceFunction
from metaop.graph.nn.sides import (
    Activation,
    Features,
    Sizes,
    both_sides,
    both_sizes,
    refuse_isolated_nodes,
    weighted_copies,
)
from metaop.tensor.core import Tensor
from metaop.tensor.functions.creation import tensor, zeros


class SAGEConv(nn.Module):
    """A linear map of a node's features plus one of the aggregated features of its neighbours.

    Features (nodes, in_feats) get the shape (nodes, out_feats). After Hamilton, Ying, Leskovec,
    2017. `aggregator_type` is "mean", "gcn", "pool" or "lstm".

    >>> g = metaop.graph.graph(([0, 1, 2], [1, 2, 0]))
    >>> metaop.graph.nn.SAGEConv(4, 5, "mean")(g, metaop.ones(3, 4)).shape
    metaop.Size([3, 5])
    """

    def __init__(
        self,
        in_feats: Sizes,
        out_feats: int,
        aggregator_type: str,
        feat_drop: float = 0.0,
        bias: bool = True,
        norm: Activation = None,
        activation: Activation = None,
    ) -> None:
        super().__init__()
        if aggregator_type not in ("mean", "gcn", "pool", "lstm"):
            raise ArgumentError(
                f"SAGEConv: aggregator_type must be mean, gcn, pool or lstm, got "
                f"{aggregator_type!r}"
            )
        source, destination = both_sizes(in_feats)
        self._source_size, self._out_feats = source, out_feats
        self._aggre_type = aggregator_type
        self.norm, self.activation = norm, activation
        self.feat_drop = nn.Dropout(feat_drop)
        if aggregator_type == "pool":
            self.fc_pool = nn.Linear(source, source)
        if aggregator_type == "lstm":
            self.lstm = nn.LSTM(source, source, batch_first=True)
        self.fc_neigh = nn.Linear(source, out_feats, bias=False)
        if aggregator_type != "gcn":
            self.fc_self = nn.Linear(destination, out_feats, bias=bias)
        elif bias:
            self.bias = nn.Parameter(zeros(out_feats))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        gain = nn.init.calculate_gain("relu")
        for name in ("fc_pool", "fc_self", "fc_neigh"):
            if name in self._modules:
                nn.init.xavier_uniform_(getattr(self, name).weight, gain)
        if self._aggre_type == "lstm":
            self.lstm.reset_parameters()

    def forward(self, graph: Graph, feat: Features, edge_weight: Tensor | None = None) -> Tensor:
        source, own = map(self.feat_drop, both_sides(graph, feat))
        # Multiply before or after aggregating, whichever leaves fewer features to aggregate; a
        # maximum does not commute with the product.
        early = self._aggre_type in ("mean", "gcn") and self._source_size > self._out_feats
        neighbours = self._aggregated(graph, source, own, edge_weight, early)
        if self._aggre_type == "gcn":
            found = neighbours + self.bias if "bias" in self._parameters else neighbours
        else:
            found = self.fc_self(own) + neighbours
        if self.activation is not None:
            found = self.activation(found)
        return found if self.norm is None else self.norm(found)

    def _aggregated(
        self, graph: Graph, source: Tensor, own: Tensor, edge_weight: Tensor | None, early: bool
    ) -> Tensor:
        kind = self._aggre_type
        if kind == "pool":
            source = self.fc_pool(source).relu()
        elif early:
            source = self.fc_neigh(source)
        with graph.local_scope():
            message = weighted_copies(graph, source, edge_weight)
            reducers: dict[str, ReduceFunction] = {
                "mean": fn.mean("m", "n"), "gcn": fn.sum("m", "n"), "pool": fn.max("m", "n"),
                "lstm": self._last_state,
            }  # fmt: skip
            graph.update_all(message, reducers[kind])
            found = graph.dstdata["n"]
        if kind == "gcn":
            own = self.fc_neigh(own) if early else own
            degrees = graph.in_degrees().to(found.dtype).unsqueeze(1)
            found = (found + own) / (degrees + 1)
        return found if early else self.fc_neigh(found)

    def _last_state(self, nodes: NodeBatch) -> dict[str, Tensor]:
        """The last state of an LSTM that reads the neighbours in the order of their edges."""
        _, (state, _) = self.lstm(nodes.mailbox["m"])
        return {"n": state[0]}


class GINConv(nn.Module):
    """`apply_func((1 + eps) * own + aggregated neighbours)` (Xu and others, 2018).

    Only `apply_func` changes the shape of the features; `aggregator_type` is "sum", "mean" or
    "max".

    >>> g = metaop.graph.graph(([0, 1, 2], [1, 2, 0]))
    >>> metaop.graph.nn.GINConv()(g, metaop.eye(3))
    tensor([[1., 0., 1.],
            [1., 1., 0.],
            [0., 1., 1.]])
    """

    def __init__(
        self,
        apply_func: nn.Module | None = None,
        aggregator_type: str = "sum",
        init_eps: float = 0.0,
        learn_eps: bool = False,
        activation: Activation = None,
    ) -> None:
        super().__init__()
        if aggregator_type not in ("sum", "max", "mean"):
            raise ArgumentError(
                f"GINConv: aggregator_type must be sum, max or mean, got {aggregator_type!r}"
            )
        self.apply_func, self._aggregator_type = apply_func, aggregator_type
        self.activation = activation
        if learn_eps:
            self.eps = nn.Parameter(tensor([float(init_eps)]))
        else:
            self.register_buffer("eps", tensor([float(init_eps)]))

    def forward(self, graph: Graph, feat: Features, edge_weight: Tensor | None = None) -> Tensor:
        source, own = both_sides(graph, feat)
        with graph.local_scope():
            message = weighted_copies(graph, source, edge_weight)
            graph.update_all(message, getattr(fn, self._aggregator_type)("m", "n"))
            found = (1 + self.eps) * own + graph.dstdata["n"]
        if self.apply_func is not None:
            found = self.apply_func(found)
        return found if self.activation is None else self.activation(found)


class EdgeConv(nn.Module):
    """The maximum over neighbours of `theta(neighbour - own) + phi(own)`.

    Features (nodes, in_feat) get the shape (nodes, out_feat). After Wang and others, "Dynamic graph
    CNN for learning on point clouds", 2018.

    >>> g = metaop.graph.graph(([0, 1, 2], [1, 2, 0]))
    >>> metaop.graph.nn.EdgeConv(4, 5)(g, metaop.ones(3, 4)).shape
    metaop.Size([3, 5])
    """

    def __init__(
        self,
        in_feat: int,
        out_feat: int,
        batch_norm: bool = False,
        allow_zero_in_degree: bool = False,
    ) -> None:
        super().__init__()
        self._allow_zero_in_degree = allow_zero_in_degree
        self.theta = nn.Linear(in_feat, out_feat)
        self.phi = nn.Linear(in_feat, out_feat)
        self.bn = nn.BatchNorm1d(out_feat) if batch_norm else None

    def forward(self, g: Graph, feat: Features) -> Tensor:
        if not self._allow_zero_in_degree:
            refuse_isolated_nodes("EdgeConv", g)
        source, own = both_sides(g, feat)
        with g.local_scope():
            # theta is affine, so it can be applied to nodes, which are fewer than edges.
            g.srcdata["x"] = self.theta(source)
            g.dstdata["y"] = self.phi(own) - own @ self.theta.weight.t()
            message: Message = fn.u_add_v("x", "y", "e")
            if self.bn is not None:
                g.apply_edges(message)
                g.edata["e"] = self.bn(g.edata["e"])
                message = fn.copy_e("e", "e")
            g.update_all(message, fn.max("e", "z"))
            return g.dstdata["z"]
