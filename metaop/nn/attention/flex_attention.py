"""Attention whose scores a function of the user changes or masks.

The function is written for one score and its position. It is mapped over all of them as `vmap`
does, and so becomes a part of the graph: its gradient and its fusion are those of any program.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from metaop.errors import ArgumentError, DeviceError, DTypeError, ShapeError, UnsupportedError
from metaop.nn.attention.block_mask import (
    _DEFAULT_SPARSE_BLOCK_SIZE,
    BlockMask,
    create_block_mask,
)
from metaop.nn.attention.masks import (
    MaskMod,
    ScoreMod,
    and_masks,
    create_mask,
    noop_mask,
    or_masks,
    over_positions,
)
from metaop.operators import attention as operators
from metaop.tensor.casting import cast_operands
from metaop.tensor.core import Tensor, wrap
from metaop.unified_graph.recording import modes, part, record

__all__ = [
    "_DEFAULT_SPARSE_BLOCK_SIZE",
    "AuxOutput",
    "AuxRequest",
    "BlockMask",
    "FlexKernelOptions",
    "and_masks",
    "create_block_mask",
    "create_mask",
    "flex_attention",
    "noop_mask",
    "or_masks",
]

# PyTorch's options of its GPU kernels, by name.
FlexKernelOptions = dict[str, Any]
# PyTorch's names of the types of functions, which packages import.
_mask_mod_signature = MaskMod
_score_mod_signature = ScoreMod


class AuxRequest(NamedTuple):
    """Which further results `flex_attention` returns, of the lengths of the queries.

    `lse` is the logarithm of the sum of the exponentials of each row of scores, `max_scores` the
    largest score of each row.

    >>> from metaop.nn.attention.flex_attention import AuxRequest
    >>> AuxRequest(lse=True)
    AuxRequest(lse=True, max_scores=False)
    """

    lse: bool = False
    max_scores: bool = False


class AuxOutput(NamedTuple):
    """The further results of `flex_attention`, of shape (B, Hq, L); None for what was not asked.

    Only `lse` has a gradient.

    >>> from metaop.nn.attention.flex_attention import AuxRequest, flex_attention
    >>> x = metaop.zeros(1, 1, 2, 4)
    >>> _, aux = flex_attention(x, x, x, return_aux=AuxRequest(max_scores=True))
    >>> aux
    AuxOutput(lse=None, max_scores=tensor([[[0., 0.]]]))
    """

    lse: Tensor | None = None
    max_scores: Tensor | None = None


def flex_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: ScoreMod | None = None,
    block_mask: BlockMask | None = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    kernel_options: FlexKernelOptions | None = None,
    *,
    return_aux: AuxRequest | None = None,
) -> Any:
    """The mean of `value` weighted by the softmax of scores that `score_mod` has changed.

    The shapes are (B, Hq, L, E), (B, Hkv, S, E) and (B, Hkv, S, Ev); the result is (B, Hq, L, Ev).
    `score_mod(score, b, h, q_idx, kv_idx)` gets one score, query · key * scale, and its position as
    tensors of shape (), and returns the score to use. It may read other tensors, which get
    gradients. `block_mask` excludes keys; queries without any key give zeros. `scale` is
    1 / sqrt(E) by default. With `enable_gqa`, groups of query heads share a key and value head.
    With `return_aux` (or `return_lse`), a pair is returned: see `AuxOutput`. `kernel_options` have
    no effect, because they choose between kernels that compute the same. Raises ShapeError for
    sizes that do not fit, also those of `block_mask`. From Dong et al., "Flex Attention: a
    programming model for generating optimized attention kernels" (2024).

    >>> from metaop.nn.attention.flex_attention import create_block_mask, flex_attention
    >>> query, value = metaop.zeros(1, 1, 2, 4), metaop.tensor([[[[1.0], [3.0]]]])
    >>> causal = create_block_mask(lambda b, h, q_idx, kv_idx: q_idx >= kv_idx, 1, 1, 2, 2, "cpu")
    >>> flex_attention(query, query, value, block_mask=causal)
    tensor([[[[1.],
              [2.]]]])
    >>> slope = metaop.tensor([1.0])
    >>> distance = lambda score, b, h, q_idx, kv_idx: score - slope[h] * (q_idx - kv_idx).abs()
    >>> flex_attention(query, query, value, score_mod=distance)
    tensor([[[[1.5379],
              [2.4621]]]])
    """
    if return_lse and return_aux is not None:
        raise ArgumentError(
            "flex_attention: cannot specify both return_lse and return_aux",
            fix="pass return_aux=AuxRequest(lse=True) alone",
        )
    _check(query, key, value, block_mask, enable_gqa)
    casts = modes.casts
    if casts is not None:
        query, key, value = cast_operands((query, key, value), casts.device_type, casts.low)
    scale = 1.0 / math.sqrt(query.shape[-1]) if scale is None else float(scale)
    scores = wrap(record(operators.attention_scores, (query.call, key.call), (scale, enable_gqa)))
    shape, device = tuple(scores.shape), query.device
    allowed = None if block_mask is None else block_mask._allowed(shape, device)
    if score_mod is not None:
        scores = over_positions(score_mod, shape, device, scores)
    inputs = (scores.call, None if allowed is None else allowed.call, value.to(query.dtype).call)
    call = record(operators.attention_of_scores, inputs, (enable_gqa,))
    output = wrap(call)
    if return_lse:
        return output, wrap(part(call, 1))
    if return_aux is None:
        return output
    lse = wrap(part(call, 1)) if return_aux.lse else None
    largest = wrap(part(call, 2)).detach() if return_aux.max_scores else None
    return output, AuxOutput(lse, largest)


def _check(
    query: Tensor, key: Tensor, value: Tensor, block_mask: BlockMask | None, grouped: bool
) -> None:
    """Raises an error for operands that do not fit."""
    tensors = (query, key, value)
    shapes = " and ".join(str(list(x.shape)) for x in tensors)
    if any(x.ndim != 4 for x in tensors):
        raise UnsupportedError(
            f"flex_attention: query, key and value must be 4D tensors, got {shapes}",
            fix="query is (B, Hq, L, E), key (B, Hkv, S, E), value (B, Hkv, S, Ev)",
        )
    if any(x.dtype.kind != "float" for x in tensors):
        raise DTypeError(
            f"flex_attention: expected floats, got {', '.join(str(x.dtype) for x in tensors)}",
            fix="convert query, key and value to a float dtype",
        )
    _check_devices(query, key, value, block_mask)
    fixed = _misfit(query, key, value, block_mask, grouped)
    if fixed is not None:
        raise ShapeError(f"flex_attention: {fixed[0]}, got {shapes}", fix=fixed[1])


def _check_devices(query: Tensor, key: Tensor, value: Tensor, block_mask: BlockMask | None) -> None:
    devices = [x.device for x in (query, key, value)]
    if block_mask is not None:
        devices.append(block_mask._device)
    if len(set(devices)) > 1:
        names = ", ".join(map(str, devices))
        raise DeviceError(
            f"flex_attention: query, key, value and block_mask are on several devices: {names}",
            fix="move them with to(device)",
        )


def _misfit(
    query: Tensor, key: Tensor, value: Tensor, block_mask: BlockMask | None, grouped: bool
) -> tuple[str, str] | None:
    """What does not fit, and its fix."""
    heads, shared = query.shape[1], key.shape[1]
    if query.shape[3] != key.shape[3]:
        return "query and key must have one last dimension", "project them to one size"
    if key.shape[:3] != value.shape[:3]:
        return "key and value must agree but for the last dimension", "value is (B, Hkv, S, Ev)"
    if not grouped and heads != shared:
        return "query and key must have one number of heads", "pass enable_gqa=True to share heads"
    if grouped and (shared == 0 or heads % shared):
        return "the query heads must be a multiple of the key heads", "change the number of heads"
    if query.shape[0] == key.shape[0]:
        return None
    if key.shape[0] != 1 or block_mask is None or block_mask.shape[0] != query.shape[0]:
        return (
            "query and key must have one batch size",
            "expand key and value, or pass a block_mask of the batch size of the query",
        )
    return None
