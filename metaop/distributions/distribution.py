"""The base of all distributions: shapes, samples, log-probabilities."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, ClassVar

from metaop.autograd.gradients import grad
from metaop.distributions.constraints import Constraint, is_dependent
from metaop.distributions.utils import broadcast_all, lazy_property, sum_rightmost
from metaop.errors import ArgumentError, UnsupportedError
from metaop.tensor.core import Tensor
from metaop.tensor.grad_mode import no_grad
from metaop.tensor.size import Size

__all__ = ["Distribution", "ExponentialFamily", "broadcast_all"]


class Distribution:
    """A batch of distributions: samples have the shape `sample_shape + batch_shape + event_shape`.

    `rsample` draws samples that gradients flow through, `sample` draws without gradients.

    >>> x = metaop.distributions.Normal(metaop.zeros(2, 1), metaop.ones(3))
    >>> x.batch_shape, x.sample((5,)).shape
    (metaop.Size([2, 3]), metaop.Size([5, 2, 3]))
    """

    has_rsample: Any = False
    has_enumerate_support: Any = False
    arg_constraints: Any = {}
    _validate_args: ClassVar[bool] = True

    def __init__(
        self,
        batch_shape: Sequence[int] = (),
        event_shape: Sequence[int] = (),
        validate_args: bool | None = None,
    ) -> None:
        self._batch_shape = Size(batch_shape)
        self._event_shape = Size(event_shape)
        if validate_args is not None:
            self._validate_args = validate_args  # type: ignore[misc]
        if self._validate_args:
            for name, constraint in self.arg_constraints.items():
                if not is_dependent(constraint) and not self._is_derived(name):
                    self._check(name, constraint, getattr(self, name))
        super().__init__()  # a class of the user may be a module too

    def _is_derived(self, name: str) -> bool:
        """Whether a parameter is computed from another one that was given."""
        return name not in vars(self) and isinstance(getattr(type(self), name), lazy_property)

    def _check(self, name: str, constraint: Constraint, value: Any) -> None:
        if not bool(constraint.check(value.detach()).all()):
            raise ArgumentError(
                f"Expected parameter {name} ({type(value).__name__} of shape "
                f"{tuple(value.shape)}) of distribution {self!r} to satisfy the constraint "
                f"{constraint!r}, but found invalid values:\n{value}",
                fix="check the values, or pass validate_args=False",
            )

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Whether parameters and values are checked unless a distribution says otherwise."""
        if value not in (True, False):
            raise ArgumentError(
                f"set_default_validate_args takes True or False, not {value!r}",
                fix="pass True or False",
            )
        Distribution._validate_args = value

    @property
    def batch_shape(self) -> Size:
        """The shape of the batch of distributions."""
        return self._batch_shape

    @property
    def event_shape(self) -> Size:
        """The shape of one sample of one distribution."""
        return self._event_shape

    @property
    def support(self) -> Any:
        """The set of possible samples."""
        raise NotImplementedError

    @property
    def mean(self) -> Tensor:
        """The expected value."""
        raise NotImplementedError

    @property
    def mode(self) -> Tensor:
        """The most likely value."""
        raise NotImplementedError(f"{type(self).__name__} does not implement mode")

    @property
    def variance(self) -> Tensor:
        """The variance."""
        raise NotImplementedError

    @property
    def stddev(self) -> Tensor:
        """The standard deviation."""
        return self.variance.sqrt()

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Samples without gradients."""
        with no_grad():
            return self.rsample(sample_shape)

    def sample_n(self, n: int) -> Tensor:
        """`n` samples; `sample((n,))` in new programs, as a warning says."""
        warnings.warn(
            "`sample_n(n)` will be deprecated. Use `sample((n,))` instead.",
            FutureWarning,
            stacklevel=2,
        )
        return self.sample((n,))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Samples that are differentiable with respect to the parameters."""
        raise UnsupportedError(
            f"{type(self).__name__} has no reparametrised samples", fix="use sample()"
        )

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density, or of the probability."""
        raise NotImplementedError

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of at most `value`."""
        raise NotImplementedError

    def icdf(self, value: Tensor) -> Tensor:
        """The value below which a sample lies with the probability `value`."""
        raise NotImplementedError

    def entropy(self) -> Tensor:
        """The entropy in nats."""
        raise NotImplementedError

    def perplexity(self) -> Tensor:
        """The exponential of the entropy."""
        return self.entropy().exp()

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All values of a discrete distribution, along a new first dimension."""
        raise NotImplementedError

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        """The distribution with a batch shape to which its own broadcasts.

        It expands the tensors and distributions in its attributes whose shapes begin with the
        batch shape. A subclass may pass a new object with the attributes that differ.
        """
        new = self._get_checked_instance(type(self), _instance)
        shape = Size(batch_shape)
        for name, value in vars(self).items():
            if name not in vars(new):
                setattr(new, name, self._expanded(value, shape))
        new._batch_shape = shape
        return new

    def _expanded(self, value: Any, shape: Size) -> Any:
        count = len(self._batch_shape)
        if isinstance(value, Tensor) and value.shape[:count] == self._batch_shape:
            return value.expand(*shape, *value.shape[count:])
        if isinstance(value, Distribution) and value.batch_shape[:count] == self._batch_shape:
            return value.expand((*shape, *value.batch_shape[count:]))
        return value

    def _get_checked_instance(self, cls: type, _instance: Any = None) -> Any:
        """The object that `expand` fills, for subclasses with an `expand` of their own."""
        if _instance is None and type(self).__init__ is not cls.__init__:  # type: ignore[misc]
            raise NotImplementedError(
                f"Subclass {type(self).__name__} of {cls.__name__} that defines a custom __init__ "
                "method must also define a custom .expand() method."
            )
        return type(self).__new__(type(self)) if _instance is None else _instance

    def _extended_shape(self, sample_shape: Sequence[int] = ()) -> Size:
        return Size((*sample_shape, *self._batch_shape, *self._event_shape))

    def _validate_sample(self, value: Any) -> None:
        """Refuses values outside the support."""
        if not self._validate_args:
            return
        if not isinstance(value, Tensor):
            raise ArgumentError(
                "The value argument to log_prob must be a Tensor", fix="pass metaop.tensor(value)"
            )
        self._validate_shape(value.shape)
        try:
            support = self.support
        except NotImplementedError:
            warnings.warn(
                f"{type(self)} does not define `support` to enable sample validation. Please "
                "initialize the distribution with `validate_args=False` to turn off validation.",
                stacklevel=3,
            )
            return
        if not bool(support.check(value.detach()).all()):
            raise ArgumentError(
                f"Expected value argument ({type(value).__name__} of shape {tuple(value.shape)}) "
                f"to be within the support ({support!r}) of the distribution {self!r}, but found "
                f"invalid values:\n{value}",
                fix="check the values, or pass validate_args=False",
            )

    def _validate_shape(self, shape: Size) -> None:
        event = len(self._event_shape)
        if event and shape[-event:] != self._event_shape:
            raise ArgumentError(
                f"The right-most size of value must match event_shape: {shape} vs "
                f"{self._event_shape}.",
                fix="give values with the shape of an event in the last dimensions",
            )
        wanted = self._batch_shape + self._event_shape
        for actual, expected in zip(reversed(shape), reversed(wanted)):
            if 1 not in (actual, expected) and actual != expected:
                raise ArgumentError(
                    f"Value is not broadcastable with batch_shape+event_shape: {shape} vs "
                    f"{Size(wanted)}.",
                    fix="give values that broadcast with the batch",
                )

    def __repr__(self) -> str:
        parts = []
        for name in self.arg_constraints:
            value = vars(self).get(name)
            if value is not None:
                parts.append(f"{name}: {value if value.numel() == 1 else value.shape}")
        return f"{type(self).__name__}({', '.join(parts)})"


class ExponentialFamily(Distribution):
    """The base of exponential families, whose log-density is linear in functions of the value.

    Shapes are those of `Distribution`. A subclass defines `_natural_params`, the function
    `_log_normalizer` of them and the number `_mean_carrier_measure`; it inherits the entropy and
    the divergence from another distribution of its class.

    >>> issubclass(metaop.distributions.Normal, metaop.distributions.ExponentialFamily)
    True
    """

    @property
    def _natural_params(self) -> Any:
        raise NotImplementedError

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        raise NotImplementedError

    @property
    def _mean_carrier_measure(self) -> Any:
        raise NotImplementedError

    def _mean_statistics(self) -> tuple[Sequence[Tensor], Tensor, Sequence[Tensor]]:
        """The natural parameters, their log-normaliser, and its gradient: the mean statistics."""
        parameters = [one.detach().requires_grad_() for one in self._natural_params]
        normaliser = self._log_normalizer(*parameters)
        statistics = grad(normaliser.sum(), parameters, create_graph=True)
        return parameters, normaliser, statistics  # type: ignore[return-value]

    def entropy(self) -> Tensor:
        parameters, normaliser, statistics = self._mean_statistics()
        result = normaliser - self._mean_carrier_measure
        for parameter, statistic in zip(parameters, statistics):
            term = parameter * statistic
            result = result - sum_rightmost(term, term.ndim - len(self._batch_shape))
        return result
