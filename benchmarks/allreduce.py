"""All-reduce of 100 MB between processes of one host, beside PyTorch's gloo and memory copies.

    metaop run -np 2 benchmarks/allreduce.py

Prints one JSON line on rank 0: medians in seconds. `window` is the reduction in memory that the
ranks share (what DistributedDataParallel uses), `message` is MPI_Allreduce.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Callable

import numpy as np

from metaop.dist.arena import SharedSum
from metaop.dist.collectives import mpi

ELEMENTS = 25_000_000
ROUNDS = 7


def measured(action: Callable[[], object], communicator: object) -> float:
    """The median over rounds of the slowest rank's time."""
    times = []
    for _ in range(ROUNDS):
        communicator.Barrier()  # type: ignore[attr-defined]
        start = time.perf_counter()
        action()
        times.append(communicator.allreduce(time.perf_counter() - start, mpi().MAX))  # type: ignore[attr-defined]
    return statistics.median(times)


def gloo(values: np.ndarray, communicator: object) -> float | None:
    """PyTorch's time, or None where PyTorch is not installed."""
    try:
        import torch
        import torch.distributed as distributed
    except ImportError:
        return None
    rank, size = communicator.rank, communicator.size  # type: ignore[attr-defined]
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29511")
    distributed.init_process_group("gloo", rank=rank, world_size=size)
    tensor = torch.from_numpy(values.copy())
    found = measured(lambda: distributed.all_reduce(tensor), communicator)
    distributed.destroy_process_group()
    return found


def main() -> None:
    """Measures the ways one after another, on the same data."""
    module = mpi()
    communicator = module.COMM_WORLD
    values = np.ones(ELEMENTS, np.float32)
    copied, total = np.empty_like(values), np.empty_like(values)
    shared = SharedSum(communicator, ELEMENTS, np.float32)
    shared.mine[:] = values
    rows = {
        "ranks": communicator.size,
        "bytes": values.nbytes,
        "copy": measured(lambda: np.copyto(copied, values), communicator),
        "window": measured(shared.reduce, communicator),
        "message": measured(lambda: communicator.Allreduce(values, total), communicator),
        "gloo": gloo(values, communicator),
    }
    if communicator.rank == 0:
        print(json.dumps({k: round(v, 4) if isinstance(v, float) else v for k, v in rows.items()}))


if __name__ == "__main__":
    main()
