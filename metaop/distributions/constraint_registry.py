"""Which transforms map all real numbers into a set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from metaop.distributions import constraints, transforms
from metaop.distributions.transforms import Transform
from metaop.errors import ArgumentTypeError, UnsupportedError

__all__ = ["ConstraintRegistry", "biject_to", "transform_to"]


class ConstraintRegistry:
    """Finds the transform that maps real numbers into a set, by the class of the set."""

    def __init__(self) -> None:
        self._registry: dict[type, Callable[[Any], Transform]] = {}

    def register(
        self, constraint: Any, factory: Callable[[Any], Transform] | None = None
    ) -> Callable[..., Any]:
        """Registers the function that makes the transform for a class of sets; also a decorator."""
        if factory is None:
            return lambda given: self.register(constraint, given)
        kind = type(constraint) if isinstance(constraint, constraints.Constraint) else constraint
        if not (isinstance(kind, type) and issubclass(kind, constraints.Constraint)):
            raise ArgumentTypeError(
                "Expected constraint to be either a Constraint subclass or instance, but got "
                f"{constraint}",
                fix="pass a set of metaop.distributions.constraints",
            )
        self._registry[kind] = factory
        return factory

    def __call__(self, constraint: Any) -> Transform:
        """The transform into a set; raises UnsupportedError if none is registered."""
        factory = self._registry.get(type(constraint))
        if factory is None:
            raise UnsupportedError(
                f"Cannot transform {type(constraint).__name__} constraints",
                fix="register a transform for it",
            )
        return factory(constraint)


biject_to = ConstraintRegistry()
transform_to = ConstraintRegistry()


def _scaled(first: Transform, loc: Any, scale: Any) -> Transform:
    return transforms.ComposeTransform([first, transforms.AffineTransform(loc, scale)])


def _into_interval(constraint: Any) -> Transform:
    lower, upper = constraint.lower_bound, constraint.upper_bound
    if isinstance(lower, (int, float)) and isinstance(upper, (int, float)):
        if (lower, upper) == (0, 1):
            return transforms.SigmoidTransform()
    return _scaled(transforms.SigmoidTransform(), lower, upper - lower)


def _above(constraint: Any) -> Transform:
    lower = constraint.lower_bound
    if isinstance(lower, (int, float)) and lower == 0:
        return transforms.ExpTransform()
    return _scaled(transforms.ExpTransform(), lower, 1)


def _below(constraint: Any) -> Transform:
    return _scaled(transforms.ExpTransform(), constraint.upper_bound, -1)


def _register_what_both_know(into: ConstraintRegistry) -> None:
    """Registers the sets whose transforms are bijective; parts of a set are looked up in `into`."""

    def independent(constraint: Any) -> Transform:
        base = into(constraint.base_constraint)
        return transforms.IndependentTransform(base, constraint.reinterpreted_batch_ndims)

    def cat(constraint: Any) -> Transform:
        parts = [into(one) for one in constraint.cseq]
        return transforms.CatTransform(parts, constraint.dim, constraint.lengths)

    def stack(constraint: Any) -> Transform:
        return transforms.StackTransform([into(one) for one in constraint.cseq], constraint.dim)

    into.register(constraints.real, lambda _: transforms.identity_transform)
    into.register(constraints.greater_than, _above)
    into.register(constraints.greater_than_eq, _above)
    into.register(constraints.less_than, _below)
    into.register(constraints.interval, _into_interval)
    into.register(constraints.half_open_interval, _into_interval)
    into.register(constraints.corr_cholesky, lambda _: transforms.CorrCholeskyTransform())
    into.register(constraints.independent, independent)
    into.register(constraints.cat, cat)
    into.register(constraints.stack, stack)


_register_what_both_know(biject_to)
_register_what_both_know(transform_to)
biject_to.register(constraints.simplex, lambda _: transforms.StickBreakingTransform())
transform_to.register(constraints.simplex, lambda _: transforms.SoftmaxTransform())
transform_to.register(constraints.lower_cholesky, lambda _: transforms.LowerCholeskyTransform())
for _set in (constraints.positive_definite, constraints.positive_semidefinite):
    transform_to.register(_set, lambda _: transforms.PositiveDefiniteTransform())
