"""Functions that NumPy and SciPy compute on the host, with gradients written as tensor code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from metaop.differentiation.entries import TapeEntry
from metaop.differentiation.saved_values import overwritten_error
from metaop.tensor.core import Tensor, from_array, wrap
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.recording import Call, modes

# Takes the inputs, the results and their cotangents (None where nothing arrived), gives the
# gradients of the inputs. Its tensor operations are recorded, so it can be differentiated again.
Backward = Callable[
    [Sequence[Tensor], Sequence[Tensor], Sequence["Tensor | None"]], Sequence["Tensor | None"]
]


class _Kept(Sequence[Tensor]):
    """Tensors with the values that they had; reading one that was written since is an error."""

    def __init__(self, calls: Sequence[Call], started: int) -> None:
        self._calls = calls
        self._started = started

    def __len__(self) -> int:
        return len(self._calls)

    def __getitem__(self, index: Any) -> Any:
        call = self._calls[index]
        if call.epoch is not None and call.epoch.ended_before(self._started):
            raise overwritten_error("a function of the host", call)
        return wrap(call)


def host_function(
    inputs: Sequence[Tensor], arrays: Sequence[np.ndarray], backward: Backward
) -> tuple[Tensor, ...]:
    """Arrays that were computed from `inputs` as tensors that `backward` differentiates."""
    tensors = [_tensor(array, inputs[0]) for array in arrays]
    if not (modes.gradients and any(tensor.requires_grad for tensor in inputs)):
        return tuple(tensors)
    hub = Call(None, (), tensors[0].call.type, True)
    outputs = [_output(hub, k, tensor) for k, tensor in enumerate(tensors)]
    sources = tuple(tensor.call for tensor in inputs)
    kept = _Kept(sources, hub.sequence), _Kept([one.call for one in outputs], hub.sequence)

    def gradients(cotangents: Sequence[Call | None]) -> Sequence[Call | None]:
        given = [None if call is None else wrap(call) for call in cotangents]
        found = backward(*kept, given)
        return [None if tensor is None else tensor.call for tensor in found]

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
