"""All-reduce of 100 MB between processes of one host, beside PyTorch's gloo and memory copies.

    metaop run -np 2 benchmarks/allreduce.py
    metaop run -np 2 benchmarks/allreduce.py --megabytes 4 --what reduce_scatter

Everything is measured in turns; prints one JSON line on rank 0 with the minima over rounds of the
slowest rank's seconds, by the clock and of the processor. `two copies` is every rank copying the
array twice, `window` the collective through memory that the ranks share, from private memory to
private memory, `message` that of MPI, and `chosen` the one of both that global tensors and
DistributedDataParallel use.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from metaop.dist.collectives import MPIWorld, mpi
from metaop.dist.packing import Packed
from metaop.dist.sbp import block
from metaop.dist.transports import HostTransport, Transport, transport_of


class Ways:
    """The same collective by each transport."""

    def __init__(self, elements: int) -> None:
        self.communicator: Any = mpi().COMM_WORLD
        self.world = MPIWorld(self.communicator)
        self.values = np.ones(elements, np.float32)
        self.total = np.empty_like(self.values)
        rank, ranks = self.communicator.rank, self.communicator.size
        blocks = [block(elements, ranks, k) for k in range(ranks)]
        self.counts = [stop - start for start, stop in blocks]
        self.mine = np.ones(self.counts[rank], np.float32)

    def all_reduce(self, transport: Transport) -> None:
        """From `values` to `total`."""
        self._wait(transport.all_reduce(Packed.alone(self.values), self.total, "add"))

    def reduce_scatter(self, transport: Transport) -> None:
        """From `values` to `mine`."""
        self._wait(transport.reduce_scatter(self.values, self.mine, self.counts, "add"))

    def _wait(self, request: Any) -> None:
        self.world.wait(request, "the benchmark")

    def two_copies(self) -> None:
        """Two copies in memory, the baseline of a collective's time."""
        np.copyto(self.total, self.values)
        np.copyto(self.total, self.values)


def gloo(values: np.ndarray, communicator: Any) -> Callable[[], object] | None:
    """PyTorch's all-reduce, or None if PyTorch is not installed."""
    try:
        import torch
        import torch.distributed as distributed
    except ImportError:
        return None
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29511")
    distributed.init_process_group("gloo", rank=communicator.rank, world_size=communicator.size)
    tensor = torch.from_numpy(values.copy())
    return lambda: distributed.all_reduce(tensor)


def minima(ways: dict[str, Callable[[], object]], communicator: Any, rounds: int) -> dict:
    """For each transport the minimum of the slowest rank's seconds: wall time and CPU time."""
    best = {name: [float("inf")] * 2 for name in ways}
    for _ in range(rounds):
        for name, action in ways.items():
            communicator.Barrier()
            start, used = time.perf_counter(), time.process_time()
            action()
            seconds = time.perf_counter() - start, time.process_time() - used
            slowest = [communicator.allreduce(x, mpi().MAX) for x in seconds]
            best[name] = [min(pair) for pair in zip(best[name], slowest)]
    return best


def main() -> None:
    """Measures the transports in turns, on the same data."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--what", choices=("all_reduce", "reduce_scatter"), default="all_reduce")
    parser.add_argument("--megabytes", type=float, default=100)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    test = Ways(int(options.megabytes * 250_000))
    communicator, collective = test.communicator, getattr(test, options.what)
    chosen, message = transport_of(communicator), Transport(communicator)
    window = HostTransport(communicator, communicator)
    window.by_messages = False
    ways: dict[str, Callable[[], object]] = {
        "two copies": test.two_copies,
        "chosen": lambda: collective(chosen),
        "window": lambda: collective(window),
        "message": lambda: collective(message),
    }
    if options.what == "all_reduce" and (other := gloo(test.values, communicator)):
        ways["gloo"] = other
    best = minima(ways, communicator, options.rounds)
    if communicator.rank == 0:
        rows: dict[str, object] = {n: [round(x, 6) for x in pair] for n, pair in best.items()}
        for name in best.keys() & {"two copies", "gloo"}:
            ratios = [mine / other for mine, other in zip(best["chosen"], best[name])]
            rows[f"chosen / {name}"] = [round(ratio, 2) for ratio in ratios]
        print(json.dumps({"ranks": communicator.size, **vars(options), **rows}))


if __name__ == "__main__":
    main()
