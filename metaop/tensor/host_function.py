"""Functions that the host computes (LAPACK in NumPy), with gradients written as tensor code."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from metaop.differentiation.tape import TapeEntry
from metaop.tensor.core import Tensor, from_array, wrap
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.recording import Call, modes

# Takes the results and their cotangents (None where nothing arrived), gives the gradients of the
# inputs. Its tensor operations are recorded, so it can be differentiated again.
Backward = Callable[[Sequence[Tensor], Sequence["Tensor | None"]], Sequence["Tensor | None"]]


def host_function(
    inputs: Sequence[Tensor], arrays: Sequence[np.ndarray], backward: Backward
) -> tuple[Tensor, ...]:
    """Arrays that were computed from `inputs` as tensors that `backward` differentiates."""
    tensors = [_tensor(array, inputs[0]) for array in arrays]
    if not (modes.gradients and any(tensor.requires_grad for tensor in inputs)):
        return tuple(tensors)
    hub = Call(None, (), tensors[0].call.type, True)
    outputs = [_output(hub, k, tensor) for k, tensor in enumerate(tensors)]

    def gradients(cotangents: Sequence[Call | None]) -> Sequence[Call | None]:
        given = [None if call is None else wrap(call) for call in cotangents]
        found = backward(outputs, given)
        return [None if tensor is None else tensor.call for tensor in found]

    sources = tuple(tensor.call for tensor in inputs)
    hub.tape = TapeEntry(function=gradients, sources=sources, outputs=len(tensors))
    return tuple(outputs)


def _tensor(array: np.ndarray, like: Tensor) -> Tensor:
    dtype = dtypes.from_numpy_dtype(array.dtype)
    assert dtype is not None
    return from_array(np.asarray(array, order="C"), dtype).to(device=like.device)


def _output(hub: Call, index: int, value: Tensor) -> Tensor:
    call = Call(None, (hub,), value.call.type, value.call.type.differentiable)
    call.index = index
    call.buffer = value.buffer()
    return wrap(call)
