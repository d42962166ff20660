"""Distribution for users: placements, how tensors are sharded, and PyTorch's names for processes.

Example, started with `mpirun -np 4 python train.py`:

    everywhere = placement.all("cpu")
    weight = distribute_tensor(weight, everywhere, sbp.broadcast)
    x = x.to_global(placement=everywhere, sbp=sbp.split(0))
    loss = (x @ weight).sum()
"""

import importlib as _importlib
from typing import Any as _Any

from metaop.dist import sbp
from metaop.dist.placement import Placement as placement
from metaop.dist.trace import explain, signatures
from metaop.distributed.collectives import (
    ReduceOp,
    Work,
    all_gather,
    all_gather_into_tensor,
    all_gather_object,
    all_reduce,
    all_to_all,
    barrier,
    broadcast,
    broadcast_object_list,
    gather,
    reduce,
    reduce_scatter,
    reduce_scatter_tensor,
    scatter,
)
from metaop.distributed.messages import recv, send
from metaop.distributed.process_group import ProcessGroup, group
from metaop.distributed.processes import (
    destroy_process_group,
    get_backend,
    get_rank,
    get_world_size,
    init_process_group,
    is_available,
    is_initialized,
    is_mpi_available,
    is_nccl_available,
    is_torchelastic_launched,
    new_group,
)
from metaop.tensor.sharded.global_tensor import distribute_tensor
from metaop.tensor.sharded.placing import global_mode

_LAZY = {
    "CPUOffload": "fsdp",
    "FullyShardedDataParallel": "fsdp",
    "MixedPrecision": "fsdp",
    "ShardingStrategy": "fsdp",
    "local_map": "fsdp",
    "ZeroRedundancyOptimizer": "optim",
}
_SUBMODULES = (
    *("checkpoint", "data_parallel", "elastic", "fsdp", "optim", "pipelining", "state_dict"),
)


def __getattr__(name: str) -> _Any:
    """Imports names that need modules and optimizers when they are first used."""
    if name in _SUBMODULES:
        return _importlib.import_module(f"metaop.distributed.{name}")
    if name in _LAZY:
        return getattr(_importlib.import_module(f"metaop.distributed.{_LAZY[name]}"), name)
    raise AttributeError(f"module 'metaop.distributed' has no attribute {name!r}")


__all__ = [
    "ProcessGroup",
    "ReduceOp",
    "Work",
    "all_gather",
    "all_gather_into_tensor",
    "all_gather_object",
    "all_reduce",
    "all_to_all",
    "barrier",
    "broadcast",
    "broadcast_object_list",
    "destroy_process_group",
    "distribute_tensor",
    "explain",
    "gather",
    "get_backend",
    "get_rank",
    "get_world_size",
    "global_mode",
    "group",
    "init_process_group",
    "is_available",
    "is_initialized",
    "is_mpi_available",
    "is_nccl_available",
    "is_torchelastic_launched",
    "new_group",
    "placement",
    "recv",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "sbp",
    "scatter",
    "send",
    "signatures",
]
