"""What the simulator predicts of traffic and memory is what ranks count; times are printed."""

import sys
import time
from pathlib import Path

import numpy as np

import metaop
from metaop.compiler import local_compiler
from metaop.dist.mesh_world import mesh_shard
from metaop.dist.planned import PlannedProgram
from metaop.dist.sbp import BROADCAST, Split
from metaop.distributed import get_rank, get_world_size, placement
from metaop.distributed.simulation import plan_for, predict_plan

sys.path.insert(0, str(Path(__file__).parents[3]))

from tests.dist.steps import mlp, training_step, transformer, transformer_shapes

rank, ranks = get_rank(), get_world_size()
B, S0, S1 = BROADCAST, Split(0), Split(1)
random = np.random.default_rng(0)


def normal(*shape: int) -> metaop.Tensor:
    return metaop.tensor((random.normal(size=shape) * 0.1).astype(np.float32))


def check(name, loss, parameters, data, mesh, given) -> None:
    """One step by plan, with what was predicted of it."""
    tensors = [*(normal(*shape) for shape in parameters), *(normal(*shape) for shape in data)]
    count = len(parameters)
    step = training_step(loss, count)
    plan = plan_for(step, *tensors, ranks=mesh, given=given, updated=range(count))
    world = placement("cpu", ranks=np.arange(ranks).reshape(mesh)).world
    place = world.place(world.owned[0])
    expected = predict_plan(plan, place=place)
    program = PlannedProgram(plan, world, local_compiler(metaop.device("cpu")))
    values = [tensor.detach().numpy() for tensor in tensors]
    # Numbers that the step takes along.
    values += [np.asarray(v, n.dtype.numpy) for v, n in zip(NUMBERS, plan.inputs[len(values) :])]
    parts = [
        {world.owned[0]: mesh_shard(value, states, world.mesh, place)}
        for value, states in zip(values, plan.given)
    ]
    seconds = []
    for _ in range(3):
        before = sum(world.sent)
        start = time.perf_counter()
        program.run(parts)
        seconds.append(time.perf_counter() - start)
        assert sum(world.sent) - before == expected.sent_bytes, name
        assert program.peak_bytes == expected.peak_bytes, (
            name,
            program.peak_bytes,
            expected.peak_bytes,
        )
    if rank == 0:
        print(f"{name}: {expected}; measured {1e3 * min(seconds):.3f} ms")


# The values do not matter here: traffic and memory depend on shapes alone.
NUMBERS = [0.5] * 16

column = (ranks,)
check(
    "data parallel", mlp, [(31, 67), (67, 31)], [(45, 31)] * 2, column, [(B,), (B,), (S0,), (S0,)]
)
check("ZeRO", mlp, [(31, 67), (67, 31)], [(45, 31)] * 2, column, [(S0,), (S0,), (S0,), (S0,)])
check("tensor", mlp, [(31, 67), (67, 31)], [(45, 31)] * 2, column, [(S1,), (S0,), (B,), (B,)])
mesh = (ranks // 2, 2)
check(
    "hybrid",
    mlp,
    [(31, 67), (67, 31)],
    [(45, 31)] * 2,
    mesh,
    [(B, S1), (B, S0), (S0, B), (S0, B)],
)
check(
    "transformer",
    transformer(4, 1),
    transformer_shapes(1, 32),
    [(4, 10, 32)] * 2,
    mesh,
    [(B, B), (B, S0), (B, S1), (B, S0), (S0, B), (S0, B)],
)
print(f"rank {rank} agrees")
