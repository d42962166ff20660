"""What averaging the gradients costs: ResNet-18 steps with and without it, in turns.

    metaop run -np 2 benchmarks/data_parallel.py
    metaop run -np 2 benchmarks/data_parallel.py --batch 16 --size 224

Prints one JSON line on rank 0: the minima over rounds of the slowest rank's seconds for a step of
every rank by itself and with `DistributedDataParallel`, by the clock and of the processor. The
latter say what averaging costs also on a machine that others use.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import metaop
from metaop import nn
from metaop.dist.collectives import mpi
from models.resnet import resnet18

Seconds = tuple[float, float]


def stepper(batch: int, size: int, wrap: Callable[[nn.Module], nn.Module]) -> Callable[[], Seconds]:
    """A training step of a network of its own; returns its seconds, by the clock and used."""
    metaop.manual_seed(0)
    model = wrap(resnet18(num_classes=10))
    optimizer = metaop.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    images, labels = metaop.randn(batch, 3, size, size), metaop.arange(batch) % 10

    def step() -> Seconds:
        start, used = time.perf_counter(), time.process_time()
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return time.perf_counter() - start, time.process_time() - used

    return step


def main() -> None:
    """Measures them in turns."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--size", type=int, default=96)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    world: Any = mpi().COMM_WORLD
    parallel = nn.parallel.DistributedDataParallel
    ways: dict[str, Callable[[nn.Module], nn.Module]] = {
        "alone": lambda module: module,
        "averaged": parallel,
        "averaged, in place": lambda m: parallel(m, gradient_as_bucket_view=True),
    }
    steps = {name: stepper(options.batch, options.size, wrap) for name, wrap in ways.items()}
    best = {name: (float("inf"), float("inf")) for name in steps}
    for round_ in range(options.rounds + 2):
        for name, step in steps.items():
            world.Barrier()
            seconds = [world.allreduce(x, mpi().MAX) for x in step()]
            if round_ >= 2:
                best[name] = min(best[name][0], seconds[0]), min(best[name][1], seconds[1])
    if world.rank == 0:
        alone = best["alone"]
        rows: dict[str, object] = {}
        for name, (clock, used) in best.items():
            rows[name] = {"seconds": round(clock, 4), "processor seconds": round(used, 4)}
            if name != "alone":
                rows[f"{name}: overhead"] = [
                    f"{100 * (mine / other - 1):.1f} %" for mine, other in zip(best[name], alone)
                ]
        print(json.dumps({"ranks": world.size, **vars(options), **rows}))


if __name__ == "__main__":
    main()
