"""`fully_shard` against one process: losses, where values lie, and states that are put back."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np

import metaop
import metaop.distributed as dist
from metaop import nn
from metaop.distributed import init_device_mesh
from metaop.distributed.fsdp import (
    FSDPModule,
    FullOptimStateDictConfig,
    FullStateDictConfig,
    FullyShardedDataParallel,
    MixedPrecisionPolicy,
    ShardingStrategy,
    StateDictType,
    fully_shard,
    register_fsdp_forward_method,
)
from metaop.distributed.state_dict import StateDictOptions, get_state_dict, set_state_dict
from metaop.distributed.tensor import DTensor, Replicate, Shard
from metaop.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from metaop.distributed.wrapping import ModuleWrapPolicy
from metaop.errors import ArgumentError
from metaop.utils.checkpoint import checkpoint

WORDS, WIDTH, STEPS = 11, 6, 3
rank, ranks = dist.get_rank(), dist.get_world_size()
kind = metaop.get_default_device().type


class Block(nn.Module):
    """A perceptron that is added to what it reads; 7 is divided by no number of ranks."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 7), nn.Linear(7, WIDTH)

    def forward(self, x: Any) -> Any:
        return x + self.down(nn.functional.gelu(self.up(x)))


class Network(nn.Module):
    """Blocks between a table and a head that is the table again."""

    recomputes = False

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)
        self.head.weight = self.table.weight
        self.norm.bias.requires_grad_(False)

    def forward(self, words: Any) -> Any:
        return self.head(self.features(words))

    def features(self, words: Any) -> Any:
        x = self.table(words)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.recomputes else block(x)
        return self.norm(x)


def network() -> Network:
    metaop.manual_seed(0)
    return Network()


def sharded(model: Network, **options: Any) -> Network:
    for block in model.blocks:
        fully_shard(block, **options)
    return fully_shard(model, **options)


def batches() -> list[Any]:
    random = np.random.default_rng(1)
    return [metaop.tensor(random.integers(0, WORDS, (4 * ranks, 5))) for _ in range(STEPS)]


def optimizer_of(model: nn.Module) -> Any:
    return metaop.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.05)


def loss_of(model: nn.Module, words: Any) -> Any:
    return nn.functional.cross_entropy(model(words).flatten(0, 1), words.flatten())


def train(model: nn.Module, optimizer: Any, share: Callable[[Any], list[Any]]) -> list[float]:
    """The losses of some steps, each of which accumulates the gradients of several batches."""
    losses = []
    for words in batches():
        optimizer.zero_grad()
        parts = share(words)
        for number, part in enumerate(parts):
            if isinstance(model, FSDPModule):
                model.set_requires_gradient_sync(number == len(parts) - 1)
            loss = loss_of(model, part) / len(parts)
            loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        losses.append(loss.item() * len(parts))
    return losses


def own(words: Any) -> list[Any]:
    return [words.chunk(ranks)[rank]]


def in_two(words: Any) -> list[Any]:
    return list(own(words)[0].chunk(2))


def whole(words: Any) -> list[Any]:
    return [words]


def check_alike(model: nn.Module, like: nn.Module) -> None:
    for (name, one), other in zip(model.named_parameters(), like.parameters(), strict=True):
        found, wanted = one.full_tensor().detach().cpu().numpy(), other.detach().cpu().numpy()
        np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-6, err_msg=name)


alone = network()
train(alone, optimizer_of(alone), whole)

# --- on a row, on replicas of rows, with gradients that are kept for a second pass ---------------

for share, recomputes in ((own, False), (own, True), (in_two, False)):
    model = sharded(network())
    model.recomputes = recomputes
    weight = model.blocks[0].up.weight
    assert isinstance(model, FSDPModule) and type(model).__name__ == "FSDPNetwork"
    assert isinstance(weight, DTensor) and weight.placements == (Shard(0),)
    assert model.head.weight is model.table.weight
    losses = train(model, optimizer_of(model), share)
    check_alike(model, alone)
    assert weight is model.blocks[0].up.weight and weight.grad.placements == (Shard(0),)
    assert model.norm.bias.grad is None

if ranks == 4:
    mesh = init_device_mesh(kind, (2, 2), mesh_dim_names=("replicas", "shards"))
    model = sharded(network(), mesh=mesh)
    assert model.blocks[1].down.weight.placements == (Replicate(), Shard(0))
    train(model, optimizer_of(model), own)
    check_alike(model, alone)

# --- with tensor parallelism ---------------------------------------------------------------------

mesh = init_device_mesh(kind, (ranks // 2, 2), mesh_dim_names=("dp", "tp"))
model = network()
for block in model.blocks:
    parallelize_module(block, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
    fully_shard(block, mesh=mesh["dp"])
fully_shard(model, mesh=mesh["dp"])
assert model.blocks[0].up.weight.device_mesh is mesh
assert tuple(model.blocks[0].up.weight.shape) == (7, WIDTH)
train(model, optimizer_of(model), lambda words: [words.chunk(ranks // 2)[rank // 2]])
check_alike(model, alone)

# --- dimensions of one's own, parameters that are left alone, other methods ----------------------

model = network()
for block in model.blocks:
    fully_shard(block, shard_placement_fn=lambda p: Shard(p.ndim - 1))
fully_shard(model, ignored_params={model.norm.weight})
assert model.blocks[0].up.weight.placements == (Shard(1),)
assert not isinstance(model.norm.weight, DTensor)
register_fsdp_forward_method(model, "features")
assert model.features(batches()[0]).shape == (4 * ranks, 5, WIDTH)
np.testing.assert_allclose(
    model(batches()[0]).detach().cpu().numpy(),
    network()(batches()[0]).detach().cpu().numpy(),
    atol=2e-6,
)

# --- types ---------------------------------------------------------------------------------------

policy = MixedPrecisionPolicy(param_dtype=metaop.bfloat16, reduce_dtype=metaop.float32)
model = network()
for block in model.blocks:
    fully_shard(block, mp_policy=policy)
fully_shard(model, mp_policy=replace(policy, output_dtype=metaop.float32))
seen: list[Any] = []
model.blocks[0].up.register_forward_hook(lambda layer, given, found: seen.append(found.dtype))
assert model(batches()[0]).dtype is metaop.float32
np.testing.assert_allclose(train(model, optimizer_of(model), in_two), losses, atol=0.1)
assert set(seen) == {metaop.bfloat16} and model.table.weight.grad.dtype is metaop.float32

# --- states --------------------------------------------------------------------------------------

model = sharded(network())
optimizer = optimizer_of(model)
train(model, optimizer, own)
options = StateDictOptions(full_state_dict=True, cpu_offload=True)
# A copy: like a module's, the state of an optimizer follows it.
values, moments = deepcopy(get_state_dict(model, optimizer, options=options))
assert not any(isinstance(value, DTensor) for value in values.values())
assert not isinstance(moments["state"]["table.weight"]["exp_avg"], DTensor)
expected = train(model, optimizer, own)
for from_first in (False, True):
    again = sharded(network())
    optimizer = optimizer_of(again)
    given = (values, moments) if rank == 0 or not from_first else ({}, {})
    set_state_dict(
        again,
        optimizer,
        model_state_dict=given[0],
        optim_state_dict=given[1],
        options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=from_first),
    )
    assert again.table.weight.placements == (Shard(0),)
    assert train(again, optimizer, own) == expected

# --- the wrapper ---------------------------------------------------------------------------------

blocks = ModuleWrapPolicy({Block})
wrapped = FullyShardedDataParallel(network(), auto_wrap_policy=blocks)
assert isinstance(wrapped.blocks[0], FullyShardedDataParallel)
assert isinstance(wrapped.module, FSDPModule) and isinstance(wrapped.blocks[1].up, nn.Linear)
optimizer = optimizer_of(wrapped)
for words in batches():
    optimizer.zero_grad()
    first, second = in_two(words)
    with wrapped.no_sync():
        (loss_of(wrapped, first) / 2).backward()
    (loss_of(wrapped, second) / 2).backward()
    wrapped.clip_grad_norm_(0.5)
    optimizer.step()
check_alike(wrapped, alone)
assert list(wrapped.state_dict()) == list(alone.state_dict())
assert dict(wrapped.named_parameters()).keys() == dict(alone.named_parameters()).keys()
assert isinstance(wrapped.state_dict()["blocks.0.up.weight"], DTensor)
full = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
with FullyShardedDataParallel.state_dict_type(
    wrapped, StateDictType.FULL_STATE_DICT, full, FullOptimStateDictConfig()
):
    values = deepcopy(wrapped.state_dict())
    moments = deepcopy(FullyShardedDataParallel.optim_state_dict(wrapped, optimizer))
assert bool(values) == (rank == 0) and not any(isinstance(x, DTensor) for x in values.values())
assert isinstance(wrapped.state_dict()["table.weight"], DTensor)
again = network()
if rank == 0:
    again.load_state_dict(values)
again = FullyShardedDataParallel(again, auto_wrap_policy=blocks, sync_module_states=True)
other = optimizer_of(again)
other.load_state_dict(FullyShardedDataParallel.optim_state_dict_to_load(again, other, moments))
assert train(again, other, own) == train(wrapped, optimizer, own)
again.load_state_dict({name: value.full_tensor() for name, value in wrapped.state_dict().items()})
assert all(isinstance(one, DTensor) for one in again.parameters())
assert again(batches()[0]).tolist() == wrapped(batches()[0]).tolist()

before = {name: one.full_tensor().tolist() for name, one in wrapped.named_parameters()}
with FullyShardedDataParallel.summon_full_params(wrapped, writeback=False):
    assert not any(isinstance(one, DTensor) for one in wrapped.parameters())
    assert {name: one.tolist() for name, one in wrapped.named_parameters()} == before
    whole_output = wrapped(batches()[0]).tolist()
    wrapped.head.weight.data.zero_()
assert wrapped.head.weight.full_tensor().tolist() == before["table.weight"]
assert wrapped(batches()[0]).tolist() == whole_output
weight = wrapped.blocks[0].up.weight
with FullyShardedDataParallel.summon_full_params(wrapped), metaop.no_grad():
    weight.mul_(2)
assert weight is wrapped.blocks[0].up.weight and weight.placements == (Shard(0),)
assert weight.full_tensor().tolist() == (metaop.tensor(before["blocks.0.up.weight"]) * 2).tolist()
with FullyShardedDataParallel.summon_full_params(wrapped, recurse=False):
    assert isinstance(weight, DTensor) and not isinstance(wrapped.head.weight, DTensor)
for wrong in ({"rank0_only": True}, {"with_grads": True}):
    try:
        with FullyShardedDataParallel.summon_full_params(wrapped, **wrong):
            raise AssertionError(wrong)
    except ArgumentError:
        pass
train(wrapped, optimizer_of(wrapped), own)

replicas = {ShardingStrategy.NO_SHARD: None}
if ranks == 4:
    replicas[ShardingStrategy.HYBRID_SHARD] = init_device_mesh(kind, (2, 2))
for strategy, mesh in replicas.items():
    wrapped = FullyShardedDataParallel(network(), None, strategy, device_mesh=mesh)
    train(wrapped, optimizer_of(wrapped), own)
    check_alike(wrapped, alone)

# --- parameters without values, and what fails ---------------------------------------------------

with metaop.device("meta"):
    empty = sharded(Network())
empty.to_empty(device=kind)
assert empty.blocks[0].up.weight.placements == (Shard(0),)
empty.load_state_dict(sharded(network()).state_dict())
train(empty, optimizer_of(empty), own)
check_alike(empty, alone)

try:
    model(metaop.ones(2, 3))
except Exception:
    assert isinstance(model.table.weight, DTensor)
else:
    raise AssertionError("an embedding looked up fractions")
