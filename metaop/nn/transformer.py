"""The transformer of Vaswani et al. (2017): encoder, decoder and their layers."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from metaop.errors import ArgumentError, ShapeError
from metaop.nn import functional as F
from metaop.nn import init
from metaop.nn.attention import MultiheadAttention
from metaop.nn.containers import ModuleList
from metaop.nn.dropout import Dropout
from metaop.nn.linear import Linear
from metaop.nn.module import Module
from metaop.nn.sample_normalisation import LayerNorm
from metaop.tensor.core import Tensor
from metaop.tensor.functions.creation import full
from metaop.tensor.promotion import defaults

Activation = Callable[[Tensor], Tensor]


def _activation(name: str | Activation) -> Activation:
    if callable(name):
        return name
    if name not in ("relu", "gelu"):
        raise ArgumentError(f"activation should be relu/gelu, not {name}", fix="pass a function")
    return getattr(F, name)


def _copies(module: Module, count: int) -> ModuleList:
    return ModuleList([copy.deepcopy(module) for _ in range(count)])


class _Layer(Module):
    """Self-attention and a feed-forward block, each with normalisation and a residual."""

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int,
        dropout: float,
        activation: str | Activation,
        layer_norm_eps: float,
        batch_first: bool,
        norm_first: bool,
        bias: bool,
        device: Any,
        dtype: Any,
        crosses: bool,
    ) -> None:
        super().__init__()
        options = {"device": device, "dtype": dtype}

        def attention() -> MultiheadAttention:
            return MultiheadAttention(
                d_model, nhead, dropout, bias, batch_first=batch_first, **options
            )

        self.self_attn = attention()
        if crosses:
            self.multihead_attn = attention()
        self.linear1 = Linear(d_model, dim_feedforward, bias, **options)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias, **options)
        self.norm_first = norm_first
        blocks = (1, 2, 3) if crosses else (1, 2)
        for k in blocks:
            norm = LayerNorm(d_model, layer_norm_eps, bias=bias, **options)
            self.add_module(f"norm{k}", norm)
        for k in blocks:
            self.add_module(f"dropout{k}", Dropout(dropout))
        self.activation = _activation(activation)

    def _around(self, x: Tensor, norm: Module, block: Callable[[Tensor], Tensor]) -> Tensor:
        """A block with its residual connection, and normalisation before or after it."""
        return x + block(norm(x)) if self.norm_first else norm(x + block(x))

    def _sa_block(
        self, x: Tensor, mask: Tensor | None, padding: Tensor | None, is_causal: bool = False
    ) -> Tensor:
        attended = self.self_attn(
            x, x, x, attn_mask=mask, key_padding_mask=padding, need_weights=False,
            is_causal=is_causal,
        )  # fmt: skip
        return self.dropout1(attended[0])

    def _ff_block(self, x: Tensor) -> Tensor:
        return self.linear2(self.dropout(self.activation(self.linear1(x))))


class TransformerEncoderLayer(_Layer):
    """Self-attention, then feed-forward.

    The input is (L, N, d_model), or (N, L, d_model) with `batch_first`, and so is the result.

    >>> nn.TransformerEncoderLayer(16, 4, batch_first=True)(metaop.randn(2, 5, 16)).shape
    metaop.Size([2, 5, 16])
    """

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Activation = F.relu,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(
            d_model,
            nhead,
            dim_feedforward,
            dropout,
            activation,
            layer_norm_eps,
            batch_first,
            norm_first,
            bias,
            device,
            dtype,
            crosses=False,
        )

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        x = self._around(
            src, self.norm1, lambda x: self._sa_block(x, src_mask, src_key_padding_mask, is_causal)
        )
        return self._around(x, self.norm2, lambda x: self.dropout2(self._ff_block(x)))


class TransformerDecoderLayer(_Layer):
    """Self-attention, attention to the encoder's output, then feed-forward.

    The target is (T, N, d_model), the encoder's output (S, N, d_model), or both batch first.

    >>> nn.TransformerDecoderLayer(8, 2)(metaop.randn(5, 2, 8), metaop.randn(6, 2, 8)).shape
    metaop.Size([5, 2, 8])
    """

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Activation = F.relu,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(
            d_model,
            nhead,
            dim_feedforward,
            dropout,
            activation,
            layer_norm_eps,
            batch_first,
            norm_first,
            bias,
            device,
            dtype,
            crosses=True,
        )

    def _mha_block(
        self,
        x: Tensor,
        memory: Tensor,
        mask: Tensor | None,
        padding: Tensor | None,
        is_causal: bool = False,
    ) -> Tensor:
        attended = self.multihead_attn(
            x, memory, memory, attn_mask=mask, key_padding_mask=padding, need_weights=False,
            is_causal=is_causal,
        )  # fmt: skip
        return self.dropout2(attended[0])

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        x = self._around(
            tgt,
            self.norm1,
            lambda x: self._sa_block(x, tgt_mask, tgt_key_padding_mask, tgt_is_causal),
        )
        x = self._around(
            x,
            self.norm2,
            lambda x: self._mha_block(
                x, memory, memory_mask, memory_key_padding_mask, memory_is_causal
            ),
        )
        return self._around(x, self.norm3, lambda x: self.dropout3(self._ff_block(x)))


class TransformerEncoder(Module):
    """`num_layers` copies of a layer one after the other, and an optional normalisation.

    Inputs and results are those of the layer: (L, N, d_model), or batch first.

    >>> nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2), 2)(metaop.randn(5, 2, 8)).shape
    metaop.Size([5, 2, 8])
    """

    def __init__(
        self,
        encoder_layer: TransformerEncoderLayer,
        num_layers: int,
        norm: Module | None = None,
        enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ) -> None:
        super().__init__()
        self.layers = _copies(encoder_layer, num_layers)
        self.num_layers = num_layers
        self.norm = norm
        self.enable_nested_tensor = enable_nested_tensor
        self.mask_check = mask_check

    def forward(
        self,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool | None = None,
    ) -> Tensor:
        for layer in self.layers:
            src = layer(
                src,
                src_mask=mask,
                src_key_padding_mask=src_key_padding_mask,
                is_causal=bool(is_causal),
            )
        return src if self.norm is None else self.norm(src)


class TransformerDecoder(Module):
    """`num_layers` copies of a layer one after the other, and an optional normalisation.

    Inputs and results are those of the layer: targets (T, N, d_model), memory (S, N, d_model), or
    batch first.

    >>> decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 16), 2)
    >>> decoder(metaop.randn(3, 2, 8), metaop.randn(5, 2, 8)).shape
    metaop.Size([3, 2, 8])
    """

    def __init__(
        self, decoder_layer: TransformerDecoderLayer, num_layers: int, norm: Module | None = None
    ) -> None:
        super().__init__()
        self.layers = _copies(decoder_layer, num_layers)
        self.num_layers = num_layers
        self.norm = norm

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        for layer in self.layers:
            tgt = layer(
                tgt,
                memory,
                tgt_mask=tgt_mask,
                memory_mask=memory_mask,
                tgt_key_padding_mask=tgt_key_padding_mask,
                memory_key_padding_mask=memory_key_padding_mask,
                tgt_is_causal=bool(tgt_is_causal),
                memory_is_causal=memory_is_causal,
            )
        return tgt if self.norm is None else self.norm(tgt)


class Transformer(Module):
    """Encoder and decoder: src (S, N, d_model), tgt (T, N, d_model) -> (T, N, d_model).

    With `batch_first`, N comes first. Raises ShapeError unless both have `d_model` features and
    the same N.

    >>> model = nn.Transformer(8, 2, 1, 1, 16)
    >>> model(metaop.randn(5, 2, 8), metaop.randn(3, 2, 8)).shape
    metaop.Size([3, 2, 8])
    """

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Activation = F.relu,
        custom_encoder: Any = None,
        custom_decoder: Any = None,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        options = {"device": device, "dtype": dtype}
        settings = (
            d_model,
            nhead,
            dim_feedforward,
            dropout,
            activation,
            layer_norm_eps,
            batch_first,
            norm_first,
            bias,
        )
        norm = {"eps": layer_norm_eps, "bias": bias, **options}
        self.encoder = custom_encoder or TransformerEncoder(
            TransformerEncoderLayer(*settings, **options),
            num_encoder_layers,
            LayerNorm(d_model, **norm),
        )
        self.decoder = custom_decoder or TransformerDecoder(
            TransformerDecoderLayer(*settings, **options),
            num_decoder_layers,
            LayerNorm(d_model, **norm),
        )
        self._reset_parameters()
        self.d_model = d_model
        self.nhead = nhead
        self.batch_first = batch_first

    def _reset_parameters(self) -> None:
        """Draws all matrices from the Xavier-uniform distribution."""
        for parameter in self.parameters():
            if parameter.ndim > 1:
                init.xavier_uniform_(parameter)

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        batch = 0 if self.batch_first else 1
        if src.ndim == 3 and src.shape[batch] != tgt.shape[batch]:
            raise ShapeError(
                f"the batch number of src and tgt must be equal, not {src.shape[batch]} and "
                f"{tgt.shape[batch]}"
            )
        if src.shape[-1] != self.d_model or tgt.shape[-1] != self.d_model:
            raise ShapeError(
                "the feature number of src and tgt must be equal to d_model "
                f"({self.d_model}), not {src.shape[-1]} and {tgt.shape[-1]}"
            )
        memory = self.encoder(
            src,
            mask=src_mask,
            src_key_padding_mask=src_key_padding_mask,
            is_causal=src_is_causal,
        )
        return self.decoder(
            tgt,
            memory,
            tgt_mask=tgt_mask,
            memory_mask=memory_mask,
            tgt_key_padding_mask=tgt_key_padding_mask,
            memory_key_padding_mask=memory_key_padding_mask,
            tgt_is_causal=tgt_is_causal,
            memory_is_causal=memory_is_causal,
        )

    @staticmethod
    def generate_square_subsequent_mask(sz: int, device: Any = None, dtype: Any = None) -> Tensor:
        """A causal mask: -inf above the diagonal, so that positions attend only backwards."""
        dtype = dtype or defaults.dtype
        return full((sz, sz), float("-inf"), device=device, dtype=dtype).triu(1)
