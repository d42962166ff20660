"""Convolution over edges of several relations (edge types)."""

from __future__ import annotations

import math

import numpy as np

from metaop import nn
from metaop.errors import ArgumentError
from metaop.graph import function as fn
from metaop.graph.core import Graph
from metaop.graph.message_passing import EdgeBatch
from metaop.graph.nn.sides import Activation
from metaop.tensor.core import Tensor
from metaop.tensor.functions.creation import empty, from_numpy


class TypedLinear(nn.Module):
    """One linear map per type of row, optionally with shared or block-diagonal matrices.

    `regularizer` "basis" makes each matrix a combination of `num_bases` shared ones; "bdd" makes it
    block-diagonal with `num_bases` blocks. Rows (rows, in_size) and types (rows,) get the shape
    (rows, out_size).

    >>> metaop.graph.nn.TypedLinear(4, 5, 2)(metaop.ones(3, 4), metaop.tensor([0, 1, 1])).shape
    metaop.Size([3, 5])
    """

    def __init__(
        self,
        in_size: int,
        out_size: int,
        num_types: int,
        regularizer: str | None = None,
        num_bases: int | None = None,
    ) -> None:
        super().__init__()
        if regularizer not in (None, "basis", "bdd"):
            raise ArgumentError(
                f"TypedLinear: regularizer must be None, 'basis' or 'bdd', got {regularizer!r}"
            )
        self.in_size, self.out_size, self.num_types = in_size, out_size, num_types
        self.regularizer = regularizer
        self.num_bases = num_types if num_bases is None else num_bases
        if regularizer is None:
            self.W = nn.Parameter(empty(num_types, in_size, out_size))
        elif regularizer == "basis":
            self.W = nn.Parameter(empty(self.num_bases, in_size, out_size))
            self.coeff = nn.Parameter(empty(num_types, self.num_bases))
        else:
            if in_size % self.num_bases or out_size % self.num_bases:
                raise ArgumentError(
                    f"TypedLinear: sizes {in_size} and {out_size} are not multiples of "
                    f"num_bases = {self.num_bases}"
                )
            self.block = in_size // self.num_bases, out_size // self.num_bases
            self.W = nn.Parameter(empty(num_types, self.num_bases * math.prod(self.block)))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        bound = 1 / math.sqrt(self.in_size)
        nn.init.uniform_(self.W, -bound, bound)
        if self.regularizer == "basis":
            nn.init.xavier_uniform_(self.coeff, nn.init.calculate_gain("relu"))

    def matrices(self) -> Tensor:
        """The matrix of every type: (types, in_size, out_size), or blocks of it."""
        if self.regularizer == "basis":
            flat = self.coeff @ self.W.reshape(self.num_bases, -1)
            return flat.reshape(self.num_types, self.in_size, self.out_size)
        if self.regularizer == "bdd":
            return self.W.reshape(self.num_types, self.num_bases, *self.block)
        return self.W

    def forward(self, x: Tensor, x_type: Tensor, sorted_by_type: bool = False) -> Tensor:
        types = x_type.numpy(force=True)
        matrices = self.matrices()
        found = x.new_zeros((len(x), self.out_size))
        # One product per type: gathering a matrix per row would need too much memory.
        for kind in np.unique(types).tolist():
            rows = from_numpy(np.flatnonzero(types == kind)).to(device=x.device)
            found = found.index_copy(
                0, rows, self._product(x.index_select(0, rows), matrices[kind])
            )
        return found

    def _product(self, rows: Tensor, matrix: Tensor) -> Tensor:
        if self.regularizer != "bdd":
            return rows @ matrix
        blocks = rows.reshape(len(rows), self.num_bases, self.block[0]).transpose(0, 1)
        return (blocks @ matrix).transpose(0, 1).reshape(len(rows), self.out_size)


class RelGraphConv(nn.Module):
    """The sum over neighbours of features mapped by relation (Schlichtkrull and others, 2017).

    `etypes` (edges,) are relations; `norm` (edges, 1) weighs messages. Features (nodes, in_feat)
    get the shape (nodes, out_feat).

    >>> g = metaop.graph.graph(([0, 1, 2], [1, 2, 0]))
    >>> layer = metaop.graph.nn.RelGraphConv(4, 5, num_rels=2)
    >>> layer(g, metaop.ones(3, 4), metaop.tensor([0, 1, 1])).shape
    metaop.Size([3, 5])
    """

    def __init__(
        self,
        in_feat: int,
        out_feat: int,
        num_rels: int,
        regularizer: str | None = None,
        num_bases: int | None = None,
        bias: bool = True,
        activation: Activation = None,
        self_loop: bool = True,
        dropout: float = 0.0,
        layer_norm: bool = False,
    ) -> None:
        super().__init__()
        self.linear_r = TypedLinear(in_feat, out_feat, num_rels, regularizer, num_bases)
        self.h_bias = nn.Parameter(empty(out_feat)) if bias else None
        self.loop_weight = nn.Parameter(empty(in_feat, out_feat)) if self_loop else None
        self.layer_norm_weight = nn.LayerNorm(out_feat) if layer_norm else None
        self.activation = activation
        self.dropout = nn.Dropout(dropout)
        if self.h_bias is not None:
            nn.init.zeros_(self.h_bias)
        if self.loop_weight is not None:
            nn.init.xavier_uniform_(self.loop_weight, nn.init.calculate_gain("relu"))

    def forward(
        self,
        g: Graph,
        feat: Tensor,
        etypes: Tensor,
        norm: Tensor | None = None,
        presorted: bool = False,
    ) -> Tensor:
        def message(edges: EdgeBatch) -> dict[str, Tensor]:
            found = self.linear_r(edges.src["h"], edges.data["etype"], presorted)
            return {"m": found if norm is None else found * edges.data["norm"]}

        with g.local_scope():
            g.srcdata["h"] = feat
            g.edata["etype"] = etypes
            if norm is not None:
                g.edata["norm"] = norm
            g.update_all(message, fn.sum("m", "h_out"))
            found = g.dstdata["h_out"]
        if self.layer_norm_weight is not None:
            found = self.layer_norm_weight(found)
        if self.h_bias is not None:
            found = found + self.h_bias
        if self.loop_weight is not None:
            found = found + feat[: g.num_dst_nodes()] @ self.loop_weight
        return self.dropout(found if self.activation is None else self.activation(found))
