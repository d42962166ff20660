"""Distances between vectors."""

from __future__ import annotations

from metaop.nn import functional as F
from metaop.nn.module import Module
from metaop.tensor.core import Tensor


class PairwiseDistance(Module):
    """The p-norm of x1 - x2 over the last dimension.

    Inputs (N, D) give (N).

    >>> nn.PairwiseDistance()(metaop.tensor([[3.0, 4.0]]), metaop.zeros(1, 2)).round().tolist()
    [5.0]
    """

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> None:
        super().__init__()
        self.norm = p
        self.eps = eps
        self.keepdim = keepdim

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return F.pairwise_distance(x1, x2, self.norm, self.eps, self.keepdim)


class CosineSimilarity(Module):
    """The cosine of the angle between x1 and x2 along `dim`.

    The result has the shape of the inputs without `dim`.

    >>> nn.CosineSimilarity()(metaop.tensor([[1.0, 0.0]]), metaop.tensor([[0.0, 2.0]])).tolist()
    [0.0]
    """

    def __init__(self, dim: int = 1, eps: float = 1e-8) -> None:
        super().__init__()
        self.dim = dim
        self.eps = eps

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return F.cosine_similarity(x1, x2, self.dim, self.eps)
