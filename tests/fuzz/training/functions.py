"""Functions that random training programs apply, and statements between them, as text."""

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


YES_NO = (True, False)
_DIM = {"dim": (-1, 1)}
_KEEP = {"dim": (1, -1), "keep": YES_NO}

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
    # Functions that the host computes.
    "inv": Entry("T.linalg.inv(square(x))", (3,)),
    "solve": Entry("T.linalg.solve(square(x), x)", (3,)),
    "cholesky": Entry("T.linalg.cholesky(square(x))", (3,)),
    "cholesky_solve": Entry("T.cholesky_solve(x, T.linalg.cholesky(square(x)))", (3,)),
    "triangular": Entry(
        "T.linalg.solve_triangular(square(x).tril(), x.tanh(), upper=False)", (3,)
    ),
    "det": Entry("x * T.linalg.det(square(x) * 0.7)[:, None, None]", (3,)),
    "slogdet": Entry("x + T.linalg.slogdet(square(x)).logabsdet[:, None, None] * 0.1", (3,)),
    "svdvals": Entry("T.linalg.svdvals(x)", (3,)),
    "eigvalsh": Entry("T.linalg.eigvalsh(square(x))", (3,)),
    "qr": Entry("T.linalg.qr(square(x)).R.abs()", (3,)),
    "pinv": Entry("T.linalg.pinv(square(x))", (3,)),
    "lstsq": Entry("T.linalg.lstsq(square(x), x.tanh()).solution", (3,)),
    "matrix_exp": Entry("T.linalg.matrix_exp(square(x) * 0.3)", (3,)),
    "matrix_power": Entry("T.linalg.matrix_power(square(x) * 0.5, {power})", (3,), {
        "power": (-1, 0, 2, 3)}),
    "nuclear": Entry("x / T.linalg.matrix_norm(square(x), {order!r})[:, None, None]", (3,), {
        "order": ("nuc", 2, "fro")}),
    "multi_dot": Entry("x * T.linalg.multi_dot([x[0], x[0].mT, x[0]]) * 0.1", (3,)),
    "rfft": Entry("T.view_as_real(T.fft.rfft(x)).flatten(-2) * 0.5"),
    "fft_real": Entry("T.fft.fft(x, norm='ortho').real"),
    # PyTorch leaves the transformed dimension innermost, and reshapes such a result into a copy.
    "fft_squared": Entry("(T.fft.fft(x, dim=1).abs().square() * 0.2).contiguous()"),
    "low_pass": Entry("T.fft.irfft(T.fft.rfft(x)[..., :2], n=x.shape[-1])"),
    "fft2": Entry("T.fft.fft2(x, norm='ortho').imag", (3, 4)),
    # What follows the order of values, or their number.
    "cummax": Entry("x.cummax({dim}).values", options=_DIM),
    "cumprod": Entry("x.tanh().cumprod({dim})", options=_DIM),
    "logcumsumexp": Entry("x.logcumsumexp({dim})", options=_DIM),
    "descending": Entry("x.sort(stable=True, dim={dim}, descending=True).values", options=_DIM),
    "by_order": Entry("x.gather({dim}, x.argsort({dim}))", options=_DIM),
    "smallest": Entry("x.topk(1, {dim}, largest=False).values", options=_DIM),
    "kthvalue": Entry("x.kthvalue(1, {dim}, keepdim=True).values + x", options=_DIM),
    "median": Entry("x - x.median({dim}, keepdim=True).values", options=_DIM),
    "quantile": Entry("x - x.quantile(0.3, {dim}, keepdim=True)", options=_DIM),
    "unique": Entry("x * x.detach().round().unique().numel() * 0.1"),
    "inverse": Entry(
        "x * T.bincount((x.detach() > 0).long().unique(return_inverse=True)[1].flatten())[0] * 0.1"
    ),
    "masked_select": Entry("x + x.masked_select(x > 0).sum() * 0.1"),
    "truths": Entry("x + x[x > 0].square().sum() * 0.1"),
    "nonzero": Entry("x + x[(x > 0.2).nonzero(as_tuple=True)].sum() * 0.1"),
    "argmax": Entry("x - x.gather({dim}, x.argmax({dim}, keepdim=True))", options=_DIM),
    "searched": Entry(
        "x + T.searchsorted(T.tensor([-0.5, 0.5], dtype=x.dtype), x.detach()) * 0.1"
    ),
    # Places.
    "scatter": Entry("x.scatter(-1, (x[..., :1] > 0).long(), x[..., -1:].tanh())"),
    "scatter_add": Entry("x.scatter_add(1, (x > 0).long() * (x.shape[1] - 1), x * 0.5)"),
    "scatter_reduce": Entry("x.scatter_reduce(1, (x > 0).long() * (x.shape[1] - 1), x.tanh(), "
        "{kind!r})", options={"kind": ("sum", "mean", "amax")}),
    "masked_scatter": Entry("x.masked_scatter(x > 0, x.tanh().flatten())"),
    # At one place of a copy PyTorch puts one value, unless they are added: which is not defined.
    "index_put": Entry("x.index_put((T.tensor([0]),), x[:1] * 0.3)"),
    "index_put_sum": Entry("x.index_put((T.tensor([0, -1, 0]),), x[:1] * 0.3, accumulate=True)"),
    "index_add": Entry("x.index_add(1, T.tensor([0, 0]), T.cat([x[:, :1], x[:, -1:]], 1))"),
    "index_copy": Entry("x.index_copy(1, T.tensor([0]), x[:, -1:].tanh())"),
    "index_fill": Entry("x.index_fill(1, T.tensor([0]), 0.3)"),
    "take_along": Entry("T.take_along_dim(x, (x > 0).long() * (x.shape[1] - 1), 1)"),
    "two_indices": Entry("x[T.arange(x.shape[0])[:, None], T.tensor([0, 0, -1])]"),
    "ellipsis": Entry("x[..., T.tensor([0, -1]), None]", (2, 3)),
    "select_scatter": Entry("x.select_scatter(x[:, -1] * 0.5, 1, 0)"),
    "slice_scatter": Entry("x.slice_scatter(x[:, :1].tanh(), 1, 0, 1)"),
    "diagonal": Entry("x + x.diagonal(0, 0, 1).sum() * 0.1"),
    "where_of_two": Entry("T.where(x > x.flip(1), x, x.flip(1) * 0.5)"),
    "looked_up": Entry("x + F.one_hot((x > 0).long(), 2).sum(-1) * x * 0.1"),
    # Attention.
    "attention_mask": Entry("F.scaled_dot_product_attention(x, x, x.tanh(), mask(x))", (3, 4)),
    "attention_bias": Entry(
        "F.scaled_dot_product_attention(x, x.tanh(), x, x @ x.mT * 0.2, scale=0.4)", (3, 4)
    ),
    "attention_across": Entry("F.scaled_dot_product_attention(x, x[..., :1, :], x.sin()"
        "[..., :1, :])", (3, 4)),
    # Gradients that are changed, cut or taken again.
    "by_hand": Entry("Squashed.apply(x)"),
    "hooked": Entry("hooked(x * 1, {factor})", options={"factor": (0.5, -1, 0)}),
    "slope": Entry("slope(x)"),
    "slope_of_slope": Entry("slope(slope(x) * 0.3)"),
    "checkpoint": Entry(
        "T.utils.checkpoint.checkpoint(lambda v: v.tanh() * v.softmax(1), x, use_reentrant=False)"
    ),
    "no_grad": Entry("x + T.no_grad()(lambda: x.tanh() * 0.3)()"),
    "detached_branch": Entry("T.where(x > 0, x, x.detach() * 0.2)"),
    "straight_through": Entry("x + (x.round() - x).detach()"),
    "mapped": Entry("T.func.vmap(lambda v: v.softmax(0) * v.sum())(x)"),
    "grad": Entry("T.func.vmap(T.func.grad(lambda v: (v.tanh() * v).sum()))(x)"),
    # Copies that are written through views.
    "column_written": Entry("written(x, lambda v: v[:, 0].add_(v[:, -1] * 0.5))"),
    "columns_written": Entry(
        "written(x, lambda v: v[:, ::2].mul_(0.5), lambda v: v[:, :1].tanh_())"
    ),
    "narrow_written": Entry("written(x, lambda v: v.narrow(1, 0, 1).copy_(x[:, -1:].tanh()))"),
    "transposed_written": Entry(
        "written(x, lambda v: v.transpose(1, -1)[:, 0].mul_(0.3), lambda v: v.view(-1)[:2].neg_())"
    ),
    "row_written": Entry("written(x, lambda v: v[0].copy_(v[-1] * 0.5), lambda v: v.tanh_())"),
    "copied": Entry("T.zeros_like(x).copy_(x).mul_(x)"),
    "filled": Entry("T.empty_like(x).fill_(0.5).add_(x, alpha=0.3)"),
    "slots": Entry("written(T.zeros_like(x), lambda v: v[:, :1].add_(x.tanh()[:, -1:])) + x"),
    "truths_written": Entry("written(x, lambda v: v.__setitem__(x > 0.5, 0.1))"),
    "index_written": Entry("written(x, lambda v: v.index_add_(1, T.tensor([0]), x[:, -1:] * 0.3))"),
    "scatter_written": Entry("written(x, lambda v: v.scatter_(1, (x > 0).long()[:, :1], 0.3))"),
    "masked_written": Entry("written(x, lambda v: v[..., :1].masked_fill_(x[..., :1] > 0, 0.2))"),
}  # fmt: skip

# Statements that leave `x` as it is: what is kept, what is read, what is written through a view.
KEPT = (
    "x", "x.view(-1)", "x.flatten()", "x.flatten(1)", "x.squeeze()", "x.transpose(0, 1)", "x[:, 0]",
    "x[0]", "x[-1:]", "x.unsqueeze(0)", "x.clone()", "x.detach()", "x.detach().clone()",
    "x.chunk(2, 1)[0]", "x.sum()", "x.mean(0)", "x * 2", "x.reshape(-1)", "x.movedim(0, -1)",
    "x.relu()", "x > 0", "x.abs().amax()", "x.data", "x.expand_as(x)", "x.view_as(x)",
)  # fmt: skip
READS = (
    "float(x.sum())", "x.sum().item()", "x.tolist()", "str(x)", "x.detach().cpu().numpy()",
    "bool((x > 0).any())", "float(x.detach().flatten()[0])", "x.detach().mean().item()",
    "x.detach().clone().tolist()",
)  # fmt: skip
# Not through `x.data`: a gradient of PyTorch reads what was written, one of metaop what was there.
WRITES = (
    "x[:, 0] = 0.5", "x[:, :1].mul_(0.5)", "x[..., -1].add_(0.1)",
    "x.detach().mul_(0.9)", "x += 0.1", "x *= 0.8", "x[:, 0] += x[:, -1] * 0.3",
    "x.narrow(1, 0, 1).mul_(0.5)", "x[0] = x[-1] * 0.5",
    "x[:, ::2] *= 0.5", "x.transpose(1, -1)[:, 0].add_(0.1)", "x[x > 0.5] = 0.2",
    "x.index_fill_(1, T.tensor([0]), 0.3)", "x.view(-1)[:2].zero_()",
    "x[:, -1].copy_(x[:, 0].detach())", "x.copy_(x.flip(1) * 0.9)", "x.sub_(x.mean(0))",
)  # fmt: skip
