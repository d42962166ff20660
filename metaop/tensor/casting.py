"""Automatic casts of operands: what `metaop.amp.autocast` switches on.

PyTorch has a list of functions per device type: contractions run in the low precision, functions
that need range run in float32, functions of several operands take the widest type. Everything
else keeps the types that it is given. A function of tensors that is one composite names it in its
declaration (`surface.public`); a layer's is listed here. A function of several composites, or one
whose composite serves others too, has a `precision` in its declaration, or is decorated with
`casts_on_cpu` where it is not declared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any, TypeVar

from metaop.operators.basic import convert
from metaop.tensor.core import Tensor
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.composite import Composite
from metaop.unified_graph.dtype import DType
from metaop.unified_graph.recording import Call, modes, record

Function = TypeVar("Function", bound=Callable[..., Any])
# The type to which a function's operands are converted; None keeps the types that are given.
Policy = Callable[[list[Tensor], DType], "DType | None"]

_CONTRACTIONS = {
    *("linear", "convolution", "transposed_convolution", "attention", "attention_with_weights"),
    *("recurrent_cell", "recurrent_layer", "affine_grid"),
}
_LOSSES = {
    *("cosine_embedding_loss", "nll_loss", "cross_entropy_of_classes", "mse_loss", "l1_loss"),
    *("cross_entropy_of_probabilities", "huber_loss", "smooth_l1_loss", "kl_div", "ctc_loss"),
    *("binary_cross_entropy", "binary_cross_entropy_with_logits", "poisson_nll_loss"),
    *("hinge_embedding_loss", "margin_ranking_loss", "soft_margin_loss", "multi_margin_loss"),
    *("multilabel_margin_loss", "triplet_margin_loss", "grid_sample"),
}
# Composites of layers; those of tensors are added by the declarations of functions.
IN_LOW_PRECISION = {"cpu": {*_CONTRACTIONS}, "cuda": {*_CONTRACTIONS, "bilinear"}}
IN_FLOAT32 = {
    "cpu": _LOSSES | {"max_unpool", "fractional_max_pool"},
    "cuda": _LOSSES
    | {
        *("softplus", "layer_norm", "group_norm", "rms_norm", "instance_norm", "normalize"),
        *("cosine_similarity", "pairwise_distance", "gaussian_nll_loss"),
        *("multilabel_soft_margin_loss", "batch_norm_training", "batch_norm_evaluation"),
    },
}


class Casts:
    """The casts of one device type to one low precision; `modes.casts` while they are on."""

    __slots__ = ("device_type", "low")

    def __init__(self, device_type: str, low: DType) -> None:
        self.device_type = device_type
        self.low = low

    def __call__(
        self, composite: Composite, inputs: Sequence[Call | None]
    ) -> Sequence[Call | None]:
        """The operands of a call of `composite`, converted."""
        if composite.name in IN_LOW_PRECISION[self.device_type]:
            return self._converted(inputs, self.low)
        if composite.name in IN_FLOAT32[self.device_type]:
            return self._converted(inputs, dtypes.float32)
        return inputs

    def _converted(self, inputs: Sequence[Call | None], dtype: DType) -> list[Call | None]:
        return [self._one(call, dtype) for call in inputs]

    def _one(self, call: Call | None, dtype: DType) -> Call | None:
        if call is None or call.type.dtype is dtype or call.type.device.type != self.device_type:
            return call
        if not _is_castable(call.type.dtype):
            return call
        if call.scalar is not None and not call.requires_grad:
            return call
        with without_casts():
            return record(convert, (call,), (dtype,))


def _is_castable(dtype: DType) -> bool:
    return dtype.kind == "float" and dtype.itemsize < 8


@contextmanager
def without_casts() -> Iterator[None]:
    """Switches automatic casts off."""
    previous, modes.casts = modes.casts, None
    try:
        yield
    finally:
        modes.casts = previous


def in_float32(operands: list[Tensor], low: DType) -> DType | None:
    """Every operand becomes float32."""
    return dtypes.float32


def in_low_precision(operands: list[Tensor], low: DType) -> DType | None:
    """Every operand gets the low precision."""
    return low


def in_widest_type(operands: list[Tensor], low: DType) -> DType | None:
    """Every operand gets the type of the widest: float32 where their types differ."""
    types = {tensor.dtype for tensor in operands}
    return dtypes.float32 if len(types) > 1 else None


def as_given(operands: list[Tensor], low: DType) -> DType | None:
    """No operand changes, nor any operand of what the function calls."""
    return None


def casts_on_cpu(policy: Policy) -> Callable[[Function], Function]:
    """Decorates a function that `autocast` of the CPU runs in the type that `policy` chooses.

    Nothing that the function calls is cast again.
    """

    def decorate(function: Function) -> Function:
        @wraps(function)
        def cast(*args: Any, **kwargs: Any) -> Any:
            casts = modes.casts
            if casts is None or casts.device_type != "cpu":
                return function(*args, **kwargs)
            with without_casts():
                operands = list(_castable((args, kwargs), "cpu"))
                if operands and (dtype := policy(operands, casts.low)) is not None:
                    args, kwargs = cast_operands((args, kwargs), "cpu", dtype)
                return function(*args, **kwargs)

        return cast  # type: ignore[return-value]

    return decorate


def _castable(value: Any, device_type: str) -> Iterator[Tensor]:
    """The tensors in nested arguments that casts convert."""
    if isinstance(value, Tensor):
        if _is_castable(value.dtype) and value.device.type == device_type:
            yield value
    elif isinstance(value, (tuple, list, dict)):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _castable(one, device_type)


def cast_operands(value: Any, device_type: str, dtype: DType) -> Any:
    """Nested arguments with their tensors of a device type, float64 excepted, in `dtype`."""
    if isinstance(value, Tensor):
        castable = _is_castable(value.dtype) and value.device.type == device_type
        return value.to(dtype) if castable else value
    if isinstance(value, Mapping):
        return {name: cast_operands(one, device_type, dtype) for name, one in value.items()}
    if type(value) in (tuple, list):
        return type(value)(cast_operands(one, device_type, dtype) for one in value)
    return value
