"""What a random training program is made of, as text with holes.

Holes are filled from the shape of the value that comes in (`{c}`: the second extent, `{f}`: the
last, `{rest}`: all but the batch, `{spatial}`: all behind the second) and from the options. Texts
of modules construct one; all others are expressions of `x`. `T` is torch or metaop, `F` their
functional part.
"""

from __future__ import annotations

from typing import Any

from tests.fuzz.training.functions import ACTIVATIONS, OTHERS, YES_NO, Entry

# With 64 channels products are packed, and the taps of windows become cases of their own.
_OUT = (1, 2, 3, 4, 6, 8, 16, 64)
_WINDOW = "{kernel}, stride={stride}, padding={padding}"
_CONVOLUTION = (
    "({c}, {out}, " + _WINDOW + ", dilation={dilation}, groups={groups}, bias={bias}, "
    "padding_mode={mode!r})"
)
_TRANSPOSED = (
    "({c}, {out}, " + _WINDOW + ", output_padding={extra}, groups={groups}, bias={bias}, "
    "dilation={dilation})"
)


def _convolution(*pairs: tuple[int, ...]) -> dict[str, tuple[Any, ...]]:
    """Options of convolutions; kernels may be wider than the picture."""
    return {
        "out": _OUT,
        "kernel": (1, 2, 3, 3, 3, 5, 7, *pairs),
        "stride": (1, 1, 1, 2, 3),
        "padding": (0, 1, 1, 2, 3),
        "dilation": (1, 1, 1, 2),
        "groups": (1, 1, 1, 2, 3, 4),
        "bias": YES_NO,
        "mode": ("zeros", "zeros", "zeros", "zeros", "circular", "reflect", "replicate"),
        "extra": (0, 0, 1),
    }


_POOL = {"kernel": (1, 2, 2, 3), "stride": (1, 2, 3), "padding": (0, 0, 1), "ceil": YES_NO}
_MAX_POOL = "(" + _WINDOW + ", ceil_mode={ceil})"
_MEAN_POOL = "(" + _WINDOW + ", ceil_mode={ceil}, count_include_pad={pad})"
_MEAN = {**_POOL, "pad": YES_NO}
_RECURRENT = {"hidden": (1, 2, 3, 5, 8), "layers": (1, 1, 2), "both": YES_NO, "bias": YES_NO}
_RECURRENT_TEXT = "({f}, {hidden}, {layers}, bidirectional={both}, bias={bias}, batch_first=True)"
_CELL = {"hidden": (1, 3, 4), "bias": YES_NO}
_HEADS = {"heads": (1, 2, 3, 4), "bias": YES_NO}
_CALL = "{m}(x)"

MODULES: dict[str, Entry] = {
    "Linear": Entry("({f}, {out}, bias={bias})", options={"out": _OUT, "bias": YES_NO}, use=_CALL),
    # A weight that is used apart from its module.
    "Weight": Entry(
        "T.nn.Linear({f}, {out}, bias=False)", options={"out": _OUT}, use="x @ {m}.weight.t()"
    ),
    "WeightTwice": Entry(
        "T.nn.Linear({f}, {out}, bias=False)",
        options={"out": _OUT},
        use="(x @ {m}.weight.t()) @ {m}.weight",
    ),
    "Conv1d": Entry(_CONVOLUTION, (3,), _convolution(), _CALL),
    "Conv2d": Entry(_CONVOLUTION, (4,), _convolution((1, 3), (3, 1), (3, 5)), _CALL),
    "Conv3d": Entry(_CONVOLUTION, (5,), _convolution((1, 3, 3)), _CALL),
    "ConvTranspose1d": Entry(_TRANSPOSED, (3,), _convolution(), _CALL),
    "ConvTranspose2d": Entry(_TRANSPOSED, (4,), _convolution((1, 3), (3, 2)), _CALL),
    "BatchNorm1d": Entry("({c}, affine={affine}, momentum={momentum})", (2, 3), {
        "affine": YES_NO, "momentum": (0.1, 0.5, None)}, _CALL),
    "BatchNorm2d": Entry("({c}, affine={affine}, momentum={momentum})", (4,), {
        "affine": YES_NO, "momentum": (0.1, 0.5, None)}, _CALL),
    "InstanceNorm2d": Entry("({c}, affine={affine})", (4,), {"affine": YES_NO}, _CALL),
    "GroupNorm": Entry("({groups}, {c})", (2, 3, 4), {"groups": (1, 2, 3, 4)}, _CALL),
    "LayerNorm": Entry(
        "({f}, elementwise_affine={affine})", options={"affine": YES_NO}, use=_CALL
    ),
    "LayerNormAll": Entry("T.nn.LayerNorm({rest})", use=_CALL),
    "RMSNorm": Entry("({f})", use=_CALL),
    "LocalResponseNorm": Entry("({size})", (3, 4), {"size": (2, 3)}, _CALL),
    "PReLU": Entry("({n})", (2, 3, 4), {"n": (1,)}, _CALL),
    "MaxPool1d": Entry(_MAX_POOL, (3,), _POOL, _CALL),
    "MaxPool2d": Entry(_MAX_POOL, (4,), _POOL, _CALL),
    "MaxPool3d": Entry(_MAX_POOL, (5,), _POOL, _CALL),
    "AvgPool1d": Entry(_MEAN_POOL, (3,), _MEAN, _CALL),
    "AvgPool2d": Entry(_MEAN_POOL, (4,), _MEAN, _CALL),
    "LPPool2d": Entry("(2, {kernel})", (4,), {"kernel": (1, 2)}, _CALL),
    "AdaptiveAvgPool1d": Entry("({size})", (3,), {"size": (1, 2, 3)}, _CALL),
    "AdaptiveAvgPool2d": Entry("({size})", (4,), {"size": (1, 2, 3, (1, 2))}, _CALL),
    "AdaptiveMaxPool2d": Entry("({size})", (4,), {"size": (1, 2, 3)}, _CALL),
    "Upsample": Entry("(scale_factor={factor}, mode={mode!r})", (4,), {
        "factor": (2, 3), "mode": ("nearest", "bilinear")}, _CALL),
    "ZeroPad2d": Entry("({width})", (4,), {"width": (1, 2, (0, 1, 2, 0))}, _CALL),
    "ReflectionPad2d": Entry("({width})", (4,), {"width": (1, (1, 0, 0, 1))}, _CALL),
    "PixelShuffle": Entry("(2)", (4,), use=_CALL),
    "Flatten": Entry("()", use=_CALL),
    "Dropout": Entry("(0.0)", use=_CALL),
    "ReLU": Entry("(inplace={inplace})", options={"inplace": YES_NO}, use=_CALL),
    "LSTM": Entry(_RECURRENT_TEXT, (3,), _RECURRENT, "{m}(x)[0]"),
    "LSTMState": Entry(
        "T.nn.LSTM({f}, {hidden}, batch_first=True)", (3,), {"hidden": (1, 2, 5)}, "{m}(x)[1][0][0]"
    ),
    "GRU": Entry(_RECURRENT_TEXT, (3,), _RECURRENT, "{m}(x)[0]"),
    "RNN": Entry(_RECURRENT_TEXT, (3,), _RECURRENT, "{m}(x)[0]"),
    "MultiheadAttention": Entry(
        "({f}, {heads}, bias={bias}, batch_first=True)", (3,), _HEADS, "{m}(x, x, x)[0]"
    ),
    "TransformerEncoderLayer": Entry(
        "({f}, {heads}, 6, 0.0, batch_first=True, norm_first={first})",
        (3,),
        {"heads": (1, 2), "first": YES_NO},
        _CALL,
    ),
    "LSTMProjected": Entry(
        "T.nn.LSTM({f}, {hidden}, proj_size=2, batch_first=True)",
        (3,),
        {"hidden": (3, 5)},
        "{m}(x)[0]",
    ),
    "RNNOfRelu": Entry(
        "T.nn.RNN({f}, {hidden}, nonlinearity='relu', batch_first=True)",
        (3,),
        {"hidden": (1, 3)},
        "{m}(x, x[:, 0].mean() * T.ones(1, x.shape[0], {m}.hidden_size, dtype=x.dtype))[0]",
    ),
    "LSTMCell": Entry("({f}, {hidden}, {bias})", (2,), _CELL, "T.cat({m}(x), 1)"),
    "GRUCell": Entry("({f}, {hidden}, {bias})", (2,), _CELL, "{m}(x, {m}(x))"),
    "RNNCell": Entry("({f}, {hidden}, {bias})", (2,), _CELL, "{m}(x, {m}(x))"),
    "Steps": Entry(
        "Steps(T.nn.{cell}({f}, {hidden}))",
        (3,),
        {"cell": ("LSTMCell", "GRUCell", "RNNCell"), "hidden": (1, 3)},
        _CALL,
    ),
    "MaskedMultiheadAttention": Entry(
        "T.nn.MultiheadAttention({f}, {heads}, batch_first=True)",
        (3,),
        {"heads": (1, 2), "out": (0, 1), "weights": YES_NO},
        "{m}(x, x, x.tanh(), attn_mask=~mask(x), need_weights={weights})[0]",
    ),
    "AttentionWeights": Entry(
        "T.nn.MultiheadAttention({f}, {heads}, batch_first=True)",
        (3,),
        {"heads": (1, 2)},
        "{m}(x, x.flip(1), x, average_attn_weights=False)[1].flatten(1)",
    ),
    "PaddedAttention": Entry(
        "T.nn.MultiheadAttention({f}, 1, add_bias_kv={extra}, add_zero_attn=True, "
        "batch_first=True)",
        (3,),
        {"extra": YES_NO},
        "{m}(x, x, x, key_padding_mask=T.arange(x.shape[1]).expand(x.shape[:2]) > 1)[0]",
    ),
    "TransformerDecoderLayer": Entry(
        "({f}, {heads}, 6, 0.0, batch_first=True, norm_first={first})",
        (3,),
        {"heads": (1, 2), "first": YES_NO},
        "{m}(x, x.tanh(), tgt_mask=~mask(x))",
    ),
    "TransformerEncoder": Entry(
        "T.nn.TransformerEncoder(T.nn.TransformerEncoderLayer({f}, 1, 5, 0.0, {activation!r}, "
        "batch_first=True), 2, enable_nested_tensor=False)",
        (3,),
        {"activation": ("relu", "gelu")},
        "{m}(x, is_causal=False, mask=~mask(x))",
    ),
    "Bilinear": Entry("({f}, {f}, {out})", options={"out": (1, 3)}, use="{m}(x, x.tanh())"),
    "Embedding": Entry(
        "(3, {out}, padding_idx={padding})",
        options={"out": (1, 4), "padding": (None, 0, 2)},
        use="x.unsqueeze(-1) * {m}((x > 0).long() + (x > 1).long())",
    ),
    "EmbeddingShared": Entry(
        "T.nn.Embedding(4, {f}, max_norm={most})",
        options={"most": (None, 1.0)},
        use="x @ {m}((x.detach()[..., 0] > 0).long()).flatten(0, -2).mT @ {m}.weight[:1].expand("
        "x.shape[:-1].numel(), -1)",
    ),
    "EmbeddingBag": Entry(
        "(2, {out}, mode={mode!r})",
        options={"out": (1, 4), "mode": ("sum", "mean", "max")},
        use="x.flatten(1)[:, :1] * {m}((x > 0).long().flatten(1))",
    ),
    "EmbeddingBagOfOffsets": Entry(
        "T.nn.EmbeddingBag(2, {out}, mode={mode!r}, include_last_offset=True)",
        options={"out": (1, 4), "mode": ("sum", "mean")},
        use="x.flatten(1)[:, :1] * {m}((x > 0).long().flatten(), "
        "T.arange(x.shape[0] + 1) * x[0].numel())",
    ),
    "EmbeddingBagWeighted": Entry(
        "T.nn.EmbeddingBag(2, {out}, mode='sum')",
        options={"out": (1, 4)},
        use="{m}((x > 0).long().flatten(1), per_sample_weights=x.flatten(1) * 0.5)",
    ),
    # One module used several times.
    "Repeated": Entry(
        "Repeated(T.nn.Linear({f}, {f}), {times})", options={"times": (2, 3)}, use=_CALL
    ),
    "RepeatedConv2d": Entry(
        "Repeated(T.nn.Conv2d({c}, {c}, {kernel}, padding='same'), 2)",
        (4,),
        {"kernel": (1, 2, 3)},
        _CALL,
    ),
    "RepeatedNorm": Entry("Repeated(T.nn.BatchNorm1d({c}), 2)", (2, 3), use=_CALL),
    "RepeatedLSTM": Entry(
        "T.nn.LSTM({f}, {f}, batch_first=True)", (3,), use="{m}(*{m}(x.flip(1)))[0]"
    ),
    "Checkpointed": Entry(
        "T.nn.Sequential(T.nn.Linear({f}, {out}), T.nn.{kind}(), T.nn.Linear({out}, 3))",
        options={"out": (1, 4), "kind": ("Tanh", "Softplus", "GELU")},
        use="T.utils.checkpoint.checkpoint({m}, x, use_reentrant=False)",
    ),
    "CheckpointedConv2d": Entry(
        "T.nn.Sequential(T.nn.Conv2d({c}, {out}, 3, padding=1), T.nn.BatchNorm2d({out}))",
        (4,),
        {"out": (1, 4)},
        "T.utils.checkpoint.checkpoint({m}, x, use_reentrant=False)",
    ),
    "CheckpointedSequence": Entry(
        "T.nn.Sequential(T.nn.Linear({f}, 3), T.nn.Tanh(), T.nn.Linear(3, 2), T.nn.Sigmoid())",
        use="T.utils.checkpoint.checkpoint_sequential({m}, 2, x, use_reentrant=False)",
    ),
    # Not weight_norm: its second gradient is wrong in PyTorch.
    "Parametrized": Entry(
        "T.nn.utils.parametrize.register_parametrization("
        "T.nn.Linear({f}, {out}), 'weight', Directions())",
        options={"out": (1, 3, 8)},
        use=_CALL,
    ),
    "Functional": Entry(
        "T.nn.Linear({f}, {out})",
        options={"out": (1, 4)},
        use="T.func.functional_call({m}, {{k: v * 0.7 for k, v in {m}.named_parameters()}}, (x,))",
    ),
    "Mapped": Entry(
        "T.nn.Linear({f}, 3)",
        use="T.func.vmap(lambda row: F.linear(row, {m}.weight, {m}.bias).tanh())(x)",
    ),
    "MappedWeights": Entry(
        "T.nn.Linear({f}, 3)", use="T.func.vmap(lambda w: x @ w, out_dims=-1)({m}.weight)"
    ),
    "Frozen": Entry("T.nn.Linear({f}, 3).requires_grad_(False)", use=_CALL),
    "InferenceNorm": Entry("T.nn.BatchNorm1d({c}).eval()", (2, 3), use=_CALL),
    "NormWithoutStatistics": Entry(
        "T.nn.BatchNorm2d({c}, track_running_stats=False)", (4,), use=_CALL
    ),
    "InstanceNormWithStatistics": Entry(
        "T.nn.InstanceNorm1d({c}, affine=True, track_running_stats=True)", (3,), use=_CALL
    ),
    "Running": Entry("Running({c})", use=_CALL),
    "MaxUnpool2d": Entry(
        "T.nn.MaxUnpool2d(2)",
        (4,),
        use="{m}(*F.max_pool2d(x, 2, return_indices=True), output_size=x.shape)",
    ),
}  # fmt: skip

ENTRIES = {**MODULES, **ACTIVATIONS, **OTHERS}
# The two of a branch are joined so, where their shapes allow it.
JOINS = {
    "sum": "{a} + {b}",
    "product": "{a} * {b}",
    "difference": "{a} - {b}.tanh()",
    "cat": "T.cat([{a}, {b}], 1)",
    "cat_last": "T.cat([{a}, {b}], -1)",
    "cat_flat": "T.cat([{a}.flatten(1), {b}.flatten(1)], 1)",
}
