"""What a random training program is made of, as text with holes.

Holes are filled from the shape of the value that comes in (`{c}`: the second extent, `{f}`: the
last, `{rest}`: all but the batch, `{spatial}`: all behind the second) and from the options. Texts
of modules construct one; all others are expressions of `x`. `T` is torch or metaop, `F` their
functional part.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Entry(NamedTuple):
    """One kind of operation: its text, the ranks it takes, and what its options may be.

    `use` is how a module is called; it is empty for expressions.
    """

    text: str
    ranks: tuple[int, ...] = (2, 3, 4, 5)
    options: dict[str, tuple[Any, ...]] = {}
    use: str = ""


# With 64 channels products are packed, and the taps of windows become cases of their own.
_OUT = (1, 2, 3, 4, 6, 8, 16, 64)
_YES_NO = (True, False)
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
        "bias": _YES_NO,
        "mode": ("zeros", "zeros", "zeros", "zeros", "circular", "reflect", "replicate"),
        "extra": (0, 0, 1),
    }


_POOL = {"kernel": (1, 2, 2, 3), "stride": (1, 2, 3), "padding": (0, 0, 1), "ceil": _YES_NO}
_MAX_POOL = "(" + _WINDOW + ", ceil_mode={ceil})"
_MEAN_POOL = "(" + _WINDOW + ", ceil_mode={ceil}, count_include_pad={pad})"
_MEAN = {**_POOL, "pad": _YES_NO}
_RECURRENT = {"hidden": (1, 2, 3, 5, 8), "layers": (1, 1, 2), "both": _YES_NO, "bias": _YES_NO}
_RECURRENT_TEXT = "({f}, {hidden}, {layers}, bidirectional={both}, bias={bias}, batch_first=True)"
_HEADS = {"heads": (1, 2, 3, 4), "bias": _YES_NO}
_CALL = "{m}(x)"

MODULES: dict[str, Entry] = {
    "Linear": Entry("({f}, {out}, bias={bias})", options={"out": _OUT, "bias": _YES_NO}, use=_CALL),
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
        "affine": _YES_NO, "momentum": (0.1, 0.5, None)}, _CALL),
    "BatchNorm2d": Entry("({c}, affine={affine}, momentum={momentum})", (4,), {
        "affine": _YES_NO, "momentum": (0.1, 0.5, None)}, _CALL),
    "InstanceNorm2d": Entry("({c}, affine={affine})", (4,), {"affine": _YES_NO}, _CALL),
    "GroupNorm": Entry("({groups}, {c})", (2, 3, 4), {"groups": (1, 2, 3, 4)}, _CALL),
    "LayerNorm": Entry(
        "({f}, elementwise_affine={affine})", options={"affine": _YES_NO}, use=_CALL
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
    "ReLU": Entry("(inplace={inplace})", options={"inplace": _YES_NO}, use=_CALL),
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
        {"heads": (1, 2), "first": _YES_NO},
        _CALL,
    ),
}  # fmt: skip

_DIM = {"dim": (-1, 1)}
_KEEP = {"dim": (1, -1), "keep": _YES_NO}

# Values stay near one, and away from places where a gradient is infinite.
ACTIVATIONS: dict[str, Entry] = {
    name: Entry(text)
    for name, text in {
        "relu": "x.relu()",
        "tanh": "x.tanh()",
        "sigmoid": "x.sigmoid()",
        "exp": "x.tanh().exp()",
        "sqrt": "(x * x + 0.1).sqrt()",
        "rsqrt": "(x * x + 0.5).rsqrt()",
        "reciprocal": "(x.abs() + 0.5).reciprocal()",
        "log": "(x.abs() + 0.5).log()",
        "log1p": "x.abs().log1p()",
        "expm1": "x.tanh().expm1()",
        "softplus": "F.softplus(x)",
        "elu": "F.elu(x)",
        "selu": "F.selu(x)",
        "celu": "F.celu(x, 0.5)",
        "gelu": "F.gelu(x)",
        "gelu_tanh": "F.gelu(x, approximate='tanh')",
        "silu": "F.silu(x)",
        "mish": "F.mish(x)",
        "leaky_relu": "F.leaky_relu(x, 0.1)",
        "hardtanh": "F.hardtanh(x)",
        "hardswish": "F.hardswish(x)",
        "hardsigmoid": "F.hardsigmoid(x)",
        "relu6": "F.relu6(x)",
        "softsign": "F.softsign(x)",
        "logsigmoid": "F.logsigmoid(x)",
        "tanhshrink": "F.tanhshrink(x)",
        "softshrink": "F.softshrink(x, 0.2)",
        "threshold": "F.threshold(x, 0.1, 0.05)",
        "sin": "x.sin()",
        "cos": "x.cos()",
        "atan": "x.atan()",
        "erf": "x.erf()",
        "square": "x.square() * 0.5",
        "power": "x.pow(3) * 0.1",
        "power_of_positive": "(x.abs() + 0.2).pow(1.5)",
        "clamp": "x.clamp(-0.7, 0.9)",
        "abs": "x.abs()",
        "where": "T.where(x > 0, x, x * 0.1)",
        "maximum": "T.maximum(x, x * 0.3 + 0.1)",
        "quotient": "x / (x.abs() + 1)",
        "lerp": "T.lerp(x, x.tanh(), 0.3)",
        "twice": "x + x.tanh()",
        "gated": "x * x.sigmoid()",
        "with_detached": "x + x.detach() * 0.5",
        "clone": "x.clone()",
        "negative": "1 - x",
        "scaled": "x * 1.5 + 0.1",
    }.items()
}

OTHERS: dict[str, Entry] = {
    "softmax": Entry("x.softmax({dim})", options=_DIM),
    "log_softmax": Entry("x.log_softmax({dim})", options=_DIM),
    "softmin": Entry("F.softmin(x, {dim})", options=_DIM),
    "glu": Entry("F.glu(x, {dim})", options=_DIM),
    "normalize": Entry("F.normalize(x, dim={dim}, eps=0.1)", options=_DIM),
    "centred": Entry("x - x.mean({dim}, keepdim=True)", options=_DIM),
    "by_sum": Entry("x / (x.abs().sum({dim}, keepdim=True) + 0.5)", options=_DIM),
    "standardised": Entry(
        "(x - x.mean({dim}, keepdim=True)) * "
        "(x.var({dim}, keepdim=True, correction=0) + 0.1).rsqrt()",
        options=_DIM,
    ),
    "cumsum": Entry("x.cumsum({dim}) * 0.5", options=_DIM),
    "flip": Entry("x.flip({dim})", options=_DIM),
    "roll": Entry("x.roll(1, {dim})", options=_DIM),
    "sorted": Entry("x.sort({dim}).values", options=_DIM),
    "transpose": Entry("x.transpose(1, {dim})", (3, 4, 5), {"dim": (-1, 2)}),
    "movedim": Entry("x.movedim(1, -1)", (3, 4, 5)),
    "contiguous": Entry("x.transpose(1, -1).contiguous()", (3, 4, 5)),
    "unsqueeze": Entry("x.unsqueeze({dim})", (2, 3, 4), {"dim": (1, 2, -1)}),
    "squeeze": Entry("x.squeeze(1)", (3, 4, 5)),
    "reshape": Entry("x.reshape(x.shape[0], -1)", (3, 4, 5)),
    "view": Entry("x.view(x.shape[0], -1)", (3, 4, 5)),
    "folded": Entry("x.flatten(2)", (4, 5)),
    "unfolded": Entry("x.unflatten(1, ({first}, -1))", (2, 3, 4), {"first": (2, 3)}),
    "first": Entry("x[:, 0]", (3, 4, 5)),
    "last": Entry("x[:, -1]", (3, 4, 5)),
    "last_of_last": Entry("x[..., -1]", (3, 4, 5)),
    "stepped": Entry("x[:, ::2]"),
    "tail": Entry("x[..., 1:]"),
    "narrow": Entry("x.narrow(1, 0, 2)"),
    "select": Entry("x.index_select(1, T.tensor([1, 0, 1]))"),
    "indexed": Entry("x[:, [0, 1, 0]]"),
    "gathered": Entry("x.gather(1, T.zeros_like(x, dtype=T.int64))"),
    "chunk": Entry("x.chunk(2, 1)[0] * x.chunk(2, 1)[1]"),
    "split": Entry("T.cat(x.split(2, 1)[::-1], 1)"),
    "unbind": Entry("T.stack(x.unbind(1)[::-1], 1)"),
    "cat": Entry("T.cat([x, x.tanh()], {dim})", options=_DIM),
    "stack": Entry("T.stack([x, x * 0.5], 1)", (2, 3)),
    "repeat": Entry("x.repeat_interleave(2, 1)"),
    "expand": Entry("x.unsqueeze(1).expand(-1, 3, *x.shape[1:])", (2, 3)),
    "pad": Entry("F.pad(x, (1, {after}))", options={"after": (0, 2, -1)}),
    "windows": Entry("x.unfold(-1, 2, {step})", (2, 3, 4), {"step": (2, 3)}),
    # PyTorch writes twice to what windows share: what it gives then means nothing.
    "overlapping": Entry("x.unfold(-1, 2, 1).clone()", (2, 3, 4)),
    "unfold": Entry("F.unfold(x, {kernel}, padding={padding})", (4,), {
        "kernel": (1, 2, 3), "padding": (0, 1)}),
    "mean": Entry("x.mean({dim}, keepdim={keep})", (3, 4, 5), _KEEP),
    "sum": Entry("x.sum({dim}, keepdim={keep}) * 0.5", (3, 4, 5), _KEEP),
    "amax": Entry("x.amax({dim}, keepdim={keep})", (3, 4, 5), _KEEP),
    "max": Entry("x.max({dim}, keepdim={keep}).values", (3, 4, 5), _KEEP),
    "logsumexp": Entry("x.logsumexp({dim}, keepdim={keep})", (3, 4, 5), _KEEP),
    "var": Entry("x.var({dim}, keepdim={keep}, correction=0)", (3, 4, 5), _KEEP),
    "norm": Entry("(x.square().sum({dim}, keepdim={keep}) + 0.1).sqrt()", (3, 4, 5), _KEEP),
    "topk": Entry("x.topk(2, {dim}).values", options=_DIM),
    "global_mean": Entry("x.mean((2, 3))", (4,)),
    "gram": Entry("x @ x.transpose(1, 2) / x.shape[2]", (3,)),
    "einsum": Entry("T.einsum('bij,bkj->bik', x, x.tanh()) / x.shape[2]", (3,)),
    "outer": Entry("x.unsqueeze(1) * x.unsqueeze(2)", (2,)),
    "attention": Entry("F.scaled_dot_product_attention(x, x, x)", (3, 4)),
    "causal": Entry("F.scaled_dot_product_attention(x, x.tanh(), x, is_causal=True)", (3, 4)),
    "masked": Entry("x.masked_fill(x > 0.5, 0.1)"),
    "triangle": Entry("x.tril()", (3, 4)),
    "interpolate": Entry("F.interpolate(x, scale_factor=2)", (3, 4)),
    "max_pool": Entry("F.max_pool2d(x, 2)", (4,)),
    "add_in_place": Entry("x.add_(0.3)"),
    "mul_in_place": Entry("x.mul_(0.7)"),
    "relu_in_place": Entry("x.relu_()"),
    "tanh_in_place": Entry("x.tanh_()"),
    "sigmoid_in_place": Entry("x.sigmoid_()"),
    "clamp_in_place": Entry("x.clamp_(-0.8, 0.8)"),
    "functional_in_place": Entry("F.elu(x, inplace=True)"),
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

# Statements that leave `x` as it is: what is kept, what is read, what is written through a view.
KEPT = (
    "x", "x.view(-1)", "x.flatten()", "x.flatten(1)", "x.squeeze()", "x.transpose(0, 1)", "x[:, 0]",
    "x[0]", "x[-1:]", "x.unsqueeze(0)", "x.clone()", "x.detach()", "x.detach().clone()",
    "x.chunk(2, 1)[0]", "x.sum()", "x.mean(0)", "x * 2", "x.reshape(-1)", "x.movedim(0, -1)",
    "x.relu()", "x > 0", "x.abs().amax()", "x.data", "x.expand_as(x)", "x.view_as(x)",
)  # fmt: skip
READS = (
    "float(x.sum())", "x.sum().item()", "x.tolist()", "str(x)", "x.detach().numpy()",
    "bool((x > 0).any())", "float(x.detach().flatten()[0])", "x.detach().mean().item()",
    "x.detach().clone().tolist()",
)  # fmt: skip
# Not through `x.data`: a gradient of PyTorch reads what was written, one of metaop what was there.
WRITES = (
    "x[:, 0] = 0.5", "x[:, :1].mul_(0.5)", "x[..., -1].add_(0.1)",
    "x.detach().mul_(0.9)", "x += 0.1", "x *= 0.8",
)  # fmt: skip

# The text of a loss of `x` and `y`, and what `y` is: numbers, labels, or nothing.
LOSSES: dict[str, tuple[str, str]] = {
    "mse": ("F.mse_loss(x, y)", "numbers"),
    "mse_sum": ("F.mse_loss(x, y, reduction='sum') * 0.1", "numbers"),
    "l1": ("F.l1_loss(x, y)", "numbers"),
    "smooth_l1": ("F.smooth_l1_loss(x, y)", "numbers"),
    "huber": ("F.huber_loss(x, y, delta=0.7)", "numbers"),
    "bce": ("F.binary_cross_entropy(x.sigmoid(), y.sigmoid())", "numbers"),
    "bce_with_logits": ("F.binary_cross_entropy_with_logits(x, y.sigmoid())", "numbers"),
    "cross_entropy": ("F.cross_entropy(x, y)", "labels"),
    "cross_entropy_smooth": ("F.cross_entropy(x, y, label_smoothing=0.1)", "labels"),
    "cross_entropy_soft": ("F.cross_entropy(x, y.softmax(1))", "numbers"),
    "cross_entropy_sum": ("F.cross_entropy(x, y, reduction='none').sum() * 0.3", "labels"),
    "nll": ("F.nll_loss(x.log_softmax(1), y)", "labels"),
    "kl_div": ("F.kl_div(x.log_softmax(1), y.softmax(1), reduction='batchmean')", "numbers"),
    "hinge": ("F.hinge_embedding_loss(x, y.sign())", "numbers"),
    "soft_margin": ("F.soft_margin_loss(x, y.sign())", "numbers"),
    "multi_margin": ("F.multi_margin_loss(x, y)", "labels"),
    "hinge_by_hand": ("(1 - x * y.sign()).clamp(min=0).mean()", "numbers"),
    "cosine": ("F.cosine_embedding_loss(x, y, y.new_ones(y.shape[0]))", "numbers"),
    "cosine_by_hand": ("1 - F.cosine_similarity(x, y, 1).mean()", "numbers"),
    "poisson": ("F.poisson_nll_loss(x.tanh(), y.abs())", "numbers"),
    "gaussian": ("F.gaussian_nll_loss(x, y, (x * 0.3).exp() + 0.2)", "numbers"),
    "squares": ("((x - y) ** 2).mean()", "numbers"),
    "product": ("(x * y).sum() * 0.1", "numbers"),
    "distances": ("(x - y).abs().sum() / x.shape[0]", "numbers"),
    "entropy": ("-(y.softmax(1) * x.log_softmax(1)).sum(1).mean()", "numbers"),
    "root": ("((x - y).square().mean() + 0.1).sqrt()", "numbers"),
    "power": ("x.pow(2).mean()", "nothing"),
    "logsumexp": ("x.logsumexp(1).mean()", "nothing"),
    "mean_of_sums": ("x.sum(1).square().mean() * 0.2", "nothing"),
    "largest": ("x.abs().amax(1).sum() * 0.3", "nothing"),
    "picked": ("x[0].sum() + x[-1].square().mean()", "nothing"),
}

# Steps do not depend on rounding where a gradient is tiny: `eps` is not.
OPTIMIZERS = (
    "SGD(parameters, lr=0.1)",
    "SGD(parameters, lr=0.05, momentum=0.9)",
    "SGD(parameters, lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.01)",
    "SGD(parameters, lr=0.05, momentum=0.8, dampening=0.2, maximize=True)",
    "Adam(parameters, lr=0.02, eps=1e-2)",
    "Adam(parameters, lr=0.02, eps=1e-2, amsgrad=True, weight_decay=0.01)",
    "AdamW(parameters, lr=0.02, eps=1e-2)",
    "RMSprop(parameters, lr=0.02, eps=1e-2)",
    "RMSprop(parameters, lr=0.02, eps=1e-2, momentum=0.9, centered=True)",
    "Adagrad(parameters, lr=0.05, eps=1e-2)",
    "Adadelta(parameters, lr=0.5, eps=1e-2)",
    "Adamax(parameters, lr=0.02, eps=1e-2)",
    "NAdam(parameters, lr=0.02, eps=1e-2)",
    "RAdam(parameters, lr=0.02, eps=1e-2)",
    "ASGD(parameters, lr=0.05)",
)
SCHEDULERS = (
    "StepLR(optimizer, 1, 0.5)",
    "ExponentialLR(optimizer, 0.9)",
    "CosineAnnealingLR(optimizer, 4)",
)
# What happens to gradients between `backward` and `step`.
CLIPS = (
    "T.nn.utils.clip_grad_norm_(parameters, 0.5)",
    "T.nn.utils.clip_grad_value_(parameters, 0.1)",
)
