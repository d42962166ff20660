"""Global tensors under PyTorch's names: `DTensor`, its placements, and how to make one.

A mesh wraps a placement, and `Shard`, `Replicate` and `Partial` are names of states
(`metaop.distributed.sbp`), so these tensors are those of `to_global`.
"""

from metaop.distributed.tensor.creation import empty, full, ones, rand, randn, zeros
from metaop.distributed.tensor.distribute import distribute_module, distribute_tensor
from metaop.tensor.sharded.device_mesh import DeviceMesh as DeviceMesh
from metaop.tensor.sharded.device_mesh import init_device_mesh as init_device_mesh
from metaop.tensor.sharded.mesh_placements import MeshPlacement as Placement
from metaop.tensor.sharded.mesh_placements import Partial, Replicate, Shard
from metaop.tensor.sharded.mesh_tensor import DTensor

__all__ = [
    "DTensor",
    "Partial",
    "Placement",
    "Replicate",
    "Shard",
    "distribute_module",
    "distribute_tensor",
    "empty",
    "full",
    "ones",
    "rand",
    "randn",
    "zeros",
]
