"""Prefix results of an associative function, with logarithmically many calls.

Adjacent pairs are combined, the results are scanned recursively, and each is combined with the next
element (G. Blelloch, "Prefix sums and their applications", 1990).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from metaop.autograd.mapping import vmap
from metaop.control_flow.tracing import flattened
from metaop.errors import ArgumentError, ControlFlowError, ShapeError
from metaop.tensor.arguments import wrap_dim
from metaop.tensor.core import Tensor
from metaop.tensor.functions.joining import cat, stack
from metaop.tensor.functions.rearranging import flip
from metaop.tensor.functions.shaping import movedim
from metaop.trees import tree_unflatten

_MODES = ("pointwise", "generic")
Elements = list[Tensor]


def combined(
    combine_fn: Callable[[Any, Any], Any], xs: Any, dim: int, reverse: bool, combine_mode: str
) -> Any:
    """See `metaop.associative_scan`."""
    if combine_mode not in _MODES:
        raise ArgumentError(
            f"associative_scan: combine_mode is {combine_mode!r}",
            fix=f"use one of {', '.join(_MODES)}",
        )
    given, structure = flattened("associative_scan: xs", xs)
    lengths = {x.shape[wrap_dim(dim, x.ndim)] for x in given}
    if len(lengths) != 1:
        raise ShapeError(
            f"associative_scan: xs have the lengths {sorted(lengths)} along dimension {dim}",
            fix="pass tensors of one length",
        )
    function = vmap(combine_fn) if combine_mode == "generic" else combine_fn

    def combine(left: Elements, right: Elements) -> Elements:
        made = function(tree_unflatten(left, structure), tree_unflatten(right, structure))
        found, nested = flattened("associative_scan: the result of combine_fn", made)
        kinds = [(x.shape, x.dtype) for x in left]
        if nested != structure or [(x.shape, x.dtype) for x in found] != kinds:
            raise ControlFlowError(
                f"associative_scan: combine_fn made "
                f"{[(list(x.shape), x.dtype) for x in found]} of two of "
                f"{[(list(shape), dtype) for shape, dtype in kinds]}",
                fix="return a nest, shapes and types like those of one argument",
            )
        return found

    elements = [movedim(x, wrap_dim(dim, x.ndim), 0) for x in given]
    if reverse:
        elements = [flip(x, (0,)) for x in elements]
    found = _scanned(combine, elements)
    if reverse:
        found = [flip(x, (0,)) for x in found]
    placed = [movedim(x, 0, wrap_dim(dim, x.ndim)) for x in found]
    return tree_unflatten(placed, structure)


def _scanned(combine: Callable[[Elements, Elements], Elements], elements: Elements) -> Elements:
    length = elements[0].shape[0]
    if length < 2:
        return elements
    pairs = combine([x[: length - 1 : 2] for x in elements], [x[1::2] for x in elements])
    odd = _scanned(combine, pairs)
    first = [x[:1] for x in elements]
    if length == 2:
        return [cat((one, other)) for one, other in zip(first, odd)]
    before = [x[: (length - 1) // 2] for x in odd]
    even = combine(before, [x[2::2] for x in elements])
    even = [cat((one, other)) for one, other in zip(first, even)]
    return [_alternating(one, other) for one, other in zip(even, odd)]


def _alternating(even: Tensor, odd: Tensor) -> Tensor:
    """The elements of both interleaved, those of `even` first."""
    count = odd.shape[0]
    pairs = stack((even[:count], odd), 1).reshape(2 * count, *even.shape[1:])  # type: ignore[attr-defined]
    return pairs if even.shape[0] == count else cat((pairs, even[count:]))
