"""Normalisation over batches, layers, groups and instances."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from metaop.errors import ArgumentError
from metaop.nn.functional.arguments import optional
from metaop.operators import normalisation as operators
from metaop.tensor.arguments import sizes, wrap_dim
from metaop.tensor.casting import casts_on_cpu, in_float32
from metaop.tensor.core import Tensor, wrap
from metaop.unified_graph.composite import Composite
from metaop.unified_graph.recording import Call, part, record, scalar_leaf

# The recorded values of operands; None for absent ones.
Calls = tuple["Call | None", ...]


def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Normalises each channel by batch statistics in training, else by running statistics.

    input is (N, C, …), all else (C). In training, `running_mean` and `running_var` (unbiased) are
    moved in place towards the batch statistics by the fraction `momentum`. From Ioffe and Szegedy,
    "Batch normalization" (2015).

    >>> mean, variance = metaop.zeros(1), metaop.ones(1)
    >>> F.batch_norm(metaop.tensor([[1.0], [3.0]]), mean, variance, training=True)
    tensor([[-1.0000],
            [ 1.0000]])
    >>> mean
    tensor([0.2000])
    """
    if input.shape == (0,):
        # PyTorch accepts an empty tensor whichever dimension is empty.
        return input.clone()
    parameters: Calls = (input.call, optional(weight), optional(bias))
    if not training:
        if running_mean is None or running_var is None:
            raise ArgumentError(
                "batch_norm: running_mean and running_var are needed when not training",
                fix="pass them, or training=True",
            )
        calls = (*parameters, running_mean.call, running_var.call)
        return wrap(record(operators.batch_norm_evaluation, calls, (eps,)))
    if running_mean is None or running_var is None:
        calls = (*parameters, None, None, None)
        return wrap(record(operators.batch_norm_training, calls, (eps,)))
    statistics = (running_mean, running_var)
    return _training(operators.batch_norm_training, parameters, statistics, momentum, eps)


def _training(
    operator: Composite,
    parameters: Calls,
    running: tuple[Tensor, Tensor],
    momentum: float,
    eps: float,
) -> Tensor:
    """Normalises by the statistics of the input and updates the running ones."""
    old, variance = running[0].call, running[1].call
    rate = scalar_leaf(momentum, old.type.dtype, old.type.device)
    call = record(operator, (*parameters, old, variance, rate), (eps,))
    for position, statistic in enumerate(running, 1):
        updated = part(call, position)
        # The next step's statistics must not keep the graph of this one.
        updated.requires_grad = False
        statistic._rebind(updated, operator.name)
    return wrap(call)


def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Normalises each sample and channel over the other dimensions: input (N, C, …).

    Without `use_input_stats`, the running statistics (C) are used instead. From Ulyanov et al.,
    "Instance normalization" (2016).

    >>> F.instance_norm(metaop.tensor([[[1.0, 3.0], [10.0, 30.0]]]))
    tensor([[[-1.0000,  1.0000],
             [-1.0000,  1.0000]]])
    """
    if not use_input_stats:
        return batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    parameters: Calls = (input.call, optional(weight), optional(bias))
    if running_mean is None or running_var is None:
        calls = (*parameters, None, None, None)
        return wrap(record(operators.instance_norm, calls, (eps,)))
    statistics = (running_mean, running_var)
    return _training(operators.instance_norm, parameters, statistics, momentum, eps)


def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Normalises over the last dimensions, whose extents are `normalized_shape`.

    Mean becomes 0 and variance 1; then `weight` scales and `bias` shifts, both of that shape.
    Raises ShapeError for other extents. From Ba et al., "Layer normalization" (2016).

    >>> F.layer_norm(metaop.tensor([[1.0, 3.0], [10.0, 30.0]]), (2,))
    tensor([[-1.0000,  1.0000],
            [-1.0000,  1.0000]])
    """
    calls = (input.call, optional(weight), optional(bias))
    return wrap(record(operators.layer_norm, calls, (_shape(normalized_shape), eps)))


def rms_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Tensor:
    """Divides by the root mean square over the last dimensions.

    Their extents are `normalized_shape`, as is the shape of `weight`. `eps` defaults to the machine
    epsilon of the computation type. From Zhang and Sennrich, "Root mean square layer normalization"
    (2019).

    >>> F.rms_norm(metaop.tensor([[1.0, 7.0]]), (2,))
    tensor([[0.2000, 1.4000]])
    """
    if eps is None:
        eps = 2.0**-52 if input.dtype.itemsize == 8 else 2.0**-23
    calls = (input.call, optional(weight))
    return wrap(record(operators.rms_norm, calls, (_shape(normalized_shape), eps)))


def _shape(normalized_shape: int | Sequence[int]) -> tuple[int, ...]:
    return sizes((normalized_shape,))


def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Normalises each sample over each of `num_groups` groups of channels: input (N, C, …).

    `weight` and `bias` are (C). From Wu and He, "Group normalization" (2018).

    >>> F.group_norm(metaop.tensor([[1.0, 3.0, 10.0, 30.0]]), 2)
    tensor([[-1.0000,  1.0000, -1.0000,  1.0000]])
    """
    calls = (input.call, optional(weight), optional(bias))
    return wrap(record(operators.group_norm, calls, (num_groups, eps)))


def local_response_norm(
    input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> Tensor:
    """Divides by `(k + alpha * mean square of size neighbouring channels) ** beta`.

    input is (N, C, …), and so is the result. From Krizhevsky et al., "ImageNet classification with
    deep convolutional neural networks" (2012).

    >>> F.local_response_norm(metaop.ones(1, 3, 1), 3, alpha=3.0, beta=1.0)
    tensor([[[0.3333],
             [0.2500],
             [0.3333]]])
    """
    attributes = (size, float(alpha), float(beta), float(k))
    # PyTorch computes the mean by `avg_pool3d`, which its CPU autocast lists, or `avg_pool2d`.
    return (_responses_in_float32 if input.ndim > 3 else _responses)(input, attributes)


def _responses(input: Tensor, attributes: tuple[Any, ...]) -> Tensor:
    return wrap(record(operators.local_response_norm, (input.call,), attributes))


_responses_in_float32 = casts_on_cpu(in_float32)(_responses)


def normalize(
    input: Tensor,
    p: float = 2.0,
    dim: int | Sequence[int] = 1,
    eps: float = 1e-12,
) -> Tensor:
    """Divides by the p-norm along `dim`, but at least by `eps`; the shape is unchanged.

    >>> F.normalize(metaop.tensor([[3.0, 4.0], [0.0, 0.0]]))
    tensor([[0.6000, 0.8000],
            [0.0000, 0.0000]])
    """
    chosen = tuple(wrap_dim(one, input.ndim) for one in sizes((dim,)))
    return wrap(record(operators.normalize, (input.call,), (float(p), chosen, eps)))
