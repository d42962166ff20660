"""Transforms of single numbers."""

from __future__ import annotations

import math
from typing import Any

from metaop.distributions import constraints
from metaop.distributions.transforms.transform import Transform
from metaop.distributions.utils import broadcast_all, sum_rightmost
from metaop.nn.functional import softplus
from metaop.tensor.core import Tensor
from metaop.tensor.functions.creation import full_like
from metaop.tensor.functions.joining import broadcast_shapes
from metaop.tensor.size import Size
from metaop.tensor.type_info import finfo


class _Fixed(Transform):
    """A transform without parameters: two of a kind are equal."""

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)


class _Rising(_Fixed):
    """An increasing bijection of the real numbers."""

    domain = constraints.real
    bijective = True
    sign: Any = 1


class ExpTransform(_Rising):
    """The exponential, from real to positive numbers of the same shape.

    >>> metaop.distributions.ExpTransform().inv(metaop.tensor([1.0, 2.0]))
    tensor([0.0000, 0.6931])
    """

    codomain = constraints.positive

    def _call(self, x: Tensor) -> Tensor:
        return x.exp()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.log()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return x


def clipped_sigmoid(x: Tensor) -> Tensor:
    """The sigmoid, never 0 and never 1."""
    info = finfo(x.dtype)
    return x.sigmoid().clamp(info.tiny, 1 - info.eps)


class SigmoidTransform(_Rising):
    """The sigmoid, from real numbers to numbers between 0 and 1, of the same shape.

    >>> metaop.distributions.SigmoidTransform()(metaop.tensor([0.0, 1.0]))
    tensor([0.5000, 0.7311])
    """

    codomain = constraints.unit_interval

    def _call(self, x: Tensor) -> Tensor:
        return clipped_sigmoid(x)

    def _inverse(self, y: Tensor) -> Tensor:
        info = finfo(y.dtype)
        y = y.clamp(info.tiny, 1 - info.eps)
        return y.log() - (-y).log1p()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -softplus(-x) - softplus(x)


class SoftplusTransform(_Rising):
    """The logarithm of 1 + exp(x), from real to positive numbers of the same shape.

    >>> metaop.distributions.SoftplusTransform()(metaop.tensor([0.0, 1.0]))
    tensor([0.6931, 1.3133])
    """

    codomain = constraints.positive

    def _call(self, x: Tensor) -> Tensor:
        return softplus(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return (-(-y).expm1()).log() + y

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -softplus(-x)


class TanhTransform(_Rising):
    """The hyperbolic tangent, from real numbers to numbers between -1 and 1, of the same shape.

    Its inverse is infinite at the ends; `cache_size=1` returns the original argument instead.

    >>> metaop.distributions.TanhTransform()(metaop.tensor([0.0, 1.0]))
    tensor([0.0000, 0.7616])
    """

    codomain = constraints.interval(-1.0, 1.0)

    def _call(self, x: Tensor) -> Tensor:
        return x.tanh()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.atanh()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        # log(1 - tanh(x)²), without the cancellation of large x.
        return 2 * (math.log(2) - x - softplus(-2 * x))


class AbsTransform(_Fixed):
    """The absolute value, whose inverse returns the positive number; the shape stays the same.

    >>> metaop.distributions.AbsTransform()(metaop.tensor([-1.0, 2.0]))
    tensor([1., 2.])
    """

    domain = constraints.real
    codomain = constraints.positive

    def _call(self, x: Tensor) -> Tensor:
        return x.abs()

    def _inverse(self, y: Tensor) -> Tensor:
        return y


def _shape_beside(shape: Size, *parameters: Any) -> Size:
    return broadcast_shapes(shape, *[getattr(one, "shape", ()) for one in parameters])


class PowerTransform(Transform):
    """Positive numbers to the power of `exponent`; their shapes broadcast.

    >>> metaop.distributions.PowerTransform(2.0).inv(metaop.tensor([4.0, 9.0]))
    tensor([2., 3.])
    """

    domain = constraints.positive
    codomain = constraints.positive
    bijective = True

    def __init__(self, exponent: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        (self.exponent,) = broadcast_all(exponent)

    @property
    def sign(self) -> Tensor:
        return self.exponent.sign()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PowerTransform) and _are_equal(self.exponent, other.exponent)

    def _call(self, x: Tensor) -> Tensor:
        return x.pow(self.exponent)

    def _inverse(self, y: Tensor) -> Tensor:
        return y.pow(1 / self.exponent)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return (self.exponent * y / x).abs().log()

    def forward_shape(self, shape: Size) -> Size:
        return _shape_beside(shape, self.exponent)

    inverse_shape = forward_shape


def _are_equal(one: Any, other: Any) -> bool:
    equal = one == other
    return bool(equal.all()) if isinstance(equal, Tensor) else equal


class AffineTransform(Transform):
    """`loc + scale * x`; both broadcast with the argument.

    The last `event_dim` dimensions make one event: the Jacobian is summed over them.

    >>> shift = metaop.distributions.AffineTransform(1.0, 2.0)
    >>> shift(metaop.tensor([0.0, 3.0])), shift.inv(metaop.tensor([1.0]))
    (tensor([1., 7.]), tensor([0.]))
    """

    bijective = True

    def __init__(self, loc: Any, scale: Any, event_dim: int = 0, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.loc = loc
        self.scale = scale
        self._event_dim = event_dim

    @property
    def event_dim(self) -> int:
        return self._event_dim

    @constraints.dependent_property(is_discrete=False)
    def domain(self) -> Any:
        count = self._event_dim
        return constraints.independent(constraints.real, count) if count else constraints.real

    codomain = domain

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, AffineTransform)
            and _are_equal(self.loc, other.loc)
            and _are_equal(self.scale, other.scale)
        )

    @property
    def sign(self) -> Any:
        if isinstance(self.scale, Tensor):
            return self.scale.sign()
        return (self.scale > 0) - (self.scale < 0)

    def _call(self, x: Tensor) -> Tensor:
        return self.loc + self.scale * x

    def _inverse(self, y: Tensor) -> Tensor:
        return (y - self.loc) / self.scale

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        if isinstance(self.scale, Tensor):
            result = self.scale.abs().log().expand(*x.shape)
        else:
            result = full_like(x, math.log(abs(self.scale)))
        return sum_rightmost(result, self._event_dim)

    def forward_shape(self, shape: Size) -> Size:
        return _shape_beside(shape, self.loc, self.scale)

    inverse_shape = forward_shape


class CumulativeDistributionTransform(Transform):
    """The cumulative distribution function of a distribution, which makes its samples uniform.

    Shapes broadcast with the batch of the distribution.

    >>> normal = metaop.distributions.Normal(0.0, 1.0)
    >>> metaop.distributions.CumulativeDistributionTransform(normal)(metaop.tensor([0.0, 1.0]))
    tensor([0.5000, 0.8413])
    """

    bijective = True
    codomain = constraints.unit_interval
    sign: Any = 1

    def __init__(self, distribution: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.distribution = distribution

    @property
    def domain(self) -> Any:  # type: ignore[override]
        return self.distribution.support

    def _call(self, x: Tensor) -> Tensor:
        return self.distribution.cdf(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return self.distribution.icdf(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return self.distribution.log_prob(x)
