"""Attention and the transformer against PyTorch's."""

from __future__ import annotations

import pytest

import metaop
from tests.nn.parity import draw, pair, same_behaviour, same_text

torch = pytest.importorskip("torch")


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"bias": False, "batch_first": True},
        {"kdim": 6, "vdim": 5},
        {"add_bias_kv": True, "add_zero_attn": True},
    ],
    ids=str,
)
@pytest.mark.parametrize("need_weights", [True, False])
def test_attention(options, need_weights):
    ours, theirs = pair("MultiheadAttention", 8, 2, **options)
    same_text(ours, theirs)
    kdim, vdim = options.get("kdim", 8), options.get("vdim", 8)
    first, last = (3, 5) if options.get("batch_first") else (5, 3)
    inputs = (draw(4 if first == 5 else 3, 3 if first == 5 else 4, 8), draw(first, last, kdim))
    same_behaviour(ours, theirs, (*inputs, draw(first, last, vdim)), need_weights=need_weights)


def test_self_attention_with_masks():
    ours, theirs = pair("MultiheadAttention", 8, 2)
    padding = torch.tensor([[False] * 5, [False, False, False, True, True], [False] * 4 + [True]])
    for mask in (
        torch.triu(torch.ones(5, 5), 1).bool(),
        torch.nn.Transformer.generate_square_subsequent_mask(5),
        torch.randn(6, 5, 5),
    ):
        options = {"attn_mask": mask}
        if mask.dtype == torch.bool:
            options["key_padding_mask"] = padding
        ours.zero_grad()
        theirs.zero_grad()
        inputs = (draw(5, 3, 8), draw(5, 3, 8, seed=7), draw(5, 3, 8, seed=8))
        same_behaviour(ours, theirs, inputs, average_attn_weights=False, **options)


def test_attention_without_batch():
    ours, theirs = pair("MultiheadAttention", 8, 4)
    same_behaviour(ours, theirs, (draw(4, 8), draw(5, 8), draw(5, 8, seed=3)))


@pytest.mark.parametrize("options", [{}, {"norm_first": True, "batch_first": True, "bias": False}])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_layers(options, activation):
    settings = {"dim_feedforward": 16, "dropout": 0.0, "activation": activation, **options}
    encoder, torch_encoder = pair("TransformerEncoderLayer", 8, 2, **settings)
    same_text(encoder, torch_encoder)
    same_behaviour(encoder, torch_encoder, (draw(4, 3, 8),))
    decoder, torch_decoder = pair("TransformerDecoderLayer", 8, 2, **settings)
    same_text(decoder, torch_decoder)
    tgt, memory = ((3, 4, 8), (3, 5, 8)) if options else ((4, 3, 8), (5, 3, 8))
    same_behaviour(decoder, torch_decoder, (draw(*tgt), draw(*memory)))


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_transformer():
    settings = {"dim_feedforward": 16, "dropout": 0.0, "num_encoder_layers": 2}
    ours, theirs = pair("Transformer", 8, 2, num_decoder_layers=1, **settings)
    mask = torch.nn.Transformer.generate_square_subsequent_mask(4)
    same_behaviour(ours, theirs, (draw(5, 3, 8), draw(4, 3, 8)), tgt_mask=mask, tolerance=1e-4)


def test_causal_mask():
    from metaop import nn

    ours = nn.Transformer.generate_square_subsequent_mask(3)
    assert ours.tolist() == torch.nn.Transformer.generate_square_subsequent_mask(3).tolist()


def test_wrong_arguments():
    from metaop import nn

    with pytest.raises(ValueError, match="divisible"):
        nn.MultiheadAttention(8, 3)
    layer = nn.MultiheadAttention(8, 2)
    x = metaop.ones(4, 3, 8)
    with pytest.raises(RuntimeError, match="attn_mask"):
        layer(x, x, x, attn_mask=metaop.ones(2, 2))
    with pytest.raises(RuntimeError, match="key_padding_mask"):
        layer(x, x, x, key_padding_mask=metaop.ones(2, 2).bool())
