"""Meshes and placements under PyTorch's names: moves, parts, groups, and what is refused."""

import pickle
from itertools import product

import numpy as np

import metaop
import metaop.distributed as dist
from metaop.dist.sbp import Partial as PartialState
from metaop.distributed.device_mesh import DeviceMesh, init_device_mesh
from metaop.distributed.tensor import (
    DTensor,
    Partial,
    Replicate,
    Shard,
    distribute_module,
    distribute_tensor,
    full,
    randn,
)
from metaop.distributed.tensor.parallel import PrepareModuleInputOutput, parallelize_module
from metaop.errors import ArgumentError, ArgumentTypeError, DistributedError, GradientError


def refused(error: type[Exception], text: str, function: object, *args: object, **options: object):
    """Fails unless a call raises an error that says `text`."""
    try:
        function(*args, **options)
    except error as found:
        assert text in str(found), found
    else:
        raise AssertionError(f"{text!r} was not refused")


rank, ranks = dist.get_rank(), dist.get_world_size()
shape = (ranks // 2, 2)
mesh = init_device_mesh("cpu", shape, mesh_dim_names=("dp", "tp"))
row = init_device_mesh("cpu", (ranks,))

# What a mesh says of itself, and its parts.
assert mesh.shape == shape and mesh.ndim == 2 and mesh.size() == ranks and mesh.size(1) == 2
assert mesh.mesh.tolist() == np.arange(ranks).reshape(shape).tolist() and mesh.get_rank() == rank
assert mesh.get_coordinate() == divmod(rank, 2) and mesh.get_local_rank("tp") == rank % 2
assert mesh is DeviceMesh("cpu", mesh.mesh, mesh_dim_names=["dp", "tp"])
assert mesh != row and hash(mesh) == hash(pickle.loads(pickle.dumps(mesh)))
assert mesh["dp", "tp"] is mesh and mesh["tp", "dp"].mesh.T.tolist() == mesh.mesh.tolist()
assert mesh["tp"].mesh.tolist() == [rank // 2 * 2, rank // 2 * 2 + 1]
assert mesh["dp"].mesh.tolist() == list(range(rank % 2, ranks, 2))
for group in (mesh.get_group("tp"), mesh["tp"].get_group(), mesh.get_all_groups()[1]):
    total = metaop.tensor([float(rank)])
    dist.all_reduce(total, group=group)
    assert total.item() == sum(mesh["tp"].mesh.tolist())
found = metaop.zeros(shape[0])
dist.all_gather_into_tensor(found, metaop.tensor([float(rank)]), group=mesh.get_group(0))
assert found.tolist() == mesh["dp"].mesh.tolist()
refused(ArgumentError, "has no axis 'pp'", mesh.get_group, "pp")
refused(ArgumentError, "has no axis None", mesh.get_local_rank)
refused(ArgumentError, "once", mesh.__getitem__, ("tp", "tp"))
refused(ArgumentError, "names", init_device_mesh, "cpu", (ranks,), mesh_dim_names=("a", "b"))
refused(ArgumentError, "shape [0]", init_device_mesh, "cpu", (0,))
refused(DistributedError, "mpirun -np", init_device_mesh, "cpu", (ranks + 1,))
if ranks > 1:
    refused(DistributedError, "different", init_device_mesh, "cpu", (1 + rank % 2,))
    one = DeviceMesh("cpu", [ranks - 1])
    assert (one.get_coordinate() is None) == (rank < ranks - 1)
    if rank < ranks - 1:
        refused(DistributedError, "is not on", one.get_local_rank)

# Every pair of placements, on a row and on the mesh, with uneven blocks.
value = np.random.default_rng(0).normal(size=(ranks + 3, 9)).astype(np.float32)
single = [Replicate(), Shard(0), Shard(1), Partial(), Partial("max")]
for source, target in product(single, single):
    start = distribute_tensor(metaop.tensor(value), row, [source])
    moved = start.redistribute(placements=[target])
    assert moved.placements == (target,) and moved.device_mesh is row
    np.testing.assert_allclose(moved.full_tensor().numpy(), value, rtol=1e-6)
for source, target in zip(
    product(single[:4], repeat=2), reversed([*product(single[:4], repeat=2)])
):
    start = distribute_tensor(metaop.tensor(value), mesh, source)
    moved = start.redistribute(mesh, target)
    assert start.placements == source and moved.placements == target
    np.testing.assert_allclose(moved.full_tensor().numpy(), value, rtol=1e-6)
assert start.redistribute(row, [Shard(-1)]).placements == (Shard(1),)

# Parts of every rank, and their gradients.
for placement, scale in ((Shard(0), 1), (Replicate(), 1), (Partial(), ranks)):
    part = metaop.ones(2, 3, requires_grad=True)
    whole = DTensor.from_local(part, row, [placement])
    assert isinstance(whole, DTensor) and not isinstance(part, DTensor)
    assert whole.shape[0] == (2 * ranks if placement == Shard(0) else 2)
    assert whole.to_local().tolist() == part.tolist()
    total = whole.full_tensor()
    assert total.sum().item() == 6 * (1 if placement == Replicate() else ranks)
    (whole * whole).sum().backward()
    assert part.grad.tolist() == metaop.full((2, 3), 2.0 * scale).tolist()
weight = distribute_tensor(metaop.ones(2, requires_grad=True), row)
assert weight.is_leaf and weight.placements == (Replicate(),)
(weight.to_local(grad_placements=[Partial()]) * (rank + 1.0)).sum().backward()
(weight.full_tensor(grad_placements=[Partial()]) * (rank + 1.0)).sum().backward()
assert weight.grad.full_tensor().tolist() == [ranks * (ranks + 1.0)] * 2
own = distribute_tensor(metaop.full((ranks,), float(rank)), row, [Shard(0)], src_data_rank=None)
assert own.full_tensor().tolist() == list(range(ranks))

# Creation, a current mesh, and modules.
with row:
    assert full((ranks,), 3.0, placements=[Shard(0)]).to_local().tolist() == [3.0]
    metaop.manual_seed(3)
    numbers = randn(ranks + 1, 2, placements=[Shard(0)]).full_tensor()
    metaop.manual_seed(3)
    np.testing.assert_array_equal(numbers.numpy(), metaop.randn(ranks + 1, 2).numpy())
    metaop.manual_seed(rank)
    layer = metaop.nn.Linear(4, 3)
    distribute_module(
        layer,
        input_fn=lambda _, inputs, mesh: (DTensor.from_local(inputs[0], mesh, [Shard(0)]),),
        output_fn=lambda _, output, mesh: output.redistribute(mesh, [Shard(0)]).to_local(),
    )
metaop.manual_seed(0)
first = metaop.nn.Linear(4, 3)
given = metaop.ones(2, 4) * rank
np.testing.assert_allclose(layer(given).detach().numpy(), first(given).detach().numpy(), rtol=1e-6)
refused(ArgumentError, "distributed already", distribute_module, layer, row)
refused(ArgumentError, "2 arguments", distribute_module, first, row, input_fn=lambda x, mesh: x)


class Scaled(metaop.nn.Module):
    def forward(self, x: object, scale: object = None) -> object:
        assert x.placements == (Replicate(),) and scale.placements == (Shard(0),)
        return x * scale, x


style = PrepareModuleInputOutput(
    input_layouts=Shard(0),
    desired_input_layouts=Replicate(),
    input_kwarg_layouts={"scale": Replicate()},
    desired_input_kwarg_layouts={"scale": Shard(0)},
    output_layouts=(Replicate(), None),
    desired_output_layouts=(Shard(0), None),
)
scaled = parallelize_module(Scaled(), row, style)
product_of, same = scaled(metaop.full((1,), rank + 1.0), scale=metaop.full((ranks,), 2.0))
assert product_of.tolist() == [2 * rank + 2] and same.placements == (Replicate(),)
refused(ArgumentError, "1 input_layouts for 2 inputs", scaled, metaop.ones(1), metaop.ones(1))
refused(ArgumentError, 'mesh["tp"]', parallelize_module, scaled, mesh, style)

# What is refused.
plain = metaop.ones(2)
assert not hasattr(plain, "placements") and not hasattr(plain, "device_mesh")
refused(ArgumentError, "local tensor", plain.redistribute, row, [Shard(0)])
refused(ArgumentTypeError, "with mesh", distribute_tensor, plain)
refused(ArgumentError, "2 placements", distribute_tensor, plain, row, [Shard(0), Shard(0)])
refused(ArgumentTypeError, "no placement", distribute_tensor, plain, row, ["S"])
refused(ArgumentError, "Partial(avg)", distribute_tensor, plain, row, [Partial("avg")])
refused(ArgumentError, "src_data_rank=1", distribute_tensor, plain, row, src_data_rank=1)
refused(GradientError, "not a leaf", distribute_tensor, weight.to_local() * 2, row)
refused(ArgumentError, "redistribute()", distribute_tensor, weight, row, [Shard(0)])
refused(ArgumentError, "shape=[7]", DTensor.from_local, plain, row, [Shard(0)], shape=(7,))
refused(ArgumentTypeError, "from_local", DTensor, plain)
if ranks > 1:
    blocks = metaop.ones(5 - rank if rank == 0 else 1)
    refused(DistributedError, "not balanced", DTensor.from_local, blocks, row, [Shard(0)])
strange = plain.bool().to_global(row.placement, PartialState("or"))
refused(ArgumentError, "P(or)", getattr, strange, "placements")
