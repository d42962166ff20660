"""The values of local tensors as arrays where they lie: NumPy's, or cupy's on a GPU."""

from __future__ import annotations

from typing import Any

from metaop.codegen.cuda.device import runtime
from metaop.dist.memory import Memory
from metaop.tensor.core import Tensor, from_array, wrap
from metaop.unified_graph.dtype import DType
from metaop.unified_graph.recording import leaf
from metaop.unified_graph.tensor_type import CPU, Device, TensorType


def array_of(input: Tensor) -> Any:
    """The value of a local tensor, in its own memory, as an array in order."""
    return array_at(input.buffer(), input._call.type)


def array_at(buffer: Any, kind: TensorType) -> Any:
    """The value in the memory of a local tensor as an array in order."""
    if kind.device is CPU:
        return buffer.view(kind.shape, kind.dtype.numpy)
    return runtime(kind.device.index or 0).array_of(buffer, kind.shape, kind.dtype.numpy)


def array_in(memory: Memory, input: Tensor) -> Any:
    """The value of a local tensor as an array in a memory, copied if it does not lie there."""
    if input.device is memory.device:
        return array_of(input)
    return memory.put(input._array())


def tensor_on(array: Any, dtype: DType, device: Device) -> Tensor:
    """A leaf tensor on the memory of an array of a device."""
    if device is CPU:
        return from_array(array, dtype)
    kind = TensorType(tuple(array.shape), dtype, device)
    return wrap(leaf(kind, runtime(device.index or 0).buffer_of(array)))
