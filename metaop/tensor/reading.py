"""Values that Python reads: `numpy`, `item`, `tolist`, and the memory behind them.

Reading computes what is pending.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from metaop.codegen.memory.buffers import Buffer, settled
from metaop.errors import ArgumentTypeError, GradientError, ShapeError, UnsupportedError
from metaop.execution.executor import realize
from metaop.reindex.strided import place_in_source, strided_values
from metaop.tensor.core import Tensor
from metaop.tensor.exposed import lend
from metaop.tensor.surface import method
from metaop.unified_graph.recording import Call, modes
from metaop.unified_graph.tensor_type import META
from metaop.unified_graph.tracing import state


@method()
def buffer(input: Tensor) -> Buffer:
    """The memory of the value, computed now if it is pending."""
    call = input.call
    if call.type.device is META:
        raise UnsupportedError(
            f"Cannot copy out of meta tensor; no data! (shape {list(call.type.shape)})",
            fix="make it on another device, for example with Module.to_empty(device='cpu')",
        )
    if call.buffer is None:
        if call.scalar is not None:
            value = np.asarray(call.scalar).astype(call.type.dtype.numpy)
            placement = call.type.device.placement
            spread = Buffer.from_numpy if placement is None else placement.everywhere
            call.buffer = spread(value)
        else:
            realize(call)
    found = call.buffer
    assert found is not None
    settled()
    return found


@method()
def numpy(input: Tensor, *, force: bool = False) -> np.ndarray:
    """The values as a NumPy array that shares memory with the tensor: each sees the other's writes.

    Raises GradientError for a tensor that requires grad, and ArgumentTypeError for one that is not
    in host memory, unless `force` is set. For a global tensor it is a copy of the whole, and every
    rank of its placement has to call it.
    """
    call = input.call
    device = call.type.device
    if device.type != "cpu" and not force:
        raise ArgumentTypeError(
            f"can't convert {device} device type tensor to numpy",
            fix="use tensor.cpu() to copy it to host memory first",
        )
    if call.requires_grad and not force and modes.gradients:
        raise GradientError(
            "can't call numpy() on a tensor that requires grad",
            fix="use tensor.detach().numpy()",
        )
    if device.placement is not None:
        return input._array().copy()
    lent = lend(input)
    return input._array() if lent is None else lent


@method()
def _array(input: Tensor) -> np.ndarray:
    """The values as an array on the tensor's memory, whether or not it requires grad."""
    kind = input._call.type
    return input.buffer().view(kind.shape, kind.dtype.numpy)


@method()
def item(input: Tensor) -> int | float | bool:
    """The value of a tensor with one element as a Python number."""
    call = input.call
    kind = call.type
    if kind.shape and kind.size != 1:
        raise ShapeError(
            f"a Tensor with {kind.size} elements cannot be converted to Scalar "
            f"(shape {list(kind.shape)})",
            fix="index or reduce it first",
        )
    place = None if state.trace is not None else place_in_source(call)
    if place is None:
        buffer, position = input.buffer(), 0
    else:
        settled()
        buffer, position = call.inputs[0].buffer, place[0]
    if isinstance(buffer, Buffer):
        return buffer.number(kind.dtype.numpy, position)
    return input._array().item()


@method()
def tolist(input: Tensor) -> Any:
    """The values as nested Python lists (a number for a 0-d tensor)."""
    found = _strided(input.call)
    return (input._array() if found is None else found).tolist()


def _strided(call: Call) -> np.ndarray | None:
    """A strided array on the memory of a computed value that `call` is a view of, else None.

    A capture must see every read of memory, so there is none while a function is traced.
    """
    return None if state.trace is not None else strided_values(call)
