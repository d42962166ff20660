"""Functions of positions: which keys a query attends to, written for one score at a time."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any

import metaop
from metaop.errors import ArgumentError, ArgumentTypeError, DTypeError
from metaop.tensor.core import Tensor
from metaop.tensor.functions.creation import zeros
from metaop.tensor.functions.ranges import arange
from metaop.tensor.options import DeviceLike

MaskMod = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
ScoreMod = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
# The arguments of the two kinds of functions.
_OF_MASKS, _OF_SCORES = 4, 5


def noop_mask(batch: Tensor, head: Tensor, token_q: Tensor, token_kv: Tensor) -> Tensor:
    """The mask that allows every key: True, of shape ().

    >>> from metaop.nn.attention.flex_attention import noop_mask
    >>> noop_mask(*metaop.arange(4)).item()
    True
    """
    return batch.new_ones((), dtype=metaop.bool)  # type: ignore[attr-defined]


def and_masks(*mask_mods: MaskMod) -> MaskMod:
    """The mask that allows what all of the given masks allow.

    Raises ArgumentTypeError for what cannot be called.

    >>> from metaop.nn.attention.flex_attention import and_masks, create_mask
    >>> window = and_masks(lambda b, h, q, k: k <= q, lambda b, h, q, k: q - k < 2)
    >>> create_mask(window, 1, 1, 3, 3, "cpu")[0, 0].int()
    tensor([[1, 0, 0],
            [1, 1, 0],
            [0, 1, 1]], dtype=metaop.int32)
    """
    _check_callable(mask_mods)

    def and_mask(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        result: Any = noop_mask(b, h, q_idx, kv_idx)
        for mask in mask_mods:
            result = result & mask(b, h, q_idx, kv_idx)
        return result

    return and_mask


def or_masks(*mask_mods: MaskMod) -> MaskMod:
    """The mask that allows what any of the given masks allows.

    Raises ArgumentTypeError for what cannot be called.

    >>> from metaop.nn.attention.flex_attention import create_mask, or_masks
    >>> prefix = or_masks(lambda b, h, q, k: k <= q, lambda b, h, q, k: k < 2)
    >>> create_mask(prefix, 1, 1, 3, 3, "cpu")[0, 0].int()
    tensor([[1, 1, 0],
            [1, 1, 0],
            [1, 1, 1]], dtype=metaop.int32)
    """
    _check_callable(mask_mods)

    def or_mask(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        result: Any = ~noop_mask(b, h, q_idx, kv_idx)  # type: ignore[operator]
        for mask in mask_mods:
            result = result | mask(b, h, q_idx, kv_idx)
        return result

    return or_mask


def _check_callable(functions: Sequence[Any]) -> None:
    for function in functions:
        if not callable(function):
            raise ArgumentTypeError(
                f"All inputs should be callable mask_mods, got {type(function).__name__}",
                fix="pass functions of (b, h, q_idx, kv_idx)",
            )


def create_mask(
    mod_fn: Callable[..., Tensor],
    B: int | None,
    H: int | None,
    Q_LEN: int,
    KV_LEN: int,
    device: DeviceLike = None,
) -> Tensor:
    """The mask of a function as truth values of shape (B, H, Q_LEN, KV_LEN).

    `mod_fn` is a function of (b, h, q_idx, kv_idx) that tells whether a key is allowed, or one of
    (score, b, h, q_idx, kv_idx): what it makes of the score 0 is allowed unless it is -inf. A size
    of None is 1. Raises ArgumentError for functions of other arguments.

    >>> from metaop.nn.attention.flex_attention import create_mask
    >>> create_mask(lambda b, h, q, k: q >= k, 1, 1, 2, 3, "cpu").tolist()
    [[[[True, False, False], [True, True, False]]]]
    """
    shape = sizes_of(B, H, Q_LEN, KV_LEN)
    if argument_count(mod_fn) == _OF_MASKS:
        return allowed_by(mod_fn, shape, device)
    scores = over_positions(mod_fn, shape, device, zeros(shape, device=device))
    return scores != -math.inf  # type: ignore[return-value]


def sizes_of(B: int | None, H: int | None, queries: int, keys: int) -> tuple[int, int, int, int]:
    """The shape of a mask; a size of None is 1."""
    return (1 if B is None else B, 1 if H is None else H, queries, keys)


def argument_count(function: Any) -> int:
    """The number of arguments that a function requires: 4 for a mask, 5 for scores."""
    _check_callable([function])
    parameters = inspect.signature(function).parameters.values()
    required = [
        parameter
        for parameter in parameters
        if parameter.default is parameter.empty and parameter.kind != parameter.KEYWORD_ONLY
    ]
    if len(required) not in (_OF_MASKS, _OF_SCORES):
        raise ArgumentError(
            f"Expected 4 or 5 positional args, got {len(required)}",
            fix="a mask takes (b, h, q_idx, kv_idx), a score_mod takes the score before them",
        )
    return len(required)


def require_mask(function: Any) -> None:
    """Raises ArgumentError for a function that is no mask."""
    if argument_count(function) != _OF_MASKS:
        raise ArgumentError(
            f"create_block_mask requires a mask_mod function! Got {function}",
            fix="pass a function of (b, h, q_idx, kv_idx); scores are changed by score_mod",
        )


def allowed_by(mask_mod: MaskMod, shape: Sequence[int], device: DeviceLike) -> Tensor:
    """The truth values of a mask at all positions (B, H, L, S); DTypeError for other values."""
    allowed = over_positions(mask_mod, shape, device)
    if allowed.dtype.kind != "bool":
        raise DTypeError(
            f"mask_mod must return truth values, got {allowed.dtype}",
            fix="compare positions, as in q_idx >= kv_idx",
        )
    return allowed


def over_positions(
    function: Callable[..., Tensor],
    shape: Sequence[int],
    device: DeviceLike,
    scores: Tensor | None = None,
) -> Tensor:
    """What `function` gives for each score (if there are any) and position of (B, H, L, S).

    It is mapped over one dimension after the other, so what depends on the head alone is computed
    once per head.
    """
    lead = () if scores is None else (0,)
    for place in reversed(range(4)):
        dims = tuple(0 if k == place else None for k in range(4))
        function = metaop.vmap(function, in_dims=(*lead, *dims))
    positions = [arange(extent, device=device) for extent in shape]
    return function(*([] if scores is None else [scores]), *positions)
