"""Multi-head attention, the function behind nn.MultiheadAttention."""

from __future__ import annotations

from typing import Any

from metaop.errors import ArgumentError, ShapeError
from metaop.nn.functional.arguments import optional
from metaop.nn.functional.linear import linear
from metaop.nn.functional.vision import pad
from metaop.operators import attention as operators
from metaop.tensor.core import Tensor, wrap
from metaop.tensor.functions.creation import zeros
from metaop.tensor.functions.joining import cat
from metaop.tensor.generator import seed_call
from metaop.unified_graph.dtype import DType
from metaop.unified_graph.recording import record, results


def multi_head_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Multi-head attention of `query` (L, N, E) or (L, E) over `key` and `value` (S, N, E).

    Boolean masks exclude where they are true. Returns the result (L, N, E), and with `need_weights`
    the weights: (N, L, S) averaged over the heads, or (N, heads, L, S). `nn.MultiheadAttention`
    calls it with its parameters. From Vaswani et al., "Attention is all you need" (2017).

    >>> x, eye = metaop.ones(2, 1, 4), metaop.eye(4)
    >>> absent = (None, None, False, 0.0)
    >>> result, weights = F.multi_head_attention_forward(
    ...     x, x, x, 4, 2, metaop.cat([eye] * 3), None, *absent, eye, None
    ... )
    >>> weights
    tensor([[[0.5000, 0.5000],
             [0.5000, 0.5000]]])
    """
    batched = query.ndim == 3
    if not batched:
        query, key, value = (x.unsqueeze(1) for x in (query, key, value))  # type: ignore
        if key_padding_mask is not None:
            key_padding_mask = key_padding_mask.unsqueeze(0)  # type: ignore[attr-defined]
    _check_sizes(query, key, value, embed_dim_to_check, num_heads, is_causal, attn_mask)
    separate = (q_proj_weight, k_proj_weight, v_proj_weight)
    packed = None if use_separate_proj_weight else in_proj_weight
    q, k, v = _projected((query, key, value), packed, separate, in_proj_bias)
    biases = None if bias_k is None or bias_v is None else (bias_k, bias_v)
    parts = (static_k, static_v)
    q, k, v = _all_heads(q, k, v, biases, parts, add_zero_attn, num_heads)
    extra = int(biases is not None) + int(add_zero_attn)
    mask = _merged_mask(attn_mask, key_padding_mask, q.dtype, extra, num_heads)
    probability = float(dropout_p) if training else 0.0
    mixed, weights = _attend(q, k, v, mask, probability, need_weights)
    length, batch, size = query.shape
    joined = mixed.transpose(0, 1).reshape(length, batch, size)  # type: ignore[attr-defined]
    output = linear(joined, out_proj_weight, out_proj_bias)
    if weights is not None:
        weights = weights.reshape(batch, num_heads, length, k.shape[1])  # type: ignore
        weights = weights.mean(1) if average_attn_weights else weights
    if not batched:
        output = output.squeeze(1)  # type: ignore[attr-defined]
        weights = None if weights is None else weights.squeeze(0)
    return output, weights


def _all_heads(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    biases: tuple[Tensor, Tensor] | None,
    static: tuple[Tensor | None, Tensor | None],
    add_zeros: bool,
    heads: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Query, keys and values as (N * heads, length, E / heads), keys with the added positions."""
    _, batch, size = q.shape
    if biases is not None:
        # Type checkers do not see how methods are bound to tensors.
        spread: Any = biases
        k, v = (cat([x, bias.expand(1, batch, size)]) for x, bias in zip((k, v), spread))
    q = _heads(q, heads)
    k, v = (_heads(x, heads) if fixed is None else fixed for x, fixed in zip((k, v), static))
    if add_zeros:
        nothing = zeros(batch * heads, 1, size // heads, dtype=q.dtype, device=q.device)
        k, v = cat([k, nothing], 1), cat([v, nothing], 1)
    return q, k, v


def _attend(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, probability: float, need_weights: bool
) -> tuple[Tensor, Tensor | None]:
    """The weighted values of every head, and the weights if they are needed."""
    seed = seed_call(None, q.device) if probability > 0 else None
    calls = (q.call, k.call, v.call, optional(mask), seed)
    if not need_weights:
        attributes = (probability, False, None, False)
        return wrap(record(operators.attention, calls, attributes)), None
    call = record(operators.attention_with_weights, calls, (probability,))
    mixed, weights = results(call)
    return wrap(mixed), wrap(weights)


def _check_sizes(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    expected: int,
    heads: int,
    causal: bool,
    mask: Tensor | None,
) -> None:
    if query.ndim != 3 or key.ndim != 3 or value.ndim != 3 or key.shape[:2] != value.shape[:2]:
        raise ShapeError(
            f"multi_head_attention: query {list(query.shape)}, key {list(key.shape)} and value "
            f"{list(value.shape)} do not fit",
            fix="they are (L, N, E), (S, N, E) and (S, N, E), or all without N",
        )
    size = query.shape[2]
    if size != expected or size % heads:
        raise ShapeError(
            f"multi_head_attention: query {list(query.shape)} should have an embedding dimension "
            f"of {expected}, divisible by num_heads={heads}",
            fix="choose embed_dim as a multiple of num_heads",
        )
    if causal and mask is None:
        raise ArgumentError(
            "multi_head_attention: need attn_mask if specifying the is_causal hint",
            fix="pass attn_mask=nn.Transformer.generate_square_subsequent_mask(L)",
        )


def _projected(
    sources: tuple[Tensor, Tensor, Tensor],
    packed: Tensor | None,
    separate: tuple[Tensor | None, ...],
    bias: Tensor | None,
) -> list[Tensor]:
    """Query, key and value through their input projections."""
    biases = (None, None, None) if bias is None else bias.chunk(3)  # type: ignore[attr-defined]
    if packed is None:
        return [linear(x, w, b) for x, w, b in zip(sources, separate, biases)]  # type: ignore
    query, key, value = sources
    if query is key and key is value:
        # Self-attention: one contraction for all three.
        return list(linear(query, packed, bias).chunk(3, -1))  # type: ignore[attr-defined]
    weights = packed.chunk(3)  # type: ignore[attr-defined]
    return [linear(x, w, b) for x, w, b in zip(sources, weights, biases)]


def _heads(node: Tensor, heads: int) -> Tensor:
    """(L, N, E) -> (N * heads, L, E / heads)."""
    length, batch, size = node.shape
    parts = node.reshape(length, batch * heads, size // heads)  # type: ignore[attr-defined]
    return parts.transpose(0, 1)


def _merged_mask(
    mask: Tensor | None, padding: Tensor | None, dtype: DType, extra: int, heads: int
) -> Tensor | None:
    """Combines both masks into one to add to the scores (N * heads or 1, L or 1, S + extra)."""
    if mask is not None:
        mask = _additive(mask, dtype, extra)
        mask = mask if mask.ndim == 3 else mask.unsqueeze(0)  # type: ignore[attr-defined]
    if padding is None:
        return mask
    padding = _additive(padding, dtype, extra)
    batch, length = padding.shape
    spread = padding.reshape(batch, 1, 1, length).expand(batch, heads, 1, length)  # type: ignore
    padding = spread.reshape(batch * heads, 1, length)
    return padding if mask is None else mask + padding  # type: ignore[operator]


def _additive(mask: Tensor, dtype: DType, extra: int) -> Tensor:
    if mask.dtype.kind == "bool":
        mask = wrap(record(operators.additive_mask, (mask.call,), (dtype,)))
    return pad(mask, (0, extra)) if extra else mask
