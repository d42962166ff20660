"""Convolutions, transposed convolutions, and sliding windows as columns."""

from __future__ import annotations

from functools import lru_cache

from metaop.errors import ArgumentError
from metaop.nn.functional.arguments import Sizes, optional, spread
from metaop.operators import convolution as operators
from metaop.tensor.core import Tensor, wrap
from metaop.unified_graph.recording import record

Padding = str | Sizes


def conv1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Padding = 0,
    dilation: Sizes = 1,
    groups: int = 1,
) -> Tensor:
    """Convolution of (N, C, L) or (C, L) with weight (O, C / groups, K).

    The result is (N, O, L'), with L' = (L + 2 * padding - dilation * (K - 1) - 1) // stride + 1;
    see `conv2d` for the arguments.

    >>> F.conv1d(metaop.tensor([[[1.0, 2.0, 4.0, 8.0]]]), metaop.tensor([[[-1.0, 1.0]]]))
    tensor([[[1., 2., 4.]]])
    """
    return _convolve(1, input, weight, bias, stride, padding, dilation, groups)


def conv_tbc(input: Tensor, weight: Tensor, bias: Tensor, pad: int = 0) -> Tensor:
    """Convolution of a sequence (T, B, C) with weight (K, C, O), whose result is (T', B, O).

    T' is T + 2 * pad - K + 1.

    >>> F.conv_tbc(metaop.ones(4, 1, 2), metaop.ones(3, 2, 1), metaop.zeros(1)).flatten()
    tensor([6., 6.])
    """
    turned = conv1d(input.permute(1, 2, 0), weight.permute(2, 1, 0), bias, padding=pad)
    return turned.permute(2, 0, 1).contiguous()


def conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Padding = 0,
    dilation: Sizes = 1,
    groups: int = 1,
) -> Tensor:
    """Convolution of (N, C, H, W) or (C, H, W) with weight (O, C / groups, KH, KW).

    The result is (N, O, H', W'), with H' = (H + 2 * padding - dilation * (KH - 1) - 1) // stride +
    1. `padding` is one size, one per dimension, "valid" (none) or "same" (keeps the extents; needs
    stride 1). Raises ShapeError when channels or kernel do not match.

    >>> image, weight = metaop.ones(1, 1, 3, 3), metaop.ones(1, 1, 3, 3)
    >>> F.conv2d(image, weight, padding="same")
    tensor([[[[4., 6., 4.],
              [6., 9., 6.],
              [4., 6., 4.]]]])
    """
    return _convolve(2, input, weight, bias, stride, padding, dilation, groups)


def conv3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Padding = 0,
    dilation: Sizes = 1,
    groups: int = 1,
) -> Tensor:
    """Convolution of (N, C, D, H, W) or (C, D, H, W) with weight (O, C / groups, KD, KH, KW).

    The result is (N, O, D', H', W'); see `conv2d` for the extents and the arguments.

    >>> F.conv3d(metaop.ones(1, 2, 3, 3, 3), metaop.ones(1, 2, 3, 3, 3)).item()
    54.0
    """
    return _convolve(3, input, weight, bias, stride, padding, dilation, groups)


def _convolve(
    spatial: int,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sizes,
    padding: Padding,
    dilation: Sizes,
    groups: int,
) -> Tensor:
    try:
        attributes = _attributes(spatial, stride, padding, dilation, groups, weight.call.type.shape)
    except TypeError:
        # Lists are not hashable.
        sizes = [tuple(x) if isinstance(x, list) else x for x in (stride, padding, dilation)]
        attributes = _attributes(spatial, *sizes, groups, weight.call.type.shape)
    calls = (input.call, weight.call, None if bias is None else bias.call)
    return wrap(record(operators.convolution, calls, attributes))


@lru_cache(maxsize=4096)
def _attributes(
    spatial: int,
    stride: Sizes,
    padding: Padding,
    dilation: Sizes,
    groups: int,
    weight: tuple[int, ...],
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...], int]:
    """The checked attributes of the operator: stride, padding before and after, dilation."""
    steps = spread(stride, spatial, "stride")
    spacing = spread(dilation, spatial, "dilation")
    if isinstance(padding, str):
        before, after = _named_padding(padding, weight[2:], steps, spacing)
    else:
        before = after = spread(padding, spatial, "padding")
        if min(before) < 0:
            raise ArgumentError(
                f"conv{spatial}d: negative padding {list(before)} is not supported",
                fix="slice the input instead",
            )
    if min(steps) < 1 or min(spacing) < 1:
        raise ArgumentError(
            f"conv{spatial}d: stride and dilation must be positive, got {list(steps)} and "
            f"{list(spacing)}",
            fix="use 1 or more",
        )
    return steps, before, after, spacing, groups


def _named_padding(
    name: str, kernel: tuple[int, ...], stride: tuple[int, ...], dilation: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    if name == "valid":
        return (0,) * len(stride), (0,) * len(stride)
    if name != "same":
        raise ArgumentError(f"padding {name!r} is unknown", fix="use 'same', 'valid' or sizes")
    if any(step != 1 for step in stride):
        raise ArgumentError(
            f"padding='same' is not supported for strided convolutions (stride {list(stride)})",
            fix="give the padding as sizes",
        )
    total = [d * (k - 1) for d, k in zip(dilation, kernel)]
    return tuple(t // 2 for t in total), tuple(t - t // 2 for t in total)


def conv_transpose1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Sizes = 0,
    output_padding: Sizes = 0,
    groups: int = 1,
    dilation: Sizes = 1,
) -> Tensor:
    """Transposed convolution of (N, C, L) or (C, L) with weight (C, O / groups, K).

    It is the gradient of `conv1d` with respect to its input, so the result is (N, O, L') with
    L' = (L - 1) * stride - 2 * padding + dilation * (K - 1) + output_padding + 1.

    >>> F.conv_transpose1d(metaop.tensor([[[1.0, 2.0]]]), metaop.ones(1, 1, 3), stride=2)
    tensor([[[1., 1., 3., 2., 2.]]])
    """
    return _transposed(1, input, weight, bias, stride, padding, output_padding, groups, dilation)


def conv_transpose2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Sizes = 0,
    output_padding: Sizes = 0,
    groups: int = 1,
    dilation: Sizes = 1,
) -> Tensor:
    """Transposed convolution of (N, C, H, W) or (C, H, W) with weight (C, O / groups, KH, KW).

    It is the gradient of `conv2d` with respect to its input. `output_padding` enlarges the result
    at its end: with a stride, `conv2d` maps several sizes to one, and this chooses among them.

    >>> image = metaop.tensor([[[[1.0, 2.0]]]])
    >>> F.conv_transpose2d(image, metaop.ones(1, 1, 2, 2), stride=2)
    tensor([[[[1., 1., 2., 2.],
              [1., 1., 2., 2.]]]])
    """
    return _transposed(2, input, weight, bias, stride, padding, output_padding, groups, dilation)


def conv_transpose3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Sizes = 0,
    output_padding: Sizes = 0,
    groups: int = 1,
    dilation: Sizes = 1,
) -> Tensor:
    """Transposed convolution of (N, C, D, H, W) or (C, D, H, W); weight (C, O / groups, …).

    It is the gradient of `conv3d` with respect to its input; for the arguments see
    `conv_transpose2d`.

    >>> F.conv_transpose3d(metaop.ones(1, 2, 1, 1, 1), metaop.ones(2, 3, 2, 2, 2)).shape
    metaop.Size([1, 3, 2, 2, 2])
    """
    return _transposed(3, input, weight, bias, stride, padding, output_padding, groups, dilation)


def _transposed(
    spatial: int,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sizes,
    padding: Sizes,
    output_padding: Sizes,
    groups: int,
    dilation: Sizes,
) -> Tensor:
    steps = spread(stride, spatial, "stride")
    spacing = spread(dilation, spatial, "dilation")
    extra = spread(output_padding, spatial, "output_padding")
    if any(e < 0 or e >= max(s, d) for e, s, d in zip(extra, steps, spacing)):
        raise ArgumentError(
            f"conv_transpose{spatial}d: output padding must be smaller than either stride or "
            f"dilation, got output_padding {list(extra)}, stride {list(steps)}, dilation "
            f"{list(spacing)}",
            fix="reduce output_padding",
        )
    attributes = (steps, spread(padding, spatial, "padding"), extra, spacing, groups)
    calls = (input.call, weight.call, optional(bias))
    return wrap(record(operators.transposed_convolution, calls, attributes))


def unfold(
    input: Tensor,
    kernel_size: Sizes,
    dilation: Sizes = 1,
    padding: Sizes = 0,
    stride: Sizes = 1,
) -> Tensor:
    """Sliding windows as columns: (N, C, H, W) -> (N, C * KH * KW, windows).

    Windows are in row-major order. Elements of overlapping windows are repeated.

    >>> F.unfold(metaop.arange(6.0).reshape(1, 1, 2, 3), kernel_size=2)
    tensor([[[0., 1.],
             [1., 2.],
             [3., 4.],
             [4., 5.]]])
    """
    attributes = (
        spread(kernel_size, 2, "kernel_size"),
        spread(dilation, 2, "dilation"),
        spread(padding, 2, "padding"),
        spread(stride, 2, "stride"),
    )
    return wrap(record(operators.unfold, (input.call,), attributes))


def fold(
    input: Tensor,
    output_size: Sizes,
    kernel_size: Sizes,
    dilation: Sizes = 1,
    padding: Sizes = 0,
    stride: Sizes = 1,
) -> Tensor:
    """Columns added back where `unfold` took them: (N, C * KH * KW, windows) -> (N, C, H, W).

    `output_size` is (H, W). Elements of overlapping windows are summed.

    >>> columns = F.unfold(metaop.ones(1, 1, 2, 3), kernel_size=2)
    >>> F.fold(columns, (2, 3), kernel_size=2)
    tensor([[[[1., 2., 1.],
              [1., 2., 1.]]]])
    """
    attributes = (
        spread(output_size, 2, "output_size"),
        spread(kernel_size, 2, "kernel_size"),
        spread(dilation, 2, "dilation"),
        spread(padding, 2, "padding"),
        spread(stride, 2, "stride"),
    )
    return wrap(record(operators.fold, (input.call,), attributes))
