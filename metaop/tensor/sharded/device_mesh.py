"""PyTorch's `DeviceMesh`: a placement whose axes can be named, sliced and used as groups."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from types import TracebackType
from typing import Any

import numpy as np

from metaop.dist.collectives import MPIWorld, everyone
from metaop.dist.placement import Placement
from metaop.dist.process_group import ProcessGroup
from metaop.errors import ArgumentError, ArgumentTypeError, DimensionError, DistributedError
from metaop.tensor.core import Tensor
from metaop.tensor.functions.creation import tensor
from metaop.tensor.sharded import data_parallel
from metaop.unified_graph.tensor_type import CPU


class DeviceMesh:
    """Ranks in an array of one or more dimensions; `placement` is what global tensors lie on.

    `mesh` is an array of distinct rank numbers. Every rank of the job has to make the mesh, also
    those outside of it; ranks that make different ones get a DistributedError. Equal meshes are the
    same object. `with mesh:` makes it the mesh of functions that get none.

    `mesh["name"]` is the part of a mesh along an axis, through this rank; `mesh["one", "other"]`
    keeps two axes. Raises ArgumentError for ranks named twice and for names that do not fit.

    >>> mesh = metaop.distributed.DeviceMesh("cpu", [[0]], mesh_dim_names=("data", "model"))
    >>> mesh.shape, mesh["model"]
    ((1, 1), DeviceMesh((model=1), 'cpu', ranks=[0]))
    """

    _table: dict[Placement, DeviceMesh] = {}
    placement: Placement
    # The mesh of which this one is a slice, if it is one.
    _whole: DeviceMesh | None

    def __new__(
        cls, device_type: str, mesh: Any, *, mesh_dim_names: Sequence[str] | None = None
    ) -> DeviceMesh:
        data_parallel.refuse("a DeviceMesh")
        ranks = mesh.tolist() if isinstance(mesh, Tensor) else mesh
        made = Placement(device_type, ranks, names=mesh_dim_names)
        MPIWorld(everyone()).agree(f"a mesh on {made}", "collectives")
        # This connects the ranks while all of them are here: some alone may ask for a group.
        assert made.world.size == made.ranks.size
        return mesh_of(made)

    @property
    def device_type(self) -> str:
        """ "cpu" or "cuda"."""
        return self.placement.type

    @property
    def mesh(self) -> Tensor:
        """The numbers of the ranks, as a tensor of int32 in host memory."""
        return tensor(self.placement.ranks.astype(np.int32), device=CPU)

    @property
    def mesh_dim_names(self) -> tuple[str, ...] | None:
        """The names of the axes, if they have any."""
        return self.placement.names

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of ranks along each axis."""
        return self.placement.shape

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.placement.shape)

    def size(self, mesh_dim: int | None = None) -> int:
        """The number of ranks, of all or along one axis."""
        if mesh_dim is None:
            return self.placement.ranks.size
        return self.shape[self._axis(mesh_dim)]

    def get_rank(self) -> int:
        """The number of this process in the job."""
        if self.placement.simulated:
            return int(self.placement.ranks.flat[0])
        rank: int = everyone().rank
        return rank

    def get_coordinate(self) -> tuple[int, ...] | None:
        """The place of this process on the mesh; None if it has none."""
        found = np.argwhere(self.placement.ranks == self.get_rank())
        return tuple(int(k) for k in found[0]) if len(found) else None

    def get_local_rank(self, mesh_dim: int | str | None = None) -> int:
        """The place of this process along an axis, which a row of ranks need not name."""
        return self._here()[self._axis(mesh_dim)]

    def get_group(self, mesh_dim: int | str | None = None) -> ProcessGroup:
        """The ranks along an axis, through this process, as a group for collectives."""
        axis, here = self._axis(mesh_dim), self._here()
        if self.placement.simulated:
            raise DistributedError(
                f"{self} is simulated in one process, which has no groups",
                fix="make the mesh with init_device_mesh(), or move whole tensors with to_global()",
            )
        line = self.placement.world.line(axis, here)
        assert isinstance(line, MPIWorld)
        return _group_of(line, tuple(_along(self.placement.ranks, (axis,), here).tolist()))

    def get_all_groups(self) -> list[ProcessGroup]:
        """The group along each axis."""
        return [self.get_group(axis) for axis in range(self.ndim)]

    def __getitem__(self, mesh_dim_names: str | Sequence[str]) -> DeviceMesh:
        names = (mesh_dim_names,) if isinstance(mesh_dim_names, str) else tuple(mesh_dim_names)
        axes, here = tuple(self._axis(name) for name in names), self._here()
        if not axes or len(set(axes)) < len(axes):
            raise ArgumentError(f"{self} at the axes {list(names)}", fix="name each of them once")
        if axes == tuple(range(self.ndim)):
            return self
        whole = self.placement
        ranks = _along(whole.ranks, axes, here).tolist()
        part = Placement(whole.type, ranks, whole.simulated, names)
        if len(axes) == 1 and not whole.simulated:
            # The ranks of a line are connected already, so slicing is not a collective.
            line = whole.world.line(axes[0], here)
            assert isinstance(line, MPIWorld)
            part.connect_along(line)
        found = mesh_of(part)
        found._whole = self._whole or self
        return found

    def joined(self, other: DeviceMesh) -> DeviceMesh:
        """The part that has the axes of both, of the mesh of which both are slices."""
        if self._whole is None or self._whole is not other._whole:
            raise ArgumentError(
                f"{self} and {other} are not slices of one mesh",
                fix='slice both from one: mesh["dp"] and mesh["tp"]',
            )
        assert self.mesh_dim_names is not None and other.mesh_dim_names is not None
        return self._whole[self.mesh_dim_names + other.mesh_dim_names]

    def __enter__(self) -> DeviceMesh:
        _entered.append(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _entered.pop()

    def __reduce__(self) -> tuple:
        return (mesh_of, (self.placement,))

    def __repr__(self) -> str:
        extents = [str(extent) for extent in self.shape]
        if self.mesh_dim_names is not None:
            extents = [f"{name}={extent}" for name, extent in zip(self.mesh_dim_names, extents)]
        ranks = self.placement.ranks.tolist()
        return f"DeviceMesh(({', '.join(extents)}), '{self.device_type}', ranks={ranks})"

    def _axis(self, named: int | str | None) -> int:
        """The number of an axis, given by number or name, or the only one."""
        if named is None and self.ndim == 1:
            return 0
        if isinstance(named, int) and -self.ndim <= named < self.ndim:
            return named % self.ndim
        names = self.mesh_dim_names or ()
        if isinstance(named, str) and named in names:
            return names.index(named)
        kind = DimensionError if isinstance(named, int) else ArgumentError
        raise kind(
            f"{self} has no axis {named!r}",
            fix=f"name one of {list(names)}"
            if names
            else f"give a number below {self.ndim}, or name the axes with mesh_dim_names=",
        )

    def _here(self) -> tuple[int, ...]:
        found = self.get_coordinate()
        if found is None:
            raise DistributedError(
                f"rank {self.get_rank()} is not on {self}",
                fix="ask on the ranks of the mesh only: those where get_coordinate() is not None",
            )
        return found


# The meshes of the `with` statements that the program is in, the innermost last.
_entered: list[DeviceMesh] = []


def init_device_mesh(
    device_type: str, mesh_shape: Sequence[int], *, mesh_dim_names: Sequence[str] | None = None
) -> DeviceMesh:
    """A mesh of the first ranks of the job in the shape `mesh_shape`, row by row.

    `device_type` is "cpu" or "cuda"; `mesh_dim_names` are names of the axes. Every rank of the job
    has to call it with the same arguments; MPI starts if it has not yet. Raises ArgumentError
    for names that do not fit, and DistributedError for more ranks than the job has.

    >>> mesh = metaop.distributed.init_device_mesh("cpu", (1, 1), mesh_dim_names=("dp", "tp"))
    >>> mesh.mesh.shape, mesh.get_local_rank("tp"), mesh.get_group("dp").size()
    (metaop.Size([1, 1]), 0, 1)
    """
    shape = tuple(mesh_shape)
    if not shape or not all(isinstance(extent, int) and extent > 0 for extent in shape):
        raise ArgumentError(
            f"a mesh of shape {list(shape)}", fix="give the number of ranks along each axis"
        )
    ranks = np.arange(np.prod(shape)).reshape(shape)
    return DeviceMesh(device_type, ranks, mesh_dim_names=mesh_dim_names)


def mesh_of(placement: Placement) -> DeviceMesh:
    """The mesh of a placement; nothing is sent."""
    found = DeviceMesh._table.get(placement)
    if found is None:
        found = DeviceMesh._table[placement] = object.__new__(DeviceMesh)
        found.placement, found._whole = placement, None
    return found


def chosen_mesh(given: DeviceMesh | None) -> DeviceMesh:
    """The mesh that a function got, else that of the innermost `with mesh:`."""
    found = _entered[-1] if given is None and _entered else given
    if not isinstance(found, DeviceMesh):
        raise ArgumentTypeError(
            f"device_mesh is {found!r}",
            fix='give init_device_mesh("cpu", (ranks,)), or call it inside `with mesh:`',
        )
    return found


def _along(ranks: np.ndarray, axes: tuple[int, ...], here: tuple[int, ...]) -> np.ndarray:
    """The ranks of the axes named, in their order, at a place along all others."""
    kept = sorted(axes)
    index = tuple(slice(None) if axis in axes else place for axis, place in enumerate(here))
    return ranks[index].transpose([kept.index(axis) for axis in axes])


@lru_cache(maxsize=256)
def _group_of(line: MPIWorld, ranks: tuple[int, ...]) -> ProcessGroup:
    return ProcessGroup(line.communicator, ranks)
