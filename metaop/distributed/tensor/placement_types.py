"""The placements of `metaop.distributed.tensor`, where PyTorch defines them."""

from metaop.tensor.sharded.mesh_placements import MeshPlacement as Placement
from metaop.tensor.sharded.mesh_placements import Partial, Replicate, Shard

__all__ = ["Partial", "Placement", "Replicate", "Shard"]
