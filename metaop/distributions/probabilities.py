"""The base of distributions whose parameter is given as `probs` or as `logits`."""

from __future__ import annotations

from typing import Any

from metaop.distributions.distribution import Distribution
from metaop.distributions.utils import (
    broadcast_all,
    lazy_property,
    logits_to_probs,
    probs_to_logits,
)
from metaop.errors import ArgumentError
from metaop.tensor.core import Tensor


class OfProbability(Distribution):
    """A distribution with a probability of success; the form that is not given is derived."""

    _is_binary = True

    def _take_parameter(self, probs: Any, logits: Any, *others: Any) -> list[Tensor]:
        """Keeps the form that was given, and returns the other parameters, broadcast with it."""
        name = given_form(type(self).__name__, probs, logits)
        *others, parameter = broadcast_all(*others, probs if logits is None else logits)  # type: ignore[assignment]
        setattr(self, name, parameter)
        return [one.type_as(parameter) for one in others]

    @lazy_property
    def probs(self) -> Tensor:
        """The probability."""
        return logits_to_probs(self.logits, self._is_binary)

    @lazy_property
    def logits(self) -> Tensor:
        """The logarithm of the odds."""
        return probs_to_logits(self.probs, self._is_binary)

    @property
    def _param(self) -> Tensor:
        return self.probs if "probs" in vars(self) else self.logits

    @property
    def param_shape(self) -> Any:
        """The shape of the parameter."""
        return self._param.shape


def given_form(owner: str, probs: Any, logits: Any) -> str:
    """Which of the two forms of the parameter was given."""
    if (probs is None) == (logits is None):
        raise ArgumentError(
            f"{owner}: Either `probs` or `logits` must be specified, but not both.",
            fix="pass one of them",
        )
    return "probs" if logits is None else "logits"
