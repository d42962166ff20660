"""Multi-head attention."""

from __future__ import annotations

from typing import Any

from metaop.errors import ArgumentError, ShapeError
from metaop.nn import functional as F
from metaop.nn import init
from metaop.nn.linear import NonDynamicallyQuantizableLinear
from metaop.nn.module import Module
from metaop.nn.parameter import Parameter
from metaop.tensor.core import Tensor
from metaop.tensor.functions.creation import empty

_WEIGHTS = ("q_proj_weight", "k_proj_weight", "v_proj_weight", "in_proj_weight")
_PROJECTIONS = (*_WEIGHTS, "in_proj_bias")


class MultiheadAttention(Module):
    """Multi-head attention with input and output projections (Vaswani et al. 2017).

    Query (L, N, E), key (S, N, kdim), value (S, N, vdim), or batch first, or without a batch.
    Returns the output, in the shape of the query, and the attention weights (N, L, S) unless
    `need_weights` is False.

    >>> x = metaop.randn(2, 5, 16)
    >>> output, weights = nn.MultiheadAttention(16, 4, batch_first=True)(x, x, x)
    >>> output.shape, weights.shape
    (metaop.Size([2, 5, 16]), metaop.Size([2, 5, 5]))
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if embed_dim <= 0 or num_heads <= 0:
            raise ArgumentError(
                "embed_dim and num_heads must be greater than 0, got "
                f"embed_dim={embed_dim} and num_heads={num_heads} instead"
            )
        if embed_dim % num_heads:
            raise ArgumentError(
                f"embed_dim {embed_dim} must be divisible by num_heads {num_heads}",
                fix="change one of them",
            )
        options = {"device": device, "dtype": dtype}
        self.embed_dim = embed_dim
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self._qkv_same_embed_dim = self.kdim == embed_dim and self.vdim == embed_dim
        self.num_heads = num_heads
        self.dropout = dropout
        self.batch_first = batch_first
        self.head_dim = embed_dim // num_heads
        shapes = self._projection_shapes(bias)
        for name in _PROJECTIONS:
            weight = Parameter(empty(shapes[name], **options)) if name in shapes else None
            self.register_parameter(name, weight)
        self.out_proj = NonDynamicallyQuantizableLinear(embed_dim, embed_dim, bias, **options)
        if add_bias_kv:
            self.bias_k = Parameter(empty((1, 1, embed_dim), **options))
            self.bias_v = Parameter(empty((1, 1, embed_dim), **options))
        else:
            self.register_parameter("bias_k", None)
            self.register_parameter("bias_v", None)
        self.add_zero_attn = add_zero_attn
        self._reset_parameters()

    def _projection_shapes(self, bias: bool) -> dict[str, tuple[int, ...]]:
        """The shapes of the projections that the layer has: one packed matrix, or three."""
        size = self.embed_dim
        shapes: dict[str, tuple[int, ...]] = {"in_proj_bias": (3 * size,)} if bias else {}
        if self._qkv_same_embed_dim:
            return {"in_proj_weight": (3 * size, size), **shapes}
        separate = {"q": size, "k": self.kdim, "v": self.vdim}
        return {**{f"{x}_proj_weight": (size, n) for x, n in separate.items()}, **shapes}

    def _reset_parameters(self) -> None:
        """Sets projections to Xavier-uniform samples, biases to 0."""
        for name in _WEIGHTS:
            weight = getattr(self, name)
            if weight is not None:
                init.xavier_uniform_(weight)
        if self.in_proj_bias is not None:
            init.constant_(self.in_proj_bias, 0.0)
            init.constant_(self.out_proj.bias, 0.0)
        for weight in (self.bias_k, self.bias_v):
            if weight is not None:
                init.xavier_normal_(weight)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        if is_causal and attn_mask is None:
            raise ArgumentError(
                "MultiheadAttention: need attn_mask if specifying the is_causal hint",
                fix="pass attn_mask too",
            )
        turned = self.batch_first and query.ndim == 3
        self._check_masks(query, key, attn_mask, key_padding_mask)
        if turned:
            # Keep identical inputs identical, so that a single projection serves all three.
            flipped = {id(x): x.transpose(0, 1) for x in (query, key, value)}
            query, key, value = (flipped[id(x)] for x in (query, key, value))
        output, weights = F.multi_head_attention_forward(
            query,
            key,
            value,
            self.embed_dim,
            self.num_heads,
            self.in_proj_weight,
            self.in_proj_bias,
            self.bias_k,
            self.bias_v,
            self.add_zero_attn,
            self.dropout,
            self.out_proj.weight,
            self.out_proj.bias,
            training=self.training,
            key_padding_mask=key_padding_mask,
            need_weights=need_weights,
            attn_mask=attn_mask,
            use_separate_proj_weight=not self._qkv_same_embed_dim,
            q_proj_weight=self.q_proj_weight,
            k_proj_weight=self.k_proj_weight,
            v_proj_weight=self.v_proj_weight,
            average_attn_weights=average_attn_weights,
        )
        return output.transpose(0, 1) if turned else output, weights

    def _check_masks(
        self, query: Tensor, key: Tensor, attention: Tensor | None, padding: Tensor | None
    ) -> None:
        time = 1 if self.batch_first and query.ndim == 3 else 0
        length, reach = query.shape[time], key.shape[time]
        batch = () if query.ndim == 2 else (query.shape[1 - time],)
        if padding is not None and tuple(padding.shape) != (*batch, reach):
            raise ShapeError(
                f"expected key_padding_mask of shape {[*batch, reach]}, but got "
                f"{list(padding.shape)}",
                fix="one truth value per key",
            )
        if attention is None:
            return
        wanted: tuple[int, ...] = (length, reach)
        if attention.ndim == 3:
            wanted = ((batch or (1,))[0] * self.num_heads, length, reach)
        if tuple(attention.shape) != wanted:
            raise ShapeError(
                f"The shape of the attn_mask is {list(attention.shape)}, but should be "
                f"{list(wanted)}.",
                fix="one value per query and key, optionally for every batch and head",
            )
