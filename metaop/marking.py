"""Says of tensors which of their sizes will vary."""

from __future__ import annotations

from collections.abc import Sequence

from metaop import executor, specialisation
from metaop.errors import ArgumentTypeError
from metaop.tensor.arguments import wrap_dims
from metaop.tensor.core import Tensor

__all__ = ["mark_dynamic", "mark_static"]


def mark_dynamic(x: Tensor, dim: int | Sequence[int]) -> None:
    """Announces that the size of `x` in `dim`, one or several dimensions, will vary.

    The first program that reads `x` then holds for any such size, so the second size compiles
    nothing. Sizes 0 and 1 have programs of their own all the same. The mark belongs to this tensor,
    not to those computed from it.

    Raises IndexError if `x` does not have such a dimension.

    >>> x = metaop.ones(5, 8)
    >>> metaop.mark_dynamic(x, 0)
    >>> x.sum().item()
    40.0
    """
    _mark(x, dim, True)


def mark_static(x: Tensor, dim: int | Sequence[int] | None = None) -> None:
    """Announces that the size of `x` in `dim`, or in all dimensions, takes few values.

    Each of these values then has a program of its own, which may run faster than one for any size;
    after eight, programs hold for exactly one choice of all sizes. The mark belongs to this tensor,
    not to those computed from it.

    Raises IndexError if `x` does not have such a dimension.

    >>> x = metaop.ones(5, 8)
    >>> metaop.mark_static(x, 1)
    >>> x.sum().item()
    40.0
    """
    _mark(x, range(x.ndim) if dim is None else dim, False)


def _mark(x: Tensor, dim: int | Sequence[int], as_dynamic: bool) -> None:
    if not isinstance(x, Tensor):
        raise ArgumentTypeError(
            f"expected a tensor whose sizes to mark, but got {type(x).__name__}",
            fix="mark each tensor that a function receives",
        )
    dims = wrap_dims(dim, x.ndim)
    executor.realize_alone(x.call)
    specialisation.mark(x.call, dims, as_dynamic)
