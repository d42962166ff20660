"""The gradients of convolutions, as functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from metaop.differentiation import tape
from metaop.nn.functional import conv1d, conv2d, conv3d
from metaop.nn.functional.arguments import Sizes
from metaop.nn.functional.convolution import Padding
from metaop.tensor.core import Tensor
from metaop.tensor.grad_mode import enable_grad, is_grad_enabled
from metaop.tensor.gradients import start_of
from metaop.tensor.sparse.tensors import wrap_gradient

__all__ = [
    *("conv1d_input", "conv1d_weight", "conv2d_input", "conv2d_weight"),
    *("conv3d_input", "conv3d_weight"),
]


def conv1d_input(
    input_size: Sequence[int],
    weight: Tensor,
    grad_output: Tensor,
    stride: Sizes = 1,
    padding: Padding = 0,
    dilation: Sizes = 1,
    groups: int = 1,
) -> Tensor:
    """The gradient of `conv1d` by its input, of shape `input_size`, for that of its result.

    >>> size, weight = (1, 1, 4), metaop.tensor([[[1.0, 2.0]]])
    >>> metaop.nn.grad.conv1d_input(size, weight, metaop.ones(1, 1, 3))
    tensor([[[1., 3., 3., 2.]]])
    """
    return _by_input(conv1d, input_size, weight, grad_output, (stride, padding, dilation, groups))


def conv1d_weight(
    input: Tensor,
    weight_size: Sequence[int],
    grad_output: Tensor,
    stride: Sizes = 1,
    padding: Padding = 0,
    dilation: Sizes = 1,
    groups: int = 1,
) -> Tensor:
    """The gradient of `conv1d` by its weight, of shape `weight_size`, for that of its result.

    >>> images = metaop.tensor([[[1.0, 2.0, 3.0, 4.0]]])
    >>> metaop.nn.grad.conv1d_weight(images, (1, 1, 2), metaop.ones(1, 1, 3))
    tensor([[[6., 9.]]])
    """
    return _by_weight(conv1d, input, weight_size, grad_output, (stride, padding, dilation, groups))


def conv2d_input(
    input_size: Sequence[int],
    weight: Tensor,
    grad_output: Tensor,
    stride: Sizes = 1,
    padding: Padding = 0,
    dilation: Sizes = 1,
    groups: int = 1,
) -> Tensor:
    """The gradient of `conv2d` by its input, of shape `input_size`, for that of its result.

    >>> size, weight = (1, 1, 2, 2), metaop.ones(1, 1, 2, 1)
    >>> metaop.nn.grad.conv2d_input(size, weight, metaop.ones(1, 1, 1, 2))
    tensor([[[[1., 1.],
              [1., 1.]]]])
    """
    return _by_input(conv2d, input_size, weight, grad_output, (stride, padding, dilation, groups))


def conv2d_weight(
    input: Tensor,
    weight_size: Sequence[int],
    grad_output: Tensor,
    stride: Sizes = 1,
    padding: Padding = 0,
    dilation: Sizes = 1,
    groups: int = 1,
) -> Tensor:
    """The gradient of `conv2d` by its weight, of shape `weight_size`, for that of its result.

    >>> images = metaop.tensor([[[[1.0, 2.0], [3.0, 4.0]]]])
    >>> metaop.nn.grad.conv2d_weight(images, (1, 1, 2, 1), metaop.ones(1, 1, 1, 2))
    tensor([[[[3.],
              [7.]]]])
    """
    return _by_weight(conv2d, input, weight_size, grad_output, (stride, padding, dilation, groups))


def conv3d_input(
    input_size: Sequence[int],
    weight: Tensor,
    grad_output: Tensor,
    stride: Sizes = 1,
    padding: Padding = 0,
    dilation: Sizes = 1,
    groups: int = 1,
) -> Tensor:
    """The gradient of `conv3d` by its input, of shape `input_size`, for that of its result.

    >>> size, weight = (1, 1, 1, 1, 3), metaop.ones(1, 1, 1, 1, 2)
    >>> metaop.nn.grad.conv3d_input(size, weight, metaop.ones(1, 1, 1, 1, 2)).flatten()
    tensor([1., 2., 1.])
    """
    return _by_input(conv3d, input_size, weight, grad_output, (stride, padding, dilation, groups))


def conv3d_weight(
    input: Tensor,
    weight_size: Sequence[int],
    grad_output: Tensor,
    stride: Sizes = 1,
    padding: Padding = 0,
    dilation: Sizes = 1,
    groups: int = 1,
) -> Tensor:
    """The gradient of `conv3d` by its weight, of shape `weight_size`, for that of its result.

    >>> volume = metaop.ones(1, 1, 2, 2, 2)
    >>> metaop.nn.grad.conv3d_weight(volume, (1, 1, 2, 2, 1), metaop.ones(1, 1, 1, 1, 2)).sum()
    tensor(8.)
    """
    return _by_weight(conv3d, input, weight_size, grad_output, (stride, padding, dilation, groups))


def _by_input(
    convolve: Callable[..., Tensor],
    size: Sequence[int],
    weight: Tensor,
    cotangent: Tensor,
    options: tuple[Sizes | Padding, ...],
) -> Tensor:
    return _derived(lambda input: convolve(input, weight, None, *options), weight, size, cotangent)


def _by_weight(
    convolve: Callable[..., Tensor],
    input: Tensor,
    size: Sequence[int],
    cotangent: Tensor,
    options: tuple[Sizes | Padding, ...],
) -> Tensor:
    return _derived(lambda weight: convolve(input, weight, None, *options), input, size, cotangent)


def _derived(
    linear: Callable[[Tensor], Tensor], like: Tensor, size: Sequence[int], cotangent: Tensor
) -> Tensor:
    """The gradient of a linear function, whatever its argument, which has a size."""
    again = is_grad_enabled()
    with enable_grad():
        argument = like.new_zeros(tuple(size)).requires_grad_()
        roots = start_of([linear(argument)], [cotangent])
    found = tape.backward(
        roots, retain_graph=again, create_graph=again, targets=[argument.call], accumulate=False
    )
    return wrap_gradient(found[argument.call])
