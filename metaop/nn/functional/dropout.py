"""Dropout of elements and of whole channels."""

from __future__ import annotations

import warnings

from metaop.errors import ArgumentError
from metaop.operators import dropout as operators
from metaop.tensor.core import Tensor, wrap
from metaop.tensor.generator import seed_call
from metaop.unified_graph.composite import Composite
from metaop.unified_graph.recording import record


def _drop(
    operator: Composite,
    input: Tensor,
    probability: float,
    training: bool,
    inplace: bool,
    lead: int | None = None,
) -> Tensor:
    if not 0.0 <= probability <= 1.0:
        raise ArgumentError(
            f"{operator.name}: dropout probability has to be between 0 and 1, but got "
            f"{probability}",
            fix="p is the fraction that is dropped",
        )
    if not training or probability == 0.0:
        return input
    source = input.call
    calls = (source, seed_call(None, source.type.device))
    call = record(operator, calls, (float(probability), lead))
    if not inplace:
        return wrap(call)
    input._rebind(call, operator.name + "_")
    return input


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zeroes elements with probability `p` and scales the others by 1 / (1 - p).

    Shape and mean are unchanged. Without `training` it returns its input. Raises ArgumentError
    unless p is between 0 and 1. From Srivastava et al., "Dropout: a simple way to prevent neural
    networks from overfitting" (2014).

    >>> metaop.unique(F.dropout(metaop.ones(1000), 0.75))
    tensor([0., 4.])
    """
    return _drop(operators.dropout, input, p, training, inplace)


def alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """Dropout that preserves mean 0 and variance 1 of SELU activations.

    The shape is unchanged; without `training` it returns its input. From Klambauer et al.,
    "Self-normalizing neural networks" (2017).

    >>> len(metaop.unique(F.alpha_dropout(metaop.ones(1000), 0.5, training=True)))
    2
    """
    return _drop(operators.alpha_dropout, input, p, training, inplace)


def feature_alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """`alpha_dropout` of whole channels: input (N, C, …).

    Without `training` it returns its input.

    >>> result = F.feature_alpha_dropout(metaop.ones(1, 100, 5), 0.5, training=True)
    >>> bool((result == result[:, :, :1]).all())
    True
    """
    return _drop(operators.alpha_dropout, input, p, training, inplace, 2)


def dropout1d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """Zeroes whole channels of (N, C, L) or (C, L) with probability `p`.

    The others are scaled by 1 / (1 - p). Without `training` it returns its input.

    >>> result = F.dropout1d(metaop.ones(1, 100, 5), 0.5)
    >>> metaop.unique(result.sum(2))
    tensor([ 0., 10.])
    """
    return _drop_channels(1, input, p, training, inplace)


def dropout2d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """Zeroes whole channels of (N, C, H, W) with probability `p`.

    The others are scaled by 1 / (1 - p). Without `training` it returns its input. From Tompson et
    al., "Efficient object localization using convolutional networks" (2015).

    >>> result = F.dropout2d(metaop.ones(1, 100, 2, 2), 0.5)
    >>> metaop.unique(result.sum((2, 3)))
    tensor([0., 8.])
    """
    if input.ndim == 3:
        warnings.warn(
            "dropout2d: a 3-D input is taken as (N, C, L), as PyTorch does; use dropout1d",
            stacklevel=2,
        )
        return _drop(operators.dropout, input, p, training, inplace, 2)
    return _drop_channels(2, input, p, training, inplace)


def dropout3d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """Zeroes whole channels of (N, C, D, H, W) or (C, D, H, W) with probability `p`.

    The others are scaled by 1 / (1 - p). Without `training` it returns its input.

    >>> result = F.dropout3d(metaop.ones(1, 100, 1, 2, 2), 0.5)
    >>> metaop.unique(result.sum((2, 3, 4)))
    tensor([0., 8.])
    """
    return _drop_channels(3, input, p, training, inplace)


def _drop_channels(spatial: int, input: Tensor, p: float, training: bool, inplace: bool) -> Tensor:
    # The channels of an unbatched input come first.
    lead = 1 if input.ndim == spatial + 1 else 2
    return _drop(operators.dropout, input, p, training, inplace, lead)
