"""Styles: how one module is distributed along a row of ranks.

Their outputs are local tensors unless `use_local_output` is False, so that what stands between two
modules sees its share only, as in PyTorch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from metaop.distributed.tensor.distribute import distribute_module, distribute_parameter
from metaop.errors import ArgumentTypeError, UnsupportedError
from metaop.nn.embedding import Embedding
from metaop.nn.linear import Linear
from metaop.nn.module import Module
from metaop.tensor.core import Tensor
from metaop.tensor.sharded.device_mesh import DeviceMesh
from metaop.tensor.sharded.mesh_placements import MeshPlacement, Replicate, Shard
from metaop.tensor.sharded.mesh_tensor import DTensor


class ParallelStyle(ABC):
    """How a module is distributed; subclasses say so in `_apply(module, device_mesh)`.

    `src_data_rank`, which `parallelize_module` sets, is for `distribute_tensor`. It says nothing
    about shapes.

    >>> class Frozen(metaop.distributed.tensor.parallel.ParallelStyle):
    ...     def _apply(self, module, device_mesh):
    ...         return module.requires_grad_(False)
    >>> mesh = metaop.distributed.init_device_mesh("cpu", (1,))
    >>> parallelize = metaop.distributed.tensor.parallel.parallelize_module
    >>> parallelize(nn.Linear(3, 2), mesh, Frozen()).weight.requires_grad
    False
    """

    src_data_rank: int | None = 0

    @abstractmethod
    def _apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        """Distributes the module and returns it."""


class _Split(ParallelStyle):
    """The base of styles that split the parameters of a layer.

    `_given` and `_returned` are the placements of inputs and outputs unless they are named; for
    each type of layer, `_layers` says how it takes its input and how its parameters lie.
    """

    _given: ClassVar[MeshPlacement]
    _returned: ClassVar[MeshPlacement]
    _layers: ClassVar[dict[type[Module], tuple[MeshPlacement, dict[str, MeshPlacement]]]]

    def __init__(
        self,
        *,
        input_layouts: MeshPlacement | None = None,
        output_layouts: MeshPlacement | None = None,
        use_local_output: bool = True,
    ) -> None:
        self.input_layouts = (input_layouts or self._given,)
        self.output_layouts = (output_layouts or self._returned,)
        self.use_local_output = use_local_output

    def _apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        kind = next((kind for kind in self._layers if isinstance(module, kind)), None)
        if kind is None:
            raise UnsupportedError(
                f"{type(self).__name__} of a {type(module).__name__}",
                fix="apply it to nn.Linear or nn.Embedding, or use distribute_module",
            )
        taken, parameters = self._layers[kind]

        def partition(_: str, part: Module, mesh: DeviceMesh) -> None:
            for name, placement in parameters.items():
                if name in part._parameters:
                    distribute_parameter(part, name, mesh, [placement], self.src_data_rank)

        def given(_: Module, inputs: Any, mesh: DeviceMesh) -> Any:
            first = laid_out(inputs[0], mesh, self.input_layouts[0], taken)
            return (first, *inputs[1:])

        def returned(_: Module, output: Any, mesh: DeviceMesh) -> Any:
            return handed_over(output, mesh, self.output_layouts[0], self.use_local_output)

        return distribute_module(module, device_mesh, partition, given, returned)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(input_layouts={self.input_layouts}, "
            f"output_layouts={self.output_layouts}, use_local_output={self.use_local_output})"
        )


class ColwiseParallel(_Split):
    """Splits the outputs of an `nn.Linear` or `nn.Embedding` over the ranks.

    A local input is whole on every rank, or as `input_layouts` says. The output lies as
    `output_layouts` says, by default split along its last dimension; with `use_local_output` each
    rank gets its part of that shape. Raises UnsupportedError for other modules.

    >>> mesh = metaop.distributed.init_device_mesh("cpu", (1,))
    >>> parallel = metaop.distributed.tensor.parallel
    >>> style = parallel.ColwiseParallel(use_local_output=False)
    >>> layer = parallel.parallelize_module(nn.Linear(3, 8), mesh, style)
    >>> layer(metaop.ones(4, 3)).placements
    (Shard(dim=1),)
    """

    _given, _returned = Replicate(), Shard(-1)
    _layers = {
        Linear: (Replicate(), {"weight": Shard(0), "bias": Shard(0)}),
        Embedding: (Replicate(), {"weight": Shard(1)}),
    }


class RowwiseParallel(_Split):
    """Splits the inputs of an `nn.Linear`, or the table of an `nn.Embedding`, over the ranks.

    A local input is this rank's part along the last dimension, or as `input_layouts` says; an
    embedding takes its input whole. The output lies as `output_layouts` says, by default whole on
    every rank; with `use_local_output` each rank gets its part of that shape. Raises
    UnsupportedError for other modules.

    >>> mesh = metaop.distributed.init_device_mesh("cpu", (1,))
    >>> parallel = metaop.distributed.tensor.parallel
    >>> layer = parallel.parallelize_module(nn.Linear(8, 3), mesh, parallel.RowwiseParallel())
    >>> layer.weight.placements, layer(metaop.ones(4, 8)).shape
    ((Shard(dim=1),), metaop.Size([4, 3]))
    """

    _given, _returned = Shard(-1), Replicate()
    _layers = {
        Linear: (Shard(-1), {"weight": Shard(1), "bias": Replicate()}),
        Embedding: (Replicate(), {"weight": Shard(0)}),
    }


class SequenceParallel(ParallelStyle):
    """Computes a module, such as a layer norm or a dropout, on parts of a sequence.

    The parameters are whole on every rank. A local input is this rank's part along `sequence_dim`;
    the output is split there too, and with `use_local_output` each rank gets its part of that
    shape. Raises ArgumentTypeError unless the first input is a tensor.

    >>> mesh = metaop.distributed.init_device_mesh("cpu", (1,))
    >>> parallel = metaop.distributed.tensor.parallel
    >>> norm = parallel.parallelize_module(nn.LayerNorm(4), mesh, parallel.SequenceParallel())
    >>> norm(metaop.ones(2, 6, 4)).placements
    (Shard(dim=1),)
    """

    def __init__(self, *, sequence_dim: int = 1, use_local_output: bool = False) -> None:
        self.sequence_sharding = (Shard(sequence_dim),)
        self.use_local_output = use_local_output

    def _apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        split = self.sequence_sharding[0]

        def partition(_: str, part: Module, mesh: DeviceMesh) -> None:
            for name in part._parameters:
                distribute_parameter(part, name, mesh, src_data_rank=self.src_data_rank)

        def given(_: Module, inputs: Any, mesh: DeviceMesh) -> Any:
            return (laid_out(inputs[0], mesh, split, split), *inputs[1:])

        def returned(_: Module, output: Any, mesh: DeviceMesh) -> Any:
            return handed_over(output, mesh, split, self.use_local_output)

        return distribute_module(module, device_mesh, partition, given, returned)

    def __repr__(self) -> str:
        dim, local = self.sequence_sharding[0].dim, self.use_local_output
        return f"{type(self).__name__}(sequence_dim={dim}, use_local_output={local})"


def laid_out(
    value: Any, mesh: DeviceMesh, given: MeshPlacement, wanted: MeshPlacement | None
) -> Tensor:
    """A value as `wanted` says; a local one is this rank's part of one that lies as `given`."""
    if not isinstance(value, Tensor):
        raise ArgumentTypeError(
            f"a value of type {type(value).__name__} is to lie as {given}",
            fix="pass a tensor, or give None as its layout",
        )
    if not isinstance(value, DTensor):
        value = DTensor.from_local(value, mesh, [given])
    return value if wanted is None else value.redistribute(mesh, [wanted])


def handed_over(value: Tensor, mesh: DeviceMesh, wanted: MeshPlacement, local: bool) -> Tensor:
    """A global value as `wanted` says; this rank's part of it if `local`."""
    result = value.redistribute(mesh, [wanted])
    return result.to_local() if local else result
