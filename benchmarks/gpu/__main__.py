"""Training steps on a GPU: measured on one that is there, predicted for those that are not.

python -m benchmarks.gpu                            # measures; needs a GPU
python -m benchmarks.gpu --predict                  # all networks on all machines, many minutes
python -m benchmarks.gpu --predict ResNet-50 GPT --machines H100
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import json
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import metaop
from benchmarks import whole_steps  # noqa: F401  registers workloads
from benchmarks.frameworks import Framework
from benchmarks.gpu.kernels import operations, seconds_of
from benchmarks.gpu.large_steps import GROUP
from benchmarks.gpu.machines import MACHINES, Machine
from benchmarks.gpu.on_gpu import Measured, OnGpu, TorchOnGpu, measured
from benchmarks.gpu.steps import Predicted, launches_of, programs_of
from benchmarks.workload import WORKLOADS, Workload
from metaop.codegen.cuda import nvrtc

_SHOWN = 10
# A launch that moves more than this and leaves multiprocessors idle is worth another schedule.
_LARGE = 8 << 20
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
    parser.add_argument("--json", type=Path, help="a file that gets all numbers")
    parser.add_argument("--machines", nargs="+", choices=MACHINES, default=list(MACHINES))
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints what was asked for; returns 1 where a measurement has no GPU."""
    options = parse_options(arguments)
    words = [word.lower() for word in options.names]
    groups = ("training",) if options.predict else ("training", "mixed precision", GROUP)
    chosen = [
        row
        for row in WORKLOADS.values()
        if row.group in groups and (not words or any(w in row.name.lower() for w in words))
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
    rows = [*_measured_operations(words), *_measured_steps(chosen)]
    if options.json:
        facts = {"gpu": metaop.cuda.get_device_name(), "rows": rows}
        options.json.write_text(json.dumps(facts, indent=1))
    return 0


def _measured_operations(words: Sequence[str]) -> list[dict[str, Any]]:
    """Prints and returns what single operations take, beside PyTorch where it is installed."""
    chosen = [one for one in operations() if not words or any(w in one.name for w in words)]
    if not chosen:
        return []
    print(f"{metaop.cuda.get_device_name()}: single operations in us, GB/s and Tflop/s of metaop\n")
    print("| operation | metaop | PyTorch | ratio | GB/s | Tflop/s |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    rows = []
    for one in chosen:
        mine, theirs = _both(one.name, functools.partial(seconds_of, one))
        rows.append({"name": one.name, "metaop": mine, "torch": theirs})
        rates = (one.nbytes / mine / 1e9, one.flops / mine / 1e12) if mine else (0.0, 0.0)
        cells = (_number(mine, 1e6), _number(theirs, 1e6), _ratio(mine, theirs))
        print(f"| {one.name} | {' | '.join(cells)} | {rates[0]:.0f} | {rates[1]:.1f} |", flush=True)
    print()
    return rows


def _measured_steps(chosen: Sequence[Workload]) -> list[dict[str, Any]]:
    """Prints and returns what training steps take, beside PyTorch where it is installed."""
    if not chosen:
        return []
    print(f"{metaop.cuda.get_device_name()}: ms of a training step; busy is the GPU's own work\n")
    print("| step | metaop | busy | launches | PyTorch | busy | launches | ratio | differs by |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    rows = []
    for row in chosen:
        mine, theirs = _both(row.name, functools.partial(measured, row))
        cells, kernels = [row.name], {}
        for side, name in ((mine, "metaop"), (theirs, "torch")):
            if side is None:
                cells += ["-", "-", "-"]
                continue
            cells += [f"{1e3 * side.seconds:.2f}", f"{1e3 * side.busy:.2f}", str(side.launches)]
            kernels[name] = {
                "seconds": side.seconds,
                "kernels": [tuple(kernel) for kernel in side.kernels],
            }
        both = mine is not None and theirs is not None
        cells.append(_ratio(mine.seconds, theirs.seconds) if both else "-")
        cells.append(f"{_difference(mine, theirs):.1e}" if both else "-")
        rows.append({"name": row.name, **kernels})
        print(f"| {' | '.join(cells)} |", flush=True)
    return rows


def _both(name: str, measure: Callable[[Framework], Any]) -> tuple[Any, Any]:
    """What metaop takes and what PyTorch does.

    None, with the reason on standard error, where one fails, or where PyTorch is not installed.
    """
    weights: list[dict[str, np.ndarray]] = []
    makers: list[Callable[[], Framework]] = [lambda: OnGpu(weights)]
    if importlib.util.find_spec("torch"):
        makers.append(lambda: TorchOnGpu(weights, "torch"))
    found: list[Any] = [None, None]
    for k, make in enumerate(makers):
        try:
            found[k] = measure(make())
        except Exception:
            print(f"{name} failed:", traceback.format_exc(), file=sys.stderr, flush=True)
    return found[0], found[1]


def _difference(mine: Measured, theirs: Measured) -> float:
    """The largest difference of what was observed, relative to the largest value."""
    pairs = list(zip(mine.observed, theirs.observed, strict=True))
    return max(float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-30)) for a, b in pairs)


def _number(seconds: float | None, scale: float) -> str:
    return "-" if seconds is None else f"{scale * seconds:.1f}"


def _ratio(mine: float | None, theirs: float | None) -> str:
    return f"{theirs / mine:.2f}" if mine and theirs else "-"


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
        f"{1e3 * _seconds(products):.3f} ms; all by tensor cores at their full rate would take "
        f"{1e3 * tensor:.3f} ms.\n"
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
