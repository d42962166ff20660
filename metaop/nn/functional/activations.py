"""Activation functions. Each takes `inplace=True` to write its result into the input."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from typing import Any

from metaop.errors import ArgumentError
from metaop.operators import activations as operators
from metaop.operators.pointwise import POINTWISE
from metaop.tensor.arguments import wrap_dim
from metaop.tensor.core import Tensor, wrap
from metaop.tensor.functions.selection import operand_call
from metaop.tensor.generator import seed_call
from metaop.tensor.surface import written_words
from metaop.unified_graph.composite import Composite
from metaop.unified_graph.dtype import DType
from metaop.unified_graph.recording import record

_NEG = POINTWISE["neg"]
_RELU = POINTWISE["relu"]
_SIGMOID = POINTWISE["sigmoid"]
_TANH = POINTWISE["tanh"]
_LOGSIGMOID = POINTWISE["logsigmoid"]


def _activate(
    operator: Composite, input: Tensor, inplace: bool = False, attributes: tuple[Any, ...] = ()
) -> Tensor:
    call = record(operator, (input.call,), attributes)
    if not inplace:
        return wrap(call)
    input._rebind(call, operator.name + "_")
    return input


def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """max(0, x) for every element; the gradient at 0 is 0 and NaN stays NaN.

    The shape is unchanged. `inplace` writes the result into the input.

    >>> F.relu(metaop.tensor([-1.0, 0.0, 2.0]))
    tensor([0., 0., 2.])
    """
    return _activate(_RELU, input, inplace)


def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """min(max(0, x), 6) for every element; the shape is unchanged.

    >>> F.relu6(metaop.tensor([-1.0, 3.0, 8.0]))
    tensor([0., 3., 6.])
    """
    return _activate(operators.hardtanh, input, inplace, (0.0, 6.0))


def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """x where it is positive, else x * negative_slope; the shape is unchanged.

    >>> F.leaky_relu(metaop.tensor([-1.0, 2.0]), 0.1)
    tensor([-0.1000,  2.0000])
    """
    return _activate(operators.leaky_relu, input, inplace, (float(negative_slope),))


def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """x where it is positive, else alpha * (exp(x) - 1); the shape is unchanged.

    From Clevert et al., "Fast and accurate deep network learning by exponential linear units"
    (2016).

    >>> F.elu(metaop.tensor([-1.0, 2.0]))
    tensor([-0.6321,  2.0000])
    """
    return _activate(operators.elu, input, inplace, (float(alpha),))


def selu(input: Tensor, inplace: bool = False) -> Tensor:
    """ELU with the constants that preserve mean 0 and variance 1 through deep networks.

    The shape is unchanged. From Klambauer et al., "Self-normalizing neural networks" (2017).

    >>> F.selu(metaop.tensor([-1.0, 1.0]))
    tensor([-1.1113,  1.0507])
    """
    return _activate(operators.selu, input, inplace)


def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """x where it is positive, else alpha * (exp(x / alpha) - 1); the shape is unchanged.

    Unlike `elu`, its slope at 0 is 1 for every alpha. Raises ArgumentError if alpha is 0.

    >>> F.celu(metaop.tensor([-1.0, 2.0]), alpha=2.0)
    tensor([-0.7869,  2.0000])
    """
    if alpha == 0:
        raise ArgumentError("celu: alpha cannot be 0", fix="pass another alpha")
    return _activate(operators.celu, input, inplace, (float(alpha),))


def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """x times the normal distribution function of x; `approximate="tanh"` is cheaper.

    The shape is unchanged. Raises ArgumentError unless `approximate` is "none" or "tanh". From
    Hendrycks and Gimpel, "Gaussian error linear units" (2016).

    >>> F.gelu(metaop.tensor([-1.0, 0.0, 1.0]))
    tensor([-0.1587,  0.0000,  0.8413])
    """
    if approximate not in ("none", "tanh"):
        raise ArgumentError(
            f"gelu: approximate must be 'none' or 'tanh', got {approximate!r}", fix="use one"
        )
    return _activate(operators.gelu, input, False, (approximate,))


def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """x * sigmoid(x) for every element, also called swish; the shape is unchanged.

    >>> F.silu(metaop.tensor([-1.0, 0.0, 1.0]))
    tensor([-0.2689,  0.0000,  0.7311])
    """
    return _activate(operators.silu, input, inplace)


def mish(input: Tensor, inplace: bool = False) -> Tensor:
    """x * tanh(softplus(x)) for every element; the shape is unchanged.

    From Misra, "Mish: a self regularized non-monotonic activation function" (2020).

    >>> F.mish(metaop.tensor([-1.0, 0.0, 1.0]))
    tensor([-0.3034,  0.0000,  0.8651])
    """
    return _activate(operators.mish, input, inplace)


def softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """log(1 + exp(beta * x)) / beta, and x itself where beta * x exceeds `threshold`.

    A smooth `relu`, which it approaches as beta grows; the shape is unchanged.

    >>> F.softplus(metaop.tensor([-1.0, 0.0, 30.0]))
    tensor([ 0.3133,  0.6931, 30.0000])
    """
    return _activate(operators.softplus, input, False, (float(beta), float(threshold)))


def softsign(input: Tensor) -> Tensor:
    """x / (1 + |x|), which is between -1 and 1; the shape is unchanged.

    >>> F.softsign(metaop.tensor([-3.0, 1.0]))
    tensor([-0.7500,  0.5000])
    """
    return _activate(operators.softsign, input)


def hardtanh(
    input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False
) -> Tensor:
    """x clamped to [min_val, max_val]; the shape is unchanged.

    Raises ArgumentError if min_val is greater than max_val.

    >>> F.hardtanh(metaop.tensor([-2.0, 0.5, 3.0]))
    tensor([-1.0000,  0.5000,  1.0000])
    """
    if min_val > max_val:
        raise ArgumentError(
            f"hardtanh: min_val {min_val} is greater than max_val {max_val}", fix="swap them"
        )
    return _activate(operators.hardtanh, input, inplace, (float(min_val), float(max_val)))


def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """x * relu6(x + 3) / 6, close to `silu` but without exponentials; the shape is unchanged.

    From Howard et al., "Searching for MobileNetV3" (2019).

    >>> F.hardswish(metaop.tensor([-4.0, 1.0, 4.0]))
    tensor([-0.0000, 0.6667, 4.0000])
    """
    return _activate(operators.hardswish, input, inplace)


def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """relu6(x + 3) / 6, close to `sigmoid` but without exponentials; the shape is unchanged.

    >>> F.hardsigmoid(metaop.tensor([-4.0, 0.0, 1.5]))
    tensor([0.0000, 0.5000, 0.7500])
    """
    return _activate(operators.hardsigmoid, input, inplace)


def hardshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """x where |x| > lambd, else 0; the shape is unchanged.

    >>> F.hardshrink(metaop.tensor([-1.0, 0.3, 0.8]))
    tensor([-1.0000,  0.0000,  0.8000])
    """
    return _activate(operators.hardshrink, input, False, (float(lambd),))


def softshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """x moved towards 0 by `lambd`, and 0 where |x| <= lambd.

    The shape is unchanged. Raises ArgumentError if `lambd` is negative.

    >>> F.softshrink(metaop.tensor([-1.0, 0.25, 0.75]))
    tensor([-0.5000,  0.0000,  0.2500])
    """
    if lambd < 0:
        raise ArgumentError(f"softshrink: lambd must be 0 or more, got {lambd}", fix="negate it")
    return _activate(operators.softshrink, input, False, (float(lambd),))


def tanhshrink(input: Tensor) -> Tensor:
    """x - tanh(x) for every element; the shape is unchanged.

    >>> F.tanhshrink(metaop.tensor([-1.0, 0.0, 1.0]))
    tensor([-0.2384,  0.0000,  0.2384])
    """
    return _activate(operators.tanhshrink, input)


def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """x where it exceeds `threshold`, else `value`; the shape is unchanged.

    >>> F.threshold(metaop.tensor([0.5, 1.5]), 1.0, -1.0)
    tensor([-1.0000,  1.5000])
    """
    return _activate(operators.threshold, input, inplace, (threshold, value))


def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """x where it is positive, else x times a learned slope: one, or one per channel.

    `weight` has the shape (1) or (C), where C is the size of dimension 1 of the input. From He et
    al., "Delving deep into rectifiers" (2015).

    >>> F.prelu(metaop.tensor([[-1.0, -1.0]]), metaop.tensor([0.1, 0.5]))
    tensor([[-0.1000, -0.5000]])
    """
    return wrap(record(operators.prelu, (input.call, weight.call)))


def rrelu(
    input: Tensor,
    lower: float = 1.0 / 8,
    upper: float = 1.0 / 3,
    training: bool = False,
    inplace: bool = False,
) -> Tensor:
    """x where it is positive, else x times a slope: random in training, else the mean slope.

    Every element draws its own slope between `lower` and `upper`; the shape is unchanged. Raises
    ArgumentError if `lower` is greater than `upper`.

    >>> F.rrelu(metaop.tensor([-1.0, 2.0]), 0.0, 0.5)
    tensor([-0.2500,  2.0000])
    """
    if lower > upper:
        raise ArgumentError(f"rrelu: lower {lower} is greater than upper {upper}", fix="swap them")
    if not training:
        return leaky_relu(input, (lower + upper) / 2, inplace)
    source = input.call
    calls = (source, seed_call(None, source.type.device))
    call = record(operators.rrelu, calls, (float(lower), float(upper)))
    if not inplace:
        return wrap(call)
    input._rebind(call, "rrelu_")
    return input


def gumbel_softmax(
    logits: Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1
) -> Tensor:
    """A differentiable sample of one class along `dim`; one-hot with `hard`. `eps` is ignored.

    The result has the shape of `logits`. Changing the temperature `tau` does not recompile. From
    Jang et al., "Categorical reparameterization with Gumbel-softmax" (2017).

    >>> sample = F.gumbel_softmax(metaop.zeros(2, 5), hard=True)
    >>> sample.sum(1)
    tensor([1., 1.])
    """
    source = logits.call
    device = source.type.device
    calls = (source, seed_call(None, device), operand_call(tau, source.type.dtype, device))
    attributes = (hard, wrap_dim(dim, logits.ndim))
    return wrap(record(operators.gumbel_softmax, calls, attributes))


def glu(input: Tensor, dim: int = -1) -> Tensor:
    """The first half of dimension `dim` times the sigmoid of the second half.

    The dimension is halved; its size must be even. From Dauphin et al., "Language
    modeling with gated convolutional networks" (2017).

    >>> F.glu(metaop.tensor([[1.0, 2.0, 0.0, 100.0]]))
    tensor([[0.5000, 2.0000]])
    """
    return _activate(operators.glu, input, False, (wrap_dim(dim, input.ndim),))


def logsigmoid(input: Tensor) -> Tensor:
    """log(sigmoid(x)) for every element, stable for large negative x; the shape is unchanged.

    >>> F.logsigmoid(metaop.tensor([-1000.0, 0.0]))
    tensor([-1.0000e+03, -6.9315e-01])
    """
    return _activate(_LOGSIGMOID, input)


def sigmoid(input: Tensor) -> Tensor:
    """1 / (1 + exp(-x)), which is between 0 and 1; the shape is unchanged.

    >>> F.sigmoid(metaop.tensor([-1.0, 0.0, 1.0]))
    tensor([0.2689, 0.5000, 0.7311])
    """
    return _activate(_SIGMOID, input)


def tanh(input: Tensor) -> Tensor:
    """The hyperbolic tangent, which is between -1 and 1; the shape is unchanged.

    >>> F.tanh(metaop.tensor([-1.0, 0.0, 1.0]))
    tensor([-0.7616,  0.0000,  0.7616])
    """
    return _activate(_TANH, input)


def softmax(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: DType | None = None
) -> Tensor:
    """exp(x) over its sum along `dim`; `dtype` converts the input first.

    The shape is unchanged; the result sums to 1 along `dim`. Large x do not overflow.

    >>> F.softmax(metaop.tensor([[0.0, 0.0], [1000.0, 0.0]]), dim=1)
    tensor([[0.5000, 0.5000],
            [1.0000, 0.0000]])
    """
    return _activate(operators.softmax, input, False, (_softmax_dim(dim, input), dtype))


def softmin(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: DType | None = None
) -> Tensor:
    """softmax(-x): the smallest x gets the largest probability; the shape is unchanged.

    >>> F.softmin(metaop.tensor([0.0, 1.0]), dim=0)
    tensor([0.7311, 0.2689])
    """
    return softmax(_activate(_NEG, input), dim, _stacklevel, dtype)


def log_softmax(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: DType | None = None
) -> Tensor:
    """log(softmax(x)) along `dim`, stable for large x; `dtype` converts the input first.

    The shape is unchanged.

    >>> F.log_softmax(metaop.tensor([0.0, 1000.0]), dim=0)
    tensor([-1000.,     0.])
    """
    return _activate(operators.log_softmax, input, False, (_softmax_dim(dim, input), dtype))


def _softmax_dim(dim: int | None, input: Tensor) -> int:
    if dim is None:
        warnings.warn("implicit dimension choice for softmax is deprecated; pass dim", stacklevel=3)
        dim = 0 if input.ndim in (0, 1, 3) else 1
    return wrap_dim(dim, input.ndim)


def _in_place(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The in-place variant of an activation."""

    def written(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return function(input, *args, inplace=True, **kwargs)

    written.__name__ = written.__qualname__ = function.__name__ + "_"
    written.__doc__ = written_words(function)
    whole = inspect.signature(function)
    rest = [one for name, one in whole.parameters.items() if name != "inplace"]
    written.__signature__ = whole.replace(parameters=rest)  # type: ignore[attr-defined]
    return written


relu_ = _in_place(relu)
leaky_relu_ = _in_place(leaky_relu)
elu_ = _in_place(elu)
selu_ = _in_place(selu)
celu_ = _in_place(celu)
hardtanh_ = _in_place(hardtanh)
rrelu_ = _in_place(rrelu)
threshold_ = _in_place(threshold)
