"""Says of tensors which of their sizes will vary."""

from __future__ import annotations

from collections.abc import Sequence

from metaop.errors import ArgumentTypeError
from metaop.execution import executor, specialisation
from metaop.tensor.arguments import wrap_dims
from metaop.tensor.core import Tensor

__all__ = ["mark_dynamic", "mark_static"]


def mark_dynamic(t: Tensor, index: int | Sequence[int]) -> None:
    """Announces that the size of `t` in `index`, one or several dimensions, will vary.

    The first program that reads `t` then holds for any such size, so the second size compiles
    nothing. Sizes 0 and 1 have programs of their own all the same. The mark belongs to this tensor,
    not to those computed from it.

    Raises IndexError if `t` does not have such a dimension.

    >>> x = metaop.ones(5, 8)
    >>> metaop.mark_dynamic(x, 0)
    >>> x.sum().item()
    40.0
    """
    _mark(t, index, True)


def mark_static(t: Tensor, index: int | Sequence[int] | None = None) -> None:
    """Announces that the size of `t` in `index`, or in all dimensions, takes few values.

    Each of these values then has a program of its own, which may run faster than one for any size;
    after eight, programs hold for exactly one choice of all sizes. The mark belongs to this tensor,
    not to those computed from it.

    Raises IndexError if `t` does not have such a dimension.

    >>> x = metaop.ones(5, 8)
    >>> metaop.mark_static(x, 1)
    >>> x.sum().item()
    40.0
    """
    _mark(t, index, False)


def _mark(t: Tensor, index: int | Sequence[int] | None, as_dynamic: bool) -> None:
    if not isinstance(t, Tensor):
        raise ArgumentTypeError(
            f"expected a tensor whose sizes to mark, but got {type(t).__name__}",
            fix="mark each tensor that a function receives",
        )
    dims = wrap_dims(range(t.ndim) if index is None else index, t.ndim)
    executor.realize_alone(t.call)
    specialisation.mark(t.call, dims, as_dynamic)
