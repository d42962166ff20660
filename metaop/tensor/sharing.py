"""Tensors in memory that processes share: `share_memory_`, as PyTorch's hogwild training uses it.

A tensor that is shared stays in its memory: what in-place operations and optimizers compute is
copied there. Processes that get the tensor through multiprocessing, forked or spawned, read and
write the same memory; nobody waits for anybody.
"""

from __future__ import annotations

from multiprocessing.reduction import ForkingPickler
from typing import Any

from metaop.codegen.memory.shared import SharedMemory
from metaop.errors import UnsupportedError
from metaop.tensor.attributes import fields
from metaop.tensor.core import Tensor, wrap
from metaop.tensor.shared_storage import settle, share
from metaop.tensor.surface import method
from metaop.unified_graph.recording import leaf
from metaop.unified_graph.tensor_type import CPU, TensorType


@method()
def share_memory_(input: Tensor) -> Tensor:
    """Moves the tensor's storage into memory that processes share; returns the tensor.

    Tensors on a GPU stay where they are. Raises UnsupportedError for global tensors.
    """
    if input._base is not None:
        share_memory_(input._base)
    elif input.device.placement is not None:
        raise UnsupportedError(
            "share_memory_ of a global tensor", fix="start the ranks with metaop run instead"
        )
    elif input._shared is None and input.device is CPU:
        share(input, SharedMemory(input.call.type.nbytes))
        ForkingPickler.register(type(input), _reduce)
    return input


@method()
def is_shared(input: Tensor) -> bool:
    """Whether other processes can see what is written into the tensor."""
    return (input if input._base is None else input._base)._shared is not None


def _reduce(tensor: Tensor) -> Any:
    """How a tensor travels to another process: with its memory if that is shared."""
    if tensor._base is not None or tensor._shared is None:
        return tensor.__reduce_ex__(4)
    settle()
    attributes = dict(tensor.__dict__)
    kind = tensor.call.type
    tracked = tensor.requires_grad and tensor.is_leaf
    return _attached, (type(tensor), tensor._shared, kind.shape, kind.dtype, tracked, attributes)


def _attached(
    cls: type, shared: SharedMemory, shape: Any, dtype: Any, tracked: bool, attributes: Any
) -> Any:
    tensor = wrap(leaf(TensorType(shape, dtype, CPU), shared.buffer))
    tensor._shared = shared
    result: Any = object.__new__(cls)
    fields(result).update({**fields(tensor), **attributes})
    # What is passed on to a further process shares the memory too.
    ForkingPickler.register(cls, _reduce)
    return result.requires_grad_() if tracked else result
