"""Scaled dot-product attention."""

from __future__ import annotations

from metaop.errors import ArgumentError
from metaop.nn.functional.arguments import optional
from metaop.operators import attention as operators
from metaop.tensor.core import Tensor, wrap
from metaop.tensor.generator import seed_call
from metaop.unified_graph.recording import record


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """The mean of `value` weighted by softmax(query key^T * scale + mask).

    The shapes are (…, L, E), (…, S, E) and (…, S, V); the result is (…, L, V). A boolean
    `attn_mask` is true where attention is allowed; a float one is added to the scores. `scale` is
    1 / sqrt(E) by default. With `enable_gqa`, groups of query heads (dimension -3) share a key and
    value head. From Vaswani et al., "Attention is all you need" (2017).

    >>> query, value = metaop.zeros(1, 2, 4), metaop.tensor([[[1.0], [3.0]]])
    >>> F.scaled_dot_product_attention(query, query, value, is_causal=True)
    tensor([[[1.],
             [2.]]])
    """
    if attn_mask is not None and is_causal:
        raise ArgumentError(
            "scaled_dot_product_attention: attn_mask should not be set when is_causal=True",
            fix="combine the masks yourself",
        )
    if not 0.0 <= dropout_p <= 1.0:
        raise ArgumentError(
            f"scaled_dot_product_attention: dropout_p has to be between 0 and 1, got {dropout_p}",
            fix="it is the fraction that is dropped",
        )
    first = query.call
    seed = seed_call(None, first.type.device) if dropout_p > 0.0 else None
    calls = (first, key.call, value.call, optional(attn_mask), seed)
    attributes = (float(dropout_p), is_causal, scale, enable_gqa)
    return wrap(record(operators.attention, calls, attributes))
