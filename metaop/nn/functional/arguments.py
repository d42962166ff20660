"""Reading the arguments of layers: sizes per dimension, reductions, seeds."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from operator import index

from metaop.errors import ArgumentError, ArgumentTypeError
from metaop.tensor.core import Tensor
from metaop.unified_graph.loop import can_repeat
from metaop.unified_graph.recording import Call
from metaop.unified_graph.tracing import state

Sizes = int | Sequence[int]

# A single step is not run as a loop: unrolled, its program is smaller.
_SHORTEST_LOOP = 2


def spread(value: Sizes, count: int, name: str) -> tuple[int, ...]:
    """One size per dimension; an int or a sequence of one element applies to all of them."""
    if type(value) is int:
        return (value,) * count
    if isinstance(value, (tuple, list)):
        sizes = tuple([index(size) for size in value])
        if len(sizes) == 1:
            return sizes * count
        if len(sizes) == count:
            return sizes
        raise ArgumentError(
            f"{name} must be an int or {count} of them, got {value!r}",
            fix=f"pass {count} values, one per dimension",
        )
    try:
        return (index(value),) * count  # type: ignore[arg-type]
    except TypeError:
        raise ArgumentTypeError(
            f"{name} must be an int or a tuple of ints, got {value!r}",
            fix="pass an int, or one per dimension",
        ) from None


def optional(tensor: Tensor | None) -> Call | None:
    """The recorded value of an operand that may be absent."""
    return None if tensor is None else tensor.call


def reduction_of(
    operator: str,
    reduction: str,
    size_average: bool | None = None,
    reduce: bool | None = None,
    allowed: tuple[str, ...] = ("none", "mean", "sum"),
) -> str:
    """The reduction's name, checked; the deprecated boolean arguments override it."""
    if size_average is not None or reduce is not None:
        warnings.warn(
            "size_average and reduce are deprecated; use reduction='none', 'mean' or 'sum'",
            stacklevel=3,
        )
        if reduce is False:
            return "none"
        return "sum" if size_average is False else "mean"
    if reduction not in allowed:
        raise ArgumentError(
            f"{operator}: {reduction!r} is not a valid value for reduction",
            fix="use one of " + ", ".join(map(repr, allowed)),
        )
    return reduction


def is_loop(input: Tensor) -> bool:
    """Whether an operator runs as a loop over steps: if programs can loop and there are several."""
    trace = state.trace
    shortest = 1 if trace is not None and trace.for_any_size else _SHORTEST_LOOP
    return can_repeat(input.device) and len(input) >= shortest
