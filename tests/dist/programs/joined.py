"""Ranks that no mpirun has started: they find each other and train as one process does.

`joined.py spawn METHOD RANKS` starts them with multiprocessing, `fail METHOD RANKS` too, and one of
them fails; `joined.py rank` is one of them, which reads PyTorch's variables.
"""

import os
import sys
import time

import numpy as np

import metaop
import metaop.distributed as dist
from metaop import nn

random = np.random.default_rng(0)
inputs = random.normal(size=(12, 6)).astype(np.float32)
labels = random.integers(0, 3, 12)


def losses(model: nn.Module, share: slice, ranks: int) -> list[float]:
    optimizer = metaop.optim.SGD(model.parameters(), lr=0.1)
    found = []
    for _ in range(5):
        loss = nn.functional.cross_entropy(
            model(metaop.tensor(inputs[share])), metaop.tensor(labels[share])
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total = loss.detach()
        if ranks > 1:
            dist.all_reduce(total, "avg")
        found.append(total.item())
    return found


def check(rank: int, ranks: int) -> None:
    assert (dist.get_rank(), dist.get_world_size()) == (rank, ranks)
    metaop.manual_seed(rank)
    model = nn.parallel.DistributedDataParallel(nn.Linear(6, 3))
    alone = nn.Linear(6, 3)
    alone.load_state_dict(model.module.state_dict())
    found = losses(model, slice(rank, None, ranks), ranks)
    np.testing.assert_allclose(found, losses(alone, slice(None), 1), rtol=1e-5)
    print(f"rank {rank} of {ranks} agrees", flush=True)
    dist.destroy_process_group()


def train(rank: int, method: str, ranks: int, fails: bool) -> None:
    dist.init_process_group("gloo", init_method=method, rank=rank, world_size=ranks)
    if fails:
        if rank == 1:
            raise ZeroDivisionError("on purpose")
        time.sleep(60)
    check(rank, ranks)


def train_alone(rank: int) -> None:
    nn.parallel.DistributedDataParallel(nn.Linear(6, 3))


if __name__ == "__main__":
    kind, *rest = sys.argv[1:]
    if kind == "rank":
        dist.init_process_group("gloo")
        check(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    elif kind == "alone":
        metaop.multiprocessing.spawn(train_alone, nprocs=2)
    else:
        method, count = rest[0], int(rest[1])
        metaop.multiprocessing.spawn(train, (method, count, kind == "fail"), nprocs=count)
