"""Sets of values that parameters and samples lie in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from metaop.tensor.core import Tensor

__all__ = [
    "Constraint",
    "boolean",
    "greater_than",
    "integer_interval",
    "interval",
    "nonnegative",
    "nonnegative_integer",
    "positive",
    "positive_definite",
    "real",
    "real_vector",
    "simplex",
    "unit_interval",
]


class Constraint:
    """A set; `check(value)` tells for each element (or vector) whether it is inside."""

    def __init__(
        self, name: str, test: Callable[[Any], Any], is_discrete: bool = False, event_dim: int = 0
    ) -> None:
        self.name = name
        self.is_discrete = is_discrete
        self.event_dim = event_dim
        self._test = test

    def check(self, value: Tensor) -> Tensor:
        """Whether the values are inside."""
        return self._test(value)

    def __repr__(self) -> str:
        return self.name


def interval(lower_bound: Any, upper_bound: Any) -> Constraint:
    """Real numbers between two bounds, both included."""
    return Constraint("Interval", lambda x: (lower_bound <= x) & (x <= upper_bound))


def integer_interval(lower_bound: Any, upper_bound: Any) -> Constraint:
    """Whole numbers between two bounds, both included."""
    return Constraint(
        "IntegerInterval",
        lambda x: (x % 1 == 0) & (lower_bound <= x) & (x <= upper_bound),
        is_discrete=True,
    )


def greater_than(lower_bound: Any) -> Constraint:
    """Real numbers above a bound."""
    return Constraint("GreaterThan", lambda x: lower_bound < x)


real = Constraint("Real", lambda x: x == x)
real_vector = Constraint("RealVector", lambda x: (x == x).all(-1), event_dim=1)
positive = greater_than(0.0)
nonnegative = Constraint("GreaterThanEq", lambda x: x >= 0)
unit_interval = interval(0.0, 1.0)
boolean = Constraint("Boolean", lambda x: (x == 0) | (x == 1), is_discrete=True)
nonnegative_integer = Constraint(
    "NonNegativeInteger", lambda x: (x % 1 == 0) & (x >= 0), is_discrete=True
)
simplex = Constraint(
    "Simplex", lambda x: (x >= 0).all(-1) & ((x.sum(-1) - 1).abs() < 1e-6), event_dim=1
)
positive_definite = Constraint(
    "PositiveDefinite", lambda x: (x.diagonal(0, -2, -1) > 0).all(-1), event_dim=2
)
