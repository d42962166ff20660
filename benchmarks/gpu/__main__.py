"""Training steps on a GPU: measured on one that is there, predicted for those that are not.

python -m benchmarks.gpu                            # measures; needs a GPU
python -m benchmarks.gpu --predict                  # all networks on all machines, many minutes
python -m benchmarks.gpu --predict ResNet-50 GPT --machines H100
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Iterable, Iterator, Sequence

import metaop
from benchmarks import whole_steps  # noqa: F401  registers workloads
from benchmarks.gpu.machines import MACHINES, Machine
from benchmarks.gpu.on_gpu import OnGpu
from benchmarks.gpu.steps import Predicted, launches_of, programs_of
from benchmarks.workload import WORKLOADS, Workload
from metaop.codegen.cuda import nvrtc

_SHOWN = 10
# A launch that moves more than this and leaves multiprocessors idle is worth another schedule.
_LARGE = 8 << 20
_ROUNDS, _WARMING = 20, 3
_HEAD = (
    "| kernel | writes | times | us | share | limit | MB | Gflop | occupancy | waves | fills |\n"
    "| --- | --- | ---: | ---: | ---: | --- | ---: | ---: | ---: | ---: | --- |"
)


def parse_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="words of names; all networks without any")
    parser.add_argument("--predict", action="store_true", help="needs no GPU")
    parser.add_argument("--machines", nargs="+", choices=MACHINES, default=list(MACHINES))
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints what was asked for; returns 1 where a measurement has no GPU."""
    options = parse_options(arguments)
    words = [word.lower() for word in options.names]
    chosen = [
        row
        for row in WORKLOADS.values()
        if row.group == "training" and (not words or any(w in row.name.lower() for w in words))
    ]
    if options.predict:
        if not nvrtc.is_available():
            print("NVRTC is not installed: registers are those that kernels declare.\n")
        for row in chosen:
            programs = programs_of(row)
            for name in options.machines:
                found = [one for graph in programs for one in launches_of(graph, MACHINES[name])]
                print("\n".join(prediction(row.name, MACHINES[name], found)), flush=True)
        return 0
    if not metaop.cuda.is_available():
        print(
            "no GPU that cupy can use was found, so nothing was measured; "
            "python -m benchmarks.gpu --predict tells what published figures let expect",
            file=sys.stderr,
        )
        return 1
    print(f"{metaop.cuda.get_device_name()}: ms of a step, the median of {_ROUNDS}")
    for row in chosen:
        print(f"| {row.name} | {1e3 * measured(row):.2f} |", flush=True)
    return 0


def measured(workload: Workload) -> float:
    """The median seconds of a step on the GPU."""
    framework = OnGpu([])
    step = workload.prepare(framework).run
    times = []
    for _ in range(_WARMING + _ROUNDS):
        start = time.perf_counter()
        step()
        framework.finish()
        times.append(time.perf_counter() - start)
    return statistics.median(times[_WARMING:])


def prediction(name: str, machine: Machine, launches: Sequence[Predicted]) -> Iterator[str]:
    """The lines of a step: how long it takes, and the kernels that take most of it."""
    total = _seconds(launches)
    idle = [one for one in launches if not one.prediction.fills and one.demand.nbytes > _LARGE]
    products = [one for one in launches if one.demand.products]
    tensor = sum(one.prediction.tensor for one in products)
    yield f"## {name} on {machine.name}: {1e3 * total:.3f} ms\n"
    yield (
        f"{len(launches)} launches; {len(idle)} of them touch more than {_LARGE >> 20} MB and "
        f"leave multiprocessors idle, {1e3 * _seconds(idle):.3f} ms. Contractions take "
        f"{1e3 * _seconds(products):.3f} ms; no kernel uses tensor cores, which would need "
        f"{1e3 * tensor:.3f} ms at their full rate.\n"
    )
    groups: dict[tuple[object, ...], list[Predicted]] = {}
    for one in launches:
        groups.setdefault((one.shapes, one.demand), []).append(one)
    yield _HEAD
    for group in sorted(groups.values(), key=_seconds, reverse=True)[:_SHOWN]:
        yield _row(group, total)
    yield ""


def _row(group: Sequence[Predicted], total: float) -> str:
    shapes, demand, found = group[0]
    seconds = _seconds(group)
    cells = (
        demand.name,
        shapes,
        str(len(group)),
        f"{1e6 * seconds:.1f}",
        f"{seconds / total:.0%}",
        found.limit,
        f"{len(group) * demand.nbytes / 1e6:.1f}",
        f"{len(group) * demand.operations / 1e9:.2f}",
        f"{found.occupancy:.0%}",
        f"{found.waves:.2f}",
        "yes" if found.fills else "no",
    )
    return f"| {' | '.join(cells)} |"


def _seconds(launches: Iterable[Predicted]) -> float:
    return sum(one.prediction.seconds for one in launches)


if __name__ == "__main__":
    sys.exit(main())
