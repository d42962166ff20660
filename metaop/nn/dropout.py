"""Dropout: random zeros in training, the identity in evaluation."""

from __future__ import annotations

from typing import Any, ClassVar

from metaop.errors import ArgumentError
from metaop.nn import functional as F
from metaop.nn.module import Module
from metaop.tensor.core import Tensor


class _Dropout(Module):
    """Zeroes elements with probability `p` and scales the others to preserve the mean."""

    function: ClassVar[Any]

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        if not 0 <= p <= 1:
            raise ArgumentError(
                f"dropout probability has to be between 0 and 1, but got {p}",
                fix="pass a fraction, not a percentage",
            )
        self.p = p
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        return type(self).function(input, self.p, self.training, self.inplace)

    def extra_repr(self) -> str:
        return f"p={self.p}, inplace={self.inplace}"


class Dropout(_Dropout):
    """Drops single elements (Srivastava et al. 2014).

    In training each element is zero with probability `p`, and the others are scaled by
    `1 / (1 - p)`; after `eval()` it is the identity. The result has the shape of the input. Raises
    ArgumentError when `p` is not between 0 and 1.

    >>> nn.Dropout(0.5).eval()(metaop.ones(3)).tolist()
    [1.0, 1.0, 1.0]
    """

    function = staticmethod(F.dropout)


class Dropout1d(_Dropout):
    """Drops whole channels of (N, C, L).

    Like `Dropout`, with one draw per channel. The result has the shape of the input.

    >>> nn.Dropout1d()(metaop.ones(2, 3, 4)).shape
    metaop.Size([2, 3, 4])
    """

    function = staticmethod(F.dropout1d)


class Dropout2d(_Dropout):
    """Drops whole channels of (N, C, H, W).

    Like `Dropout`, with one draw per channel. The result has the shape of the input.

    >>> nn.Dropout2d()(metaop.ones(2, 3, 4, 4)).shape
    metaop.Size([2, 3, 4, 4])
    """

    function = staticmethod(F.dropout2d)


class Dropout3d(_Dropout):
    """Drops whole channels of (N, C, D, H, W).

    Like `Dropout`, with one draw per channel. The result has the shape of the input.

    >>> nn.Dropout3d()(metaop.ones(2, 3, 4, 4, 4)).shape
    metaop.Size([2, 3, 4, 4, 4])
    """

    function = staticmethod(F.dropout3d)


class AlphaDropout(_Dropout):
    """Dropout that preserves mean and variance, for SELU networks (Klambauer et al. 2017).

    In training an element is dropped with probability `p`; the result has the shape of the input.
    Raises ArgumentError for a `p` outside of 0 … 1.

    >>> nn.AlphaDropout(0.2)(metaop.randn(2, 3)).shape
    metaop.Size([2, 3])
    >>> nn.AlphaDropout(0.2).eval()(metaop.ones(2)).tolist()
    [1.0, 1.0]
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.alpha_dropout(input, self.p, self.training)


class FeatureAlphaDropout(_Dropout):
    """AlphaDropout of whole channels.

    The result has the shape (N, C, *) of the input. Raises ArgumentError for a `p` outside of
    0 … 1.

    >>> nn.FeatureAlphaDropout(0.2)(metaop.randn(2, 3, 4)).shape
    metaop.Size([2, 3, 4])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.feature_alpha_dropout(input, self.p, self.training)
