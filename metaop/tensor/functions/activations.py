"""The activation functions that tensors offer as methods; all others are in `nn.functional`."""

from __future__ import annotations

from metaop.operators import activations as operators
from metaop.tensor.arguments import wrap_dim
from metaop.tensor.core import Tensor, wrap
from metaop.tensor.surface import public
from metaop.unified_graph.dtype import DType
from metaop.unified_graph.recording import record


@public(method=True, out=True, float32_on_cuda="softmax")
def softmax(input: Tensor, dim: int, dtype: DType | None = None) -> Tensor:
    """exp(x) divided by its sum along `dim`; `dtype` converts the input first.

    The shape stays, and the result sums to 1 along `dim`. Large x do not overflow.

    >>> metaop.softmax(metaop.tensor([[0.0, 0.0], [1000.0, 0.0]]), 1)
    tensor([[0.5000, 0.5000],
            [1.0000, 0.0000]])
    """
    return wrap(record(operators.softmax, (input.call,), (wrap_dim(dim, input.ndim), dtype)))


@public(method=True, out=True, float32_on_cuda="log_softmax")
def log_softmax(input: Tensor, dim: int, dtype: DType | None = None) -> Tensor:
    """log(softmax(x)) along `dim`, stable for large x; the shape stays.

    >>> metaop.log_softmax(metaop.tensor([0.0, 1000.0]), 0)
    tensor([-1000.,     0.])
    """
    return wrap(record(operators.log_softmax, (input.call,), (wrap_dim(dim, input.ndim), dtype)))


@public(method=True, low_precision="prelu")
def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """x if it is positive, else x times the slope of its channel.

    `weight` has the shape (1) or (C), where C is the size of dimension 1.

    >>> metaop.prelu(metaop.tensor([[-1.0, -1.0]]), metaop.tensor([0.1, 0.5]))
    tensor([[-0.1000, -0.5000]])
    """
    return wrap(record(operators.prelu, (input.call, weight.call)))


@public(method=True)
def hardshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """x if it is outside -lambd … lambd, else 0; the shape stays.

    >>> metaop.hardshrink(metaop.tensor([-1.0, 0.3, 0.8]))
    tensor([-1.0000,  0.0000,  0.8000])
    """
    return wrap(record(operators.hardshrink, (input.call,), (float(lambd),)))
