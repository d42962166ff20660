"""Global tensors under the names of PyTorch's DTensor: meshes, placements, `DTensor` itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from metaop.dist.mesh_world import nothing_partial
from metaop.errors import ArgumentError, ArgumentTypeError
from metaop.tensor.attributes import TensorClass
from metaop.tensor.core import Tensor
from metaop.tensor.sharded.device_mesh import DeviceMesh, chosen_mesh, mesh_of
from metaop.tensor.sharded.global_tensor import to_global
from metaop.tensor.sharded.mesh_placements import MeshPlacement, placements_of, states_of
from metaop.tensor.surface import attribute, method


@attribute("placements")
def _placements(input: Tensor) -> tuple[MeshPlacement, ...]:
    """How a global tensor lies along each axis of its mesh; it is computed now if it is not yet."""
    _check_global(input, "placements")
    found = input.sbp
    return placements_of(found if isinstance(found, tuple) else (found,))


@attribute("device_mesh")
def _device_mesh(input: Tensor) -> DeviceMesh:
    """The mesh of the ranks on which a global tensor lies."""
    _check_global(input, "device_mesh")
    return mesh_of(input.placement)


@method()
def redistribute(
    input: Tensor,
    device_mesh: DeviceMesh | None = None,
    placements: Sequence[MeshPlacement] | None = None,
    *,
    async_op: bool = False,
) -> Tensor:
    """The same global tensor, lying as `placements` say, on its mesh or on another one.

    Every rank of the meshes has to call it. It is recorded, and sent with other values, when it is
    computed; so `async_op` changes nothing. Raises ArgumentError without placements, for a wrong
    number of them, and for a local tensor.
    """
    if input.device.placement is None:
        raise ArgumentError(
            f"redistribute() of a local tensor of shape {list(input.shape)}",
            fix="make it global with distribute_tensor(tensor, mesh, placements)",
        )
    if placements is None:
        raise ArgumentError(
            "redistribute() needs placements", fix="redistribute(placements=[Replicate()])"
        )
    target = mesh_of(input.device.placement) if device_mesh is None else chosen_mesh(device_mesh)
    return to_global(input, target.placement, states_of(placements, target.ndim))


class _GlobalTensors(TensorClass):
    """The type of `DTensor`, of which every global tensor is an instance."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, Tensor) and instance.device.placement is not None


class DTensor(Tensor, metaclass=_GlobalTensors):
    """What every global tensor is for `isinstance`, whatever its shape.

    `distribute_tensor` and `DTensor.from_local` make them. Calling the class raises
    ArgumentTypeError.

    >>> mesh = metaop.distributed.init_device_mesh("cpu", (1,))
    >>> x = metaop.distributed.tensor.DTensor.from_local(metaop.ones(2), mesh)
    >>> isinstance(x, metaop.distributed.tensor.DTensor), x.placements
    (True, (Replicate(),))
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> DTensor:
        raise ArgumentTypeError(
            f"DTensor is not called: it got {len(args) + len(kwargs)} arguments",
            fix="use DTensor.from_local(part, mesh, placements) or distribute_tensor(whole, …)",
        )

    @staticmethod
    def from_local(
        local_tensor: Tensor,
        device_mesh: DeviceMesh | None = None,
        placements: Sequence[MeshPlacement] | None = None,
        *,
        run_check: bool = False,
        shape: Sequence[int] | None = None,
        stride: Sequence[int] | None = None,
        grad_placements: Sequence[MeshPlacement] | None = None,
    ) -> Tensor:
        """The global tensor of which every rank gives its part; without placements, all the whole.

        The ranks compare types and shapes in any case, and of parts that should be equal the first
        one is taken; so `run_check` changes nothing. The ranks find the shape themselves: another
        `shape` is an ArgumentError, and `stride` has no meaning. Raises DistributedError for parts
        that do not fit together, such as blocks that are not balanced.

        The gradient lies as the tensor does, and is whole where that is partial; or as
        `grad_placements` say.
        """
        mesh = chosen_mesh(device_mesh)
        if isinstance(local_tensor, DTensor):
            raise ArgumentError(
                "from_local() got a DTensor", fix="use redistribute() to lay it out otherwise"
            )
        states = states_of(placements, mesh.ndim)
        back = nothing_partial(states)
        if grad_placements is not None:
            back = states_of(grad_placements, mesh.ndim)
        result = to_global(local_tensor, mesh.placement, states, grad_sbp=back)
        if shape is not None and tuple(shape) != tuple(result.shape):
            raise ArgumentError(
                f"from_local() got shape={list(shape)} for parts of {list(result.shape)}",
                fix="omit shape: the ranks find it",
            )
        return result


def _check_global(input: Tensor, name: str) -> None:
    """AttributeError for a local tensor, which has no such attribute.

    PyTorch's programs ask `hasattr(tensor, "placements")`.
    """
    if input.device.placement is None:
        raise AttributeError(
            f"a local tensor has no attribute {name!r}: only DTensors have it, which "
            "distribute_tensor() and DTensor.from_local() make"
        )
