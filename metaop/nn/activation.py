"""Activation functions as modules; those of ReLU's family are in `rectifier`."""

from __future__ import annotations

from metaop.errors import ArgumentError
from metaop.nn import functional as F
from metaop.nn.module import Module
from metaop.tensor.core import Tensor


def inplace_text(inplace: bool, separator: str = "") -> str:
    return f"{separator}inplace=True" if inplace else ""


class InPlaceActivation(Module):
    """An activation whose only argument is `inplace`."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def extra_repr(self) -> str:
        return inplace_text(self.inplace)


class SiLU(InPlaceActivation):
    """x · sigmoid(x).

    The result has the shape of the input.

    >>> nn.SiLU()(metaop.zeros(1)).tolist()
    [0.0]
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.silu(input, self.inplace)


class Mish(InPlaceActivation):
    """x · tanh(softplus(x)).

    The result has the shape of the input.

    >>> nn.Mish()(metaop.tensor([0.0])).tolist()
    [0.0]
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.mish(input, self.inplace)


class Hardswish(InPlaceActivation):
    """x · relu6(x + 3) / 6.

    The result has the shape of the input.

    >>> nn.Hardswish()(metaop.tensor([0.0, 3.0])).tolist()
    [0.0, 3.0]
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.hardswish(input, self.inplace)

    extra_repr = Module.extra_repr


class Hardsigmoid(InPlaceActivation):
    """relu6(x + 3) / 6.

    The result has the shape of the input.

    >>> nn.Hardsigmoid()(metaop.tensor([-3.0, 3.0])).tolist()
    [0.0, 1.0]
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.hardsigmoid(input, self.inplace)

    extra_repr = Module.extra_repr


class GELU(Module):
    """x · Φ(x); approximate="tanh" uses the tanh approximation.

    The result has the shape of the input.

    >>> nn.GELU()(metaop.tensor([0.0, 10.0])).round().tolist()
    [0.0, 10.0]
    """

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = approximate

    def forward(self, input: Tensor) -> Tensor:
        return F.gelu(input, approximate=self.approximate)

    def extra_repr(self) -> str:
        return f"approximate={self.approximate!r}"


class GLU(Module):
    """The first half of `dim` times the sigmoid of the second.

    The dimension is halved. Raises ShapeError when its size is odd.

    >>> nn.GLU()(metaop.tensor([[4.0, 0.0]])).tolist()
    [[2.0]]
    """

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        return F.glu(input, self.dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class Softplus(Module):
    """log(1 + exp(beta · x)) / beta, and x itself above the threshold.

    The result has the shape of the input.

    >>> nn.Softplus()(metaop.tensor([30.0])).tolist()
    [30.0]
    """

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__()
        self.beta = beta
        self.threshold = threshold

    def forward(self, input: Tensor) -> Tensor:
        return F.softplus(input, self.beta, self.threshold)

    def extra_repr(self) -> str:
        return f"beta={self.beta}, threshold={self.threshold}"


class _Shrink(Module):
    """The base class of the shrinking functions."""

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def extra_repr(self) -> str:
        return f"{self.lambd}"


class Hardshrink(_Shrink):
    """x where |x| > lambd, else 0.

    The result has the shape of the input.

    >>> nn.Hardshrink()(metaop.tensor([0.25, 2.0])).tolist()
    [0.0, 2.0]
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.hardshrink(input, self.lambd)


class Softshrink(_Shrink):
    """x moved towards 0 by lambd, and 0 where |x| <= lambd.

    The result has the shape of the input.

    >>> nn.Softshrink()(metaop.tensor([0.25, 2.0])).tolist()
    [0.0, 1.5]
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.softshrink(input, self.lambd)


class Sigmoid(Module):
    """1 / (1 + exp(-x)).

    The result has the shape of the input.

    >>> nn.Sigmoid()(metaop.zeros(2)).tolist()
    [0.5, 0.5]
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.sigmoid(input)


class LogSigmoid(Module):
    """log(sigmoid(x)).

    The result has the shape of the input.

    >>> round(nn.LogSigmoid()(metaop.zeros(1)).exp().item(), 3)
    0.5
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.logsigmoid(input)


class Tanh(Module):
    """tanh(x).

    The result has the shape of the input.

    >>> nn.Tanh()(metaop.zeros(1)).tolist()
    [0.0]
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.tanh(input)


class Tanhshrink(Module):
    """x - tanh(x).

    The result has the shape of the input.

    >>> nn.Tanhshrink()(metaop.tensor([0.0])).tolist()
    [0.0]
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.tanhshrink(input)


class Softsign(Module):
    """x / (1 + |x|).

    The result has the shape of the input.

    >>> nn.Softsign()(metaop.tensor([1.0, -3.0])).tolist()
    [0.5, -0.75]
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.softsign(input)


class _AlongDimension(Module):
    """The base class of the softmax modules."""

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class Softmax(_AlongDimension):
    """Exponentials along `dim`, scaled to sum to 1.

    The result has the shape of the input.

    >>> nn.Softmax(1)(metaop.zeros(1, 4)).tolist()
    [[0.25, 0.25, 0.25, 0.25]]
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.softmax(input, self.dim, _stacklevel=5)


class LogSoftmax(_AlongDimension):
    """The logarithm of softmax along `dim`.

    The result has the shape of the input.

    >>> nn.LogSoftmax(1)(metaop.ones(2, 4)).exp().sum(1).round().tolist()
    [1.0, 1.0]
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.log_softmax(input, self.dim, _stacklevel=5)


class Softmin(_AlongDimension):
    """Softmax of -x along `dim`.

    The result has the shape of the input.

    >>> nn.Softmin(1)(metaop.zeros(1, 4)).tolist()
    [[0.25, 0.25, 0.25, 0.25]]
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.softmin(input, self.dim, _stacklevel=5)


class Softmax2d(Module):
    """Softmax over the channels of (N, C, H, W) or (C, H, W).

    The result has the shape of the input; its channels sum to 1.

    >>> nn.Softmax2d()(metaop.zeros(1, 4, 1, 1)).flatten().tolist()
    [0.25, 0.25, 0.25, 0.25]
    """

    def forward(self, input: Tensor) -> Tensor:
        if input.ndim not in (3, 4):
            raise ArgumentError(
                f"Softmax2d: expected input to be 3D or 4D, got {input.ndim}D instead",
                fix="use Softmax(dim)",
            )
        return F.softmax(input, -3, _stacklevel=5)
