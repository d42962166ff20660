"""The base of all distributions: shapes, samples, log-probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from metaop.distributions.constraints import Constraint
from metaop.errors import ArgumentError, UnsupportedError
from metaop.tensor.core import Tensor
from metaop.tensor.functions.creation import as_tensor
from metaop.tensor.functions.joining import broadcast_tensors
from metaop.tensor.gradients import no_grad
from metaop.tensor.promotion import defaults
from metaop.tensor.size import Size


def broadcast_all(*values: Any) -> tuple[Tensor, ...]:
    """Tensors and numbers as tensors of one shape; numbers take the type of the tensors."""
    tensors = [value for value in values if isinstance(value, Tensor)]
    dtype = tensors[0].dtype if tensors else defaults.dtype
    device = tensors[0].device if tensors else None
    made = [
        value if isinstance(value, Tensor) else as_tensor(value, dtype, device) for value in values
    ]
    return tuple(broadcast_tensors(*made))


class Distribution:
    """A batch of distributions: samples have the shape `sample_shape + batch_shape + event_shape`.

    `rsample` draws samples that gradients flow through, `sample` draws without gradients.

    >>> x = metaop.distributions.Normal(metaop.zeros(2, 1), metaop.ones(3))
    >>> x.batch_shape, x.sample((5,)).shape
    (metaop.Size([2, 3]), metaop.Size([5, 2, 3]))
    """

    has_rsample = False
    has_enumerate_support = False
    arg_constraints: ClassVar[dict[str, Constraint]] = {}
    _validate_args = True

    def __init__(
        self,
        batch_shape: Sequence[int] = (),
        event_shape: Sequence[int] = (),
        validate_args: bool | None = None,
    ) -> None:
        self._batch_shape = Size(batch_shape)
        self._event_shape = Size(event_shape)
        if validate_args is not None:
            self._validate_args = validate_args
        if self._validate_args:
            for name, constraint in self.arg_constraints.items():
                self._check(name, constraint, getattr(self, name))

    def _check(self, name: str, constraint: Constraint, value: Any) -> None:
        if not bool(constraint.check(value.detach()).all()):
            raise ArgumentError(
                f"Expected {name} of distribution {type(self).__name__} to satisfy the "
                f"constraint {constraint}, but found invalid values",
                fix="check the values, or pass validate_args=False",
            )

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Whether parameters and values are checked unless a distribution says otherwise."""
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
    def support(self) -> Constraint:
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

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Samples that depend on the parameters differentiably."""
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

    def expand(self, batch_shape: Sequence[int]) -> Any:
        """The distribution with another batch shape that this one broadcasts to."""
        names = list(self.arg_constraints) or []
        parameters = {}
        for name in names:
            value = getattr(self, name)
            own = len(value.shape) - len(self._batch_shape)
            event = tuple(value.shape[len(value.shape) - own :]) if own else ()
            parameters[name] = value.expand(*batch_shape, *event)
        return type(self)(**parameters, validate_args=False)  # type: ignore[call-arg]

    def _extended_shape(self, sample_shape: Sequence[int] = ()) -> Size:
        return Size((*sample_shape, *self._batch_shape, *self._event_shape))

    def _validate_sample(self, value: Any) -> None:
        if self._validate_args:
            self._check("value argument", self.support, value)

    def __repr__(self) -> str:
        parts = []
        for name in self.arg_constraints:
            value = getattr(self, name)
            parts.append(f"{name}: {value if value.numel() == 1 else value.shape}")
        return f"{type(self).__name__}({', '.join(parts)})"


class ExponentialFamily(Distribution):
    """Distributions whose log-density is linear in functions of the value.

    Their shapes are those of `Distribution`.

    >>> issubclass(metaop.distributions.Normal, metaop.distributions.ExponentialFamily)
    True
    """
