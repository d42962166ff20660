"""Rectifiers as modules: ReLU and its variants."""

from __future__ import annotations

from typing import Any

from metaop.errors import ArgumentError
from metaop.nn import functional as F
from metaop.nn.activation import InPlaceActivation, inplace_text
from metaop.nn.init import constant_
from metaop.nn.module import Module
from metaop.nn.parameter import Parameter
from metaop.tensor.core import Tensor
from metaop.tensor.functions.creation import full


class ReLU(InPlaceActivation):
    """max(0, x).

    The result has the shape of the input.

    >>> nn.ReLU()(metaop.tensor([-1.0, 2.0])).tolist()
    [0.0, 2.0]
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.relu(input, self.inplace)


class SELU(InPlaceActivation):
    """Scaled exponential linear unit (Klambauer et al. 2017).

    The result has the shape of the input.

    >>> nn.SELU()(metaop.tensor([0.0])).tolist()
    [0.0]
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.selu(input, self.inplace)


class Threshold(Module):
    """x where x > threshold, else `value`.

    The result has the shape of the input.

    >>> nn.Threshold(1.0, 7.0)(metaop.tensor([0.5, 2.0])).tolist()
    [7.0, 2.0]
    """

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        super().__init__()
        self.threshold = threshold
        self.value = value
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.threshold(input, self.threshold, self.value, self.inplace)

    def extra_repr(self) -> str:
        inplace = inplace_text(self.inplace, ", ")
        return f"threshold={self.threshold}, value={self.value}{inplace}"


class RReLU(Module):
    """Leaky ReLU with a slope drawn uniformly from [lower, upper] in training, else their mean.

    The result has the shape of the input.

    >>> nn.RReLU(0.25, 0.75).eval()(metaop.tensor([-1.0, 2.0])).tolist()
    [-0.5, 2.0]
    """

    def __init__(
        self, lower: float = 1.0 / 8, upper: float = 1.0 / 3, inplace: bool = False
    ) -> None:
        super().__init__()
        self.lower = lower
        self.upper = upper
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.rrelu(input, self.lower, self.upper, self.training, self.inplace)

    def extra_repr(self) -> str:
        return f"lower={self.lower}, upper={self.upper}{inplace_text(self.inplace, ', ')}"


class Hardtanh(Module):
    """x clamped to [min_val, max_val].

    The result has the shape of the input.

    >>> nn.Hardtanh()(metaop.tensor([-3.0, 0.5])).tolist()
    [-1.0, 0.5]
    """

    def __init__(
        self,
        min_val: float = -1.0,
        max_val: float = 1.0,
        inplace: bool = False,
        min_value: float | None = None,
        max_value: float | None = None,
    ) -> None:
        super().__init__()
        self.min_val = min_val if min_value is None else min_value
        self.max_val = max_val if max_value is None else max_value
        self.inplace = inplace
        if self.max_val <= self.min_val:
            raise ArgumentError(
                f"Hardtanh: max_val {self.max_val} must be larger than min_val {self.min_val}",
                fix="swap them",
            )

    def forward(self, input: Tensor) -> Tensor:
        return F.hardtanh(input, self.min_val, self.max_val, self.inplace)

    def extra_repr(self) -> str:
        inplace = inplace_text(self.inplace, ", ")
        return f"min_val={self.min_val}, max_val={self.max_val}{inplace}"


class ReLU6(Hardtanh):
    """x clamped to [0, 6].

    The result has the shape of the input.

    >>> nn.ReLU6()(metaop.tensor([-1.0, 9.0])).tolist()
    [0.0, 6.0]
    """

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(0.0, 6.0, inplace)

    def extra_repr(self) -> str:
        return inplace_text(self.inplace)


class LeakyReLU(Module):
    """x where x > 0, else negative_slope · x.

    The result has the shape of the input.

    >>> nn.LeakyReLU(0.5)(metaop.tensor([-1.0, 2.0])).tolist()
    [-0.5, 2.0]
    """

    def __init__(self, negative_slope: float = 1e-2, inplace: bool = False) -> None:
        super().__init__()
        self.negative_slope = negative_slope
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.leaky_relu(input, self.negative_slope, self.inplace)

    def extra_repr(self) -> str:
        return f"negative_slope={self.negative_slope}{inplace_text(self.inplace, ', ')}"


class _ExponentialUnit(Module):
    """The base class of ELU and CELU."""

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.alpha = alpha
        self.inplace = inplace

    def extra_repr(self) -> str:
        return f"alpha={self.alpha}{inplace_text(self.inplace, ', ')}"


class ELU(_ExponentialUnit):
    """x where x > 0, else alpha · (exp(x) - 1).

    The result has the shape of the input.

    >>> nn.ELU()(metaop.tensor([0.0, 2.0])).tolist()
    [0.0, 2.0]
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.elu(input, self.alpha, self.inplace)


class CELU(_ExponentialUnit):
    """x where x > 0, else alpha · (exp(x / alpha) - 1).

    The result has the shape of the input.

    >>> nn.CELU()(metaop.tensor([0.0, 2.0])).tolist()
    [0.0, 2.0]
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.celu(input, self.alpha, self.inplace)


class PReLU(Module):
    """Leaky ReLU with a learned slope, one for all channels or one per channel.

    The result has the shape of the input.

    >>> nn.PReLU()(metaop.tensor([-4.0, 2.0])).detach().tolist()
    [-1.0, 2.0]
    """

    def __init__(
        self, num_parameters: int = 1, init: float = 0.25, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        self.num_parameters = num_parameters
        self.init = init
        slopes = full((num_parameters,), float(init), device=device, dtype=dtype)
        self.weight = Parameter(slopes)

    def reset_parameters(self) -> None:
        """Resets all slopes to the initial value `init`."""
        constant_(self.weight, self.init)

    def forward(self, input: Tensor) -> Tensor:
        return F.prelu(input, self.weight)

    def extra_repr(self) -> str:
        return f"num_parameters={self.num_parameters}"
