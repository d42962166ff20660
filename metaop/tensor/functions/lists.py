"""Functions on lists of tensors: `_foreach_add` and its kin, which optimizers of others call.

Each is the function of one tensor, called for every tensor of the list. The compiler fuses what is
computed for many tensors anyway, so nothing is gained by these names but that programs run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from metaop.errors import ShapeError
from metaop.tensor.core import Tensor

_PREFIX = "_foreach_"
# PyTorch bounds by numbers, or by tensors, under these names.
_OTHERWISE = {"maximum": "clamp_min", "minimum": "clamp_max"}
# What follows so many operands is a keyword of the function of one tensor.
_THEN = {"addcdiv": (2, "value"), "addcmul": (2, "value"), "norm": (1, "dtype")}
# Names of operands, which are not those of the function of one tensor, by their place.
_NAMES = (
    ("other", "scalar", "tensor1", "tensors1", "exponent", "src", "mat2", "ord"),
    ("tensor2", "weight", "weights"),
    ("scalars", "value"),
)


def for_each(name: str) -> Callable[..., list[Tensor]]:
    """The function `_foreach_…` of lists of tensors that `name` names.

    Lists and tuples among the arguments have one element for each tensor; anything else is the same
    for all tensors. Raises AttributeError if tensors have no such method.

    >>> x, y = metaop.ones(2), metaop.zeros(1)
    >>> metaop._foreach_add([x, y], [y, x], alpha=3)
    [tensor([1., 1.]), tensor([3., 3.])]
    """
    word = name.removeprefix(_PREFIX)
    plain = word.removesuffix("_")
    step = getattr(Tensor, _OTHERWISE.get(plain, plain) + word[len(plain) :], None)
    if step is None:
        raise AttributeError(f"module 'metaop' has no attribute {name!r}")

    # Not `wraps`: who inspects it shall see its own operands, not those of one tensor.
    def each(self: Any, *operands: Any, **kwargs: Any) -> list[Tensor]:
        args = [*operands, *(kwargs.pop(word) for row in _NAMES for word in row if word in kwargs)]
        if plain in _THEN and len(args) > _THEN[plain][0]:
            kwargs[_THEN[plain][1]] = args.pop()
        if plain == "pow" and not isinstance(self, (list, tuple)):
            return [self**exponent for exponent in args[0]]
        found = [_spread(name, one, len(self)) for one in args]
        named = [_spread(name, one, len(self)) for one in kwargs.values()]
        return [
            step(tensor, *(row[k] for row in found), **{w: row[k] for w, row in zip(kwargs, named)})
            for k, tensor in enumerate(self)
        ]

    each.__name__ = each.__qualname__ = name
    each.__module__ = step.__module__
    each.__doc__ = f"`{word}` of every tensor of a list; other lists have an operand for each."
    return each


def _spread(name: str, value: Any, count: int) -> Sequence[Any]:
    """An argument for each of `count` tensors."""
    if not isinstance(value, (list, tuple)):
        return [value] * count
    if len(value) != count:
        raise ShapeError(
            f"{name}: {count} tensors, but a list of {len(value)}",
            fix="give a list with an element for each tensor",
        )
    return value
