"""Parameters as one vector, and back."""

from __future__ import annotations

from collections.abc import Iterable

from metaop.tensor.core import Tensor
from metaop.tensor.functions.joining import cat
from metaop.tensor.grad_mode import no_grad


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """Flattens and concatenates all parameters into one vector of their total size.

    >>> nn.utils.parameters_to_vector([metaop.ones(1, 2), metaop.zeros(1)])
    tensor([1., 1., 0.])
    """
    return cat([parameter.reshape(-1) for parameter in parameters], 0)


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Writes slices of a vector to the parameters: the inverse of `parameters_to_vector`.

    Its length is the total number of their elements.

    >>> x = nn.Parameter(metaop.zeros(1, 2))
    >>> nn.utils.vector_to_parameters(metaop.tensor([1.0, 2.0]), [x])
    >>> x.tolist()
    [[1.0, 2.0]]
    """
    if not isinstance(vec, Tensor):
        raise TypeError(f"expected Tensor, but got: {type(vec).__name__}")
    start = 0
    with no_grad():
        for parameter in parameters:
            stop = start + parameter.numel()
            parameter.copy_(vec[start:stop].reshape(parameter.shape))
            start = stop
