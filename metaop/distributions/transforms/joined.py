"""Separate transforms of the parts of a value along a dimension."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from metaop.distributions import constraints
from metaop.distributions.transforms.transform import Transform
from metaop.distributions.utils import sum_rightmost
from metaop.tensor.core import Tensor
from metaop.tensor.functions.joining import cat, stack


class _Joined(Transform):
    """Applies each transform to its part; subclasses split values and join the results."""

    def __init__(self, tseq: Sequence[Transform], dim: int = 0, cache_size: int = 0) -> None:
        if not all(isinstance(one, Transform) for one in tseq):
            raise AssertionError("All elements of tseq must be Transform instances")
        super().__init__(cache_size)
        self.transforms = [one.with_cache(cache_size) for one in tseq] if cache_size else list(tseq)
        self.dim = dim

    @property
    def bijective(self) -> bool:  # type: ignore[override]
        return all(one.bijective for one in self.transforms)

    def _require(self, value: Tensor, extent: int) -> None:
        if not -value.ndim <= self.dim < value.ndim:
            raise AssertionError(
                f"dim {self.dim} out of range for a tensor with {value.ndim} dimensions"
            )
        if value.shape[self.dim] != extent:
            raise AssertionError(
                f"the size of dimension {self.dim} is {value.shape[self.dim]}, but the transforms "
                f"take {extent}"
            )

    def _parts(self, value: Tensor) -> Sequence[Tensor]:
        raise NotImplementedError

    def _together(self, parts: list[Tensor]) -> Tensor:
        raise NotImplementedError

    def _call(self, x: Tensor) -> Tensor:
        return self._together([one(part) for one, part in zip(self.transforms, self._parts(x))])

    def _inverse(self, y: Tensor) -> Tensor:
        parts = zip(self.transforms, self._parts(y))
        return self._together([one.inv(part) for one, part in parts])

    def _jacobians(self, x: Tensor, y: Tensor) -> list[Tensor]:
        parts = zip(self.transforms, self._parts(x), self._parts(y))
        return [one.log_abs_det_jacobian(before, after) for one, before, after in parts]


class CatTransform(_Joined):
    """Applies transforms to consecutive parts of the given `lengths` along a dimension.

    >>> identity = metaop.distributions.identity_transform
    >>> parts = [metaop.distributions.ExpTransform(), identity]
    >>> metaop.distributions.CatTransform(parts, 0, (1, 2))(metaop.tensor([0.0, 5.0, 6.0]))
    tensor([1., 5., 6.])
    """

    def __init__(
        self,
        tseq: Sequence[Transform],
        dim: int = 0,
        lengths: Sequence[int] | None = None,
        cache_size: int = 0,
    ) -> None:
        super().__init__(tseq, dim, cache_size)
        self.lengths = [1] * len(self.transforms) if lengths is None else list(lengths)
        if len(self.lengths) != len(self.transforms):
            raise AssertionError(
                f"lengths ({len(self.lengths)}) must match transforms ({len(self.transforms)})"
            )

    @property
    def event_dim(self) -> int:
        return max(one.event_dim for one in self.transforms)

    @property
    def length(self) -> int:
        """The extent of all parts together."""
        return sum(self.lengths)

    def with_cache(self, cache_size: int = 1) -> Transform:
        if self._cache_size == cache_size:
            return self
        return CatTransform(self.transforms, self.dim, self.lengths, cache_size)

    def _parts(self, value: Tensor) -> Sequence[Tensor]:
        self._require(value, self.length)
        return value.split(self.lengths, self.dim)

    def _together(self, parts: list[Tensor]) -> Tensor:
        return cat(parts, self.dim)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        terms = [
            sum_rightmost(term, self.event_dim - one.event_dim)
            for one, term in zip(self.transforms, self._jacobians(x, y))
        ]
        dim = (self.dim - x.ndim if self.dim >= 0 else self.dim) + self.event_dim
        if dim < 0:
            return cat(terms, dim)
        # The parts are within one event.
        total = terms[0]
        for term in terms[1:]:
            total = total + term
        return total

    @constraints.dependent_property
    def domain(self) -> Any:
        return constraints.cat([one.domain for one in self.transforms], self.dim, self.lengths)

    @constraints.dependent_property
    def codomain(self) -> Any:
        return constraints.cat([one.codomain for one in self.transforms], self.dim, self.lengths)


class StackTransform(_Joined):
    """Applies one transform to each index along a dimension.

    >>> identity = metaop.distributions.identity_transform
    >>> parts = [metaop.distributions.ExpTransform(), identity]
    >>> metaop.distributions.StackTransform(parts)(metaop.tensor([[0.0], [5.0]]))
    tensor([[1.],
            [5.]])
    """

    def with_cache(self, cache_size: int = 1) -> Transform:
        if self._cache_size == cache_size:
            return self
        return StackTransform(self.transforms, self.dim, cache_size)

    def _parts(self, value: Tensor) -> Sequence[Tensor]:
        self._require(value, len(self.transforms))
        return value.unbind(self.dim)

    def _together(self, parts: list[Tensor]) -> Tensor:
        return stack(parts, self.dim)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return stack(self._jacobians(x, y), self.dim)

    @constraints.dependent_property
    def domain(self) -> Any:
        return constraints.stack([one.domain for one in self.transforms], self.dim)

    @constraints.dependent_property
    def codomain(self) -> Any:
        return constraints.stack([one.codomain for one in self.transforms], self.dim)
