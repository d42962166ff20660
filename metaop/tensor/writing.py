"""Results written into tensors that exist: the in-place form of any function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from metaop.errors import DTypeError
from metaop.operators.basic import clone, convert
from metaop.tensor.casting import without_casts
from metaop.tensor.core import Tensor
from metaop.unified_graph.dtype import DType, kind_rank
from metaop.unified_graph.recording import Call, modes, next_sequence, record


def in_place(tensor: Tensor, function: Callable[..., Tensor], *args: Any, **kwargs: Any) -> Tensor:
    """Writes `function(tensor, …)` into the tensor: the in-place form of any function.

    No automatic cast happens. The result is converted to the tensor's dtype; a result of a
    higher kind (float into an integer tensor) is an error, as in PyTorch.
    """
    started = next_sequence()
    if modes.casts is None:
        result = function(tensor, *args, **kwargs)
    else:
        with without_casts():
            result = function(tensor, *args, **kwargs)
    name = function.__name__ + "_"
    call = convert_for_write(result, tensor.dtype, name)
    if call.sequence < started:
        # The value of another tensor: both go their own ways from here.
        call = record(clone, (call,))
    tensor._rebind(call, name, started)
    return tensor


def convert_for_write(result: Tensor, dtype: DType, operator: str) -> Call:
    """The value of `result` as `dtype`; DTypeError when the kind would be lowered."""
    if result.dtype is dtype:
        return result.call
    if kind_rank(result.dtype) > kind_rank(dtype):
        raise DTypeError(
            f"{operator}: result type {result.dtype.name} can't be cast to the desired output "
            f"type {dtype.name}",
            fix="convert the tensor with .to() first, or use the out-of-place form",
        )
    return record(convert, (result.call,), (dtype,))
