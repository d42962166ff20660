"""Distribution for users: placements, how tensors lie, and PyTorch's names for processes.

Example, started with `mpirun -np 4 python train.py`:

    everywhere = placement.all("cpu")
    weight = distribute_tensor(weight, everywhere, sbp.broadcast)
    x = x.to_global(placement=everywhere, sbp=sbp.split(0))
    loss = (x @ weight).sum()
"""

from __future__ import annotations

from typing import Any

import numpy as np

from metaop.dist import sbp as sbp
from metaop.dist.collectives import mpi as _mpi
from metaop.dist.placement import Placement
from metaop.dist.trace import explain as explain
from metaop.dist.trace import signatures as signatures
from metaop.tensor.core import Tensor
from metaop.tensor.global_tensor import distribute_tensor as distribute_tensor

placement = Placement


def init_process_group(backend: str = "mpi", **ignored: Any) -> None:
    """Starts MPI; a rank that fails from now on ends the job."""
    _mpi()


def is_available() -> bool:
    """Whether mpi4py is installed."""
    import importlib.util

    return importlib.util.find_spec("mpi4py") is not None


def get_rank() -> int:
    """The number of this process, from 0."""
    rank: int = _mpi().COMM_WORLD.rank
    return rank


def get_world_size() -> int:
    """How many processes the job has."""
    size: int = _mpi().COMM_WORLD.size
    return size


def barrier() -> None:
    """Waits for all ranks."""
    _mpi().COMM_WORLD.Barrier()


def all_reduce(tensor: Tensor, op: str = "sum") -> None:
    """Puts the sum (or "max", "min", "prod") over all ranks into the tensor of each."""
    module = _mpi()
    value = np.ascontiguousarray(tensor.detach().numpy())
    total = np.empty_like(value)
    operation = {"sum": module.SUM, "max": module.MAX, "min": module.MIN, "prod": module.PROD}[op]
    module.COMM_WORLD.Allreduce(value, total, operation)
    tensor._array()[...] = total


def broadcast(tensor: Tensor, src: int = 0) -> None:
    """Puts the value that rank `src` has into the tensor of every rank."""
    value = np.ascontiguousarray(tensor._array())
    _mpi().COMM_WORLD.Bcast(value.view(np.uint8).reshape(-1), src)
    tensor._array()[...] = value
