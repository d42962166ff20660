"""Making tensors and modules global, as in `torch.distributed.tensor`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import signature
from typing import Any

from metaop.errors import ArgumentError, GradientError
from metaop.nn.module import Module
from metaop.tensor.core import Tensor
from metaop.tensor.sharded.device_mesh import DeviceMesh, chosen_mesh
from metaop.tensor.sharded.global_tensor import checked_states, distribute_own
from metaop.tensor.sharded.global_tensor import distribute_tensor as distribute_first
from metaop.tensor.sharded.mesh_placements import MeshPlacement, placements_of, states_of
from metaop.tensor.sharded.mesh_tensor import DTensor

Partition = Callable[[str, Module, DeviceMesh], None]
Hook = Callable[[Module, Any, DeviceMesh], Any]


def distribute_tensor(
    tensor: Tensor,
    device_mesh: DeviceMesh | None = None,
    placements: Sequence[MeshPlacement] | None = None,
    *,
    src_data_rank: int | None = 0,
) -> Tensor:
    """The global tensor whose value is that of the mesh's first rank: a leaf, as `tensor` is one.

    Every rank gives a tensor of the same shape. Without placements all keep the whole. With
    `src_data_rank` None nothing is sent: the ranks have the same value already.

    Raises GradientError for a tensor that has been computed, whose gradient would be lost;
    ArgumentError for another rank than the first, and for a global tensor that lies otherwise.

    >>> mesh = metaop.distributed.init_device_mesh("cpu", (1,))
    >>> shard = metaop.distributed.tensor.Shard(0)
    >>> x = metaop.distributed.tensor.distribute_tensor(metaop.ones(2, 3), mesh, [shard])
    >>> x.placements, x.to_local().shape
    ((Shard(dim=0),), metaop.Size([2, 3]))
    """
    mesh = chosen_mesh(device_mesh)
    states = states_of(placements, mesh.ndim)
    if src_data_rank not in (0, None):
        raise ArgumentError(
            f"distribute_tensor got src_data_rank={src_data_rank}",
            fix="use 0: the value is that of the mesh's first rank; or None, to send nothing",
        )
    if isinstance(tensor, DTensor):
        wished = placements_of(checked_states(states, tensor.ndim, mesh.placement))
        if tensor.device_mesh is mesh and tensor.placements == wished:
            return tensor
        raise ArgumentError(
            f"distribute_tensor got a DTensor that lies as {tensor.placements} on "
            f"{tensor.device_mesh}",
            fix="use redistribute() to lay it out otherwise",
        )
    if not tensor.is_leaf:
        raise GradientError(
            f"distribute_tensor got a tensor of shape {list(tensor.shape)} that is not a leaf",
            fix="use DTensor.from_local(), or tensor.to_global(), through which gradients flow",
        )
    place = distribute_own if src_data_rank is None else distribute_first
    result = place(tensor.detach(), mesh.placement, states)
    return result.requires_grad_(tensor.requires_grad)  # type: ignore[no-any-return]


def distribute_module(
    module: Module,
    device_mesh: DeviceMesh | None = None,
    partition_fn: Partition | None = None,
    input_fn: Hook | None = None,
    output_fn: Hook | None = None,
) -> Module:
    """Makes the parameters and buffers of a module global, in place, and returns it.

    `partition_fn(name, submodule, mesh)` distributes those of a submodule by itself; what it leaves
    is whole on every rank. `input_fn(module, inputs, mesh)` replaces the positional inputs, and
    `output_fn(module, outputs, mesh)` the outputs. Parameters that this function distributes stay
    the same objects, so optimizers keep working.

    Raises ArgumentError for a module that has been distributed before, and for functions of another
    number of arguments.

    >>> mesh = metaop.distributed.init_device_mesh("cpu", (1,))
    >>> layer = metaop.distributed.tensor.distribute_module(nn.Linear(3, 2), mesh)
    >>> layer.weight.placements
    (Replicate(),)
    """
    mesh = chosen_mesh(device_mesh)
    if getattr(module, "_is_distributed", False):
        raise ArgumentError(
            f"distribute_module got a {type(module).__name__} that is distributed already",
            fix="call it once for a module",
        )
    for name, hook in (("input_fn", input_fn), ("output_fn", output_fn)):
        count = 3 if hook is None else len(signature(hook).parameters)
        if count != 3:
            raise ArgumentError(
                f"distribute_module got an {name} of {count} arguments",
                fix=f"define it as {name}(module, values, device_mesh)",
            )
    for name, part in module.named_modules():
        if partition_fn is not None:
            partition_fn(name, part, mesh)
        _replicate_rest(part, mesh)
    if input_fn is not None:
        module.register_forward_pre_hook(lambda owner, inputs: input_fn(owner, inputs, mesh))
    if output_fn is not None:
        module.register_forward_hook(lambda owner, _, outputs: output_fn(owner, outputs, mesh))
    module._is_distributed = True
    return module


def distribute_parameter(
    module: Module,
    name: str,
    device_mesh: DeviceMesh,
    placements: Sequence[MeshPlacement] | None = None,
    src_data_rank: int | None = 0,
) -> None:
    """Makes a parameter of a module global; it stays the same object."""
    parameter = module._parameters[name]
    if parameter is not None:
        parameter.data = distribute_tensor(
            parameter.detach(), device_mesh, placements, src_data_rank=src_data_rank
        )


def _replicate_rest(module: Module, mesh: DeviceMesh) -> None:
    for name, parameter in module._parameters.items():
        if not isinstance(parameter, DTensor):
            distribute_parameter(module, name, mesh)
    for name, buffer in module._buffers.items():
        if buffer is not None and not isinstance(buffer, DTensor):
            module._buffers[name] = distribute_tensor(buffer, mesh)
