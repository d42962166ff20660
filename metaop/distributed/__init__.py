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
from metaop.distributed.backends import (
    Backend,
    get_backend,
    get_default_backend_for_device,
    is_available,
    is_backend_available,
    is_gloo_available,
    is_mpi_available,
    is_nccl_available,
    is_ucc_available,
    is_xccl_available,
)
from metaop.distributed.coalesced import (
    all_gather_coalesced,
    all_reduce_coalesced,
    all_to_all_single,
)
from metaop.distributed.collectives import (
    all_gather,
    all_gather_into_tensor,
    all_gather_single,
    all_reduce,
    all_to_all,
    barrier,
    broadcast,
    gather,
    monitored_barrier,
    reduce,
    reduce_scatter,
    reduce_scatter_single,
    reduce_scatter_tensor,
    scatter,
)
from metaop.distributed.groups import (
    get_global_rank,
    get_group_rank,
    get_node_local_rank,
    get_pg_count,
    get_process_group_ranks,
    new_group,
    new_subgroups,
    new_subgroups_by_enumeration,
)
from metaop.distributed.messages import P2POp, batch_isend_irecv, irecv, isend, recv, send
from metaop.distributed.objects import (
    all_gather_object,
    broadcast_object_list,
    gather_object,
    recv_object_list,
    scatter_object_list,
    send_object_list,
)
from metaop.distributed.process_group import GroupMember, ProcessGroup, group
from metaop.distributed.processes import (
    destroy_process_group,
    get_rank,
    get_world_size,
    init_process_group,
    is_initialized,
    is_torchelastic_launched,
)
from metaop.distributed.reductions import ReduceOp, supports_complex
from metaop.distributed.work import Work
from metaop.errors import DistributedError as DistError
from metaop.tensor.sharded.device_mesh import DeviceMesh, init_device_mesh
from metaop.tensor.sharded.global_tensor import distribute_tensor
from metaop.tensor.sharded.placing import global_mode

# PyTorch tells these apart by what carries the values.
DistBackendError = DistNetworkError = DistError

_LAZY = {
    "CPUOffload": "fsdp",
    "FullyShardedDataParallel": "fsdp",
    "MixedPrecision": "fsdp",
    "ShardingStrategy": "fsdp",
    "local_map": "fsdp",
    "ZeroRedundancyOptimizer": "optim",
}
_SUBMODULES = (
    *("checkpoint", "checkpoint_wrapper", "data_parallel", "device_mesh", "elastic", "fsdp"),
    *("nn", "optim", "pipelining", "state_dict", "tensor", "wrapping"),
)


def __getattr__(name: str) -> _Any:
    """Imports names that need modules and optimizers when they are first used."""
    if name in _SUBMODULES:
        return _importlib.import_module(f"metaop.distributed.{name}")
    if name in _LAZY:
        return getattr(_importlib.import_module(f"metaop.distributed.{_LAZY[name]}"), name)
    raise AttributeError(f"module 'metaop.distributed' has no attribute {name!r}")


__all__ = [
    "Backend",
    "DeviceMesh",
    "DistBackendError",
    "DistError",
    "DistNetworkError",
    "GroupMember",
    "P2POp",
    "ProcessGroup",
    "ReduceOp",
    "Work",
    "all_gather",
    "all_gather_coalesced",
    "all_gather_into_tensor",
    "all_gather_object",
    "all_gather_single",
    "all_reduce",
    "all_reduce_coalesced",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "batch_isend_irecv",
    "broadcast",
    "broadcast_object_list",
    "destroy_process_group",
    "distribute_tensor",
    "explain",
    "gather",
    "gather_object",
    "get_backend",
    "get_default_backend_for_device",
    "get_global_rank",
    "get_group_rank",
    "get_node_local_rank",
    "get_pg_count",
    "get_process_group_ranks",
    "get_rank",
    "get_world_size",
    "global_mode",
    "group",
    "init_device_mesh",
    "init_process_group",
    "irecv",
    "is_available",
    "is_backend_available",
    "is_gloo_available",
    "is_initialized",
    "is_mpi_available",
    "is_nccl_available",
    "is_torchelastic_launched",
    "is_ucc_available",
    "is_xccl_available",
    "isend",
    "monitored_barrier",
    "new_group",
    "new_subgroups",
    "new_subgroups_by_enumeration",
    "placement",
    "recv",
    "recv_object_list",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_single",
    "reduce_scatter_tensor",
    "sbp",
    "scatter",
    "scatter_object_list",
    "send",
    "send_object_list",
    "signatures",
    "supports_complex",
]
