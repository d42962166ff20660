"""The state of a model in a job, as in `torch.distributed.checkpoint.state_dict`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from metaop.errors import UnsupportedError
from metaop.nn.module import Module
from metaop.nn.module_state import IncompatibleKeys
from metaop.nn.parallel import DataParallel, DistributedDataParallel
from metaop.tensor.core import Tensor
from metaop.tensor.sharded.global_tensor import full_tensor
from metaop.unified_graph.tensor_type import META

__all__ = ["StateDictOptions", "get_model_state_dict", "set_model_state_dict"]


@dataclass
class StateDictOptions:
    """How a state is taken and loaded.

    `full_state_dict` gathers global tensors, `cpu_offload` moves everything to the host,
    `ignore_frozen_params` omits parameters that are not trained, and `strict` is passed to
    `load_state_dict`. With `broadcast_from_rank0`, other ranks may have an empty state.
    """

    full_state_dict: bool = False
    cpu_offload: bool = False
    ignore_frozen_params: bool = False
    strict: bool = True
    broadcast_from_rank0: bool = False


def get_model_state_dict(
    model: Module, *, options: StateDictOptions | None = None
) -> dict[str, Any]:
    """The state of a model, under the names that it has without a data-parallel wrapper."""
    options = options or StateDictOptions()
    inner = _unwrapped(model)
    frozen = {name for name, one in inner.named_parameters() if not one.requires_grad}
    state = {
        name: _taken(value, options)
        for name, value in inner.state_dict().items()
        if not (options.ignore_frozen_params and name in frozen)
    }
    return state


def set_model_state_dict(
    model: Module, model_state_dict: dict[str, Any], *, options: StateDictOptions | None = None
) -> IncompatibleKeys:
    """Loads a state into a model; tensors on the meta device are replaced by those of the state.

    Raises `UnsupportedError` for global tensors, and for `broadcast_from_rank0`.
    """
    options = options or StateDictOptions()
    inner = _unwrapped(model)
    own = list(inner.state_dict().values())
    is_global = any(isinstance(one, Tensor) and one.device.placement is not None for one in own)
    if options.broadcast_from_rank0 or is_global:
        raise UnsupportedError(
            "set_model_state_dict of global tensors, or with broadcast_from_rank0",
            fix="write and read the state with metaop.distributed.checkpoint",
        )
    empty = any(isinstance(one, Tensor) and one.device is META for one in own)
    return inner.load_state_dict(model_state_dict, strict=options.strict, assign=empty)


def _unwrapped(model: Module) -> Module:
    while isinstance(model, (DataParallel, DistributedDataParallel)):
        model = model.module
    return model


def _taken(value: Any, options: StateDictOptions) -> Any:
    if not isinstance(value, Tensor):
        return value
    if options.full_state_dict and value.device.placement is not None:
        value = full_tensor(value)
    return value.cpu() if options.cpu_offload else value
