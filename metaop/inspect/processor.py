"""`metaop tune --machine`: measures the processor, prints the result and stores it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from typing import Any

from tqdm import tqdm

from metaop.codegen.llvm.measuring import Measurement, measured
from metaop.codegen.llvm.processor import host_processor, keep, system_processor
from metaop.codegen.llvm.target import host_target
from metaop.codegen.machine import Processor
from metaop.dist.environment import launched
from metaop.errors import ArgumentError
from metaop.settings import get

# The default; allocating buffers comes on top.
_SECONDS = 10.0


def add_command(commands: Any) -> None:
    """Adds `tune` to the subcommands of `metaop`."""
    parser = commands.add_parser("tune", help="measure the processor for better schedules")
    parser.add_argument(
        "--machine", action="store_true", required=True, help="bandwidths, ports, cost of threads"
    )
    parser.add_argument("--seconds", type=float, default=_SECONDS, help="approximate duration")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    print(tune_machine(arguments.seconds), end="")
    return 0


def tune_machine(seconds: float = _SECONDS) -> str:
    """Measures the processor for about `seconds` and stores the result for later processes.

    Returns a table of typical and measured numbers. Running processes keep their old numbers and
    programs. Run it when the machine is otherwise idle.

    Raises `ArgumentError` if METAOP_TARGET restricts the processor, and in a job of several ranks,
    which would disturb each other's timings.

    Example: `python -m metaop tune --machine` does it from a shell.
    """
    place = launched()
    if place is not None and place.size > 1:
        raise ArgumentError(
            f"a job of {place.size} ranks cannot measure the processor: they would disturb each "
            "other's timings",
            fix="measure in a single process with as many threads as a rank has "
            "(METAOP_NUM_THREADS)",
        )
    if host_target().name != "native":
        raise ArgumentError(
            f"METAOP_TARGET={host_target().name} restricts the processor, so typical numbers are "
            "used",
            fix="unset METAOP_TARGET to measure it",
        )
    found = measured(seconds, _with_bar)
    note = "" if keep(found) else "not saved: METAOP_DISK_CACHE is off or its folder is read-only\n"
    if get("METAOP_MACHINE") != "measured":
        note += f"not used: METAOP_MACHINE={get('METAOP_MACHINE')}\n"
    return _table(system_processor(), found) + note


def describe() -> list[tuple[str, str]]:
    """The processor that schedules assume, as names and values."""
    processor = host_processor()
    origin = "measured" if processor.is_measured else "typical, not measured"
    return [("speeds", origin), *_rows(processor)]


def _with_bar(rows: Iterable[Measurement]) -> Iterable[Measurement]:
    bar = tqdm(list(rows), "measuring", leave=False, disable=None, file=sys.stderr)
    for row in bar:
        bar.set_postfix_str(row.what)
        yield row


def _table(typical: Processor, found: Processor) -> str:
    rows = [("", "typical", "measured")]
    rows += [(name, old, new) for (name, old), (_, new) in zip(_rows(typical), _rows(found))]
    widths = [max(len(row[k]) for row in rows) for k in range(3)]
    lines = (
        f"{name.ljust(widths[0])}  {old.rjust(widths[1])}  {new.rjust(widths[2])}"
        for name, old, new in rows
    )
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _rows(one: Processor) -> list[tuple[str, str]]:
    """Numbers of a processor with their units, and the thresholds that schedules derive."""
    thresholds = one.thresholds()
    return [
        ("vector registers", f"{one.registers} of {one.lanes} float32"),
        (
            "multiply-adds, loads, stores per cycle",
            f"{one.fma:.2f}, {one.loads:.2f}, {one.stores:.2f}",
        ),
        ("clock frequency", f"{one.frequency / 1e9:.2f} GHz"),
        ("caches", ", ".join(map(_size, (one.first_bytes, one.near_bytes, one.last_bytes)))),
        ("cache line", f"{one.line_bytes} B"),
        ("L1 bandwidth per core", _rate(one.first_bandwidth)),
        ("L2 bandwidth per core", _rate(one.near_bandwidth)),
        ("last-level bandwidth per core", _rate(one.last_bandwidth)),
        ("memory bandwidth per core", _rate(one.core_bandwidth)),
        ("memory bandwidth, all cores", _rate(one.memory_bandwidth)),
        ("memory latency", f"{one.latency_seconds * 1e9:.0f} ns"),
        ("launch on spinning threads", f"{one.fork_seconds * 1e6:.2f} us"),
        ("launch on sleeping threads", f"{one.wake_seconds * 1e6:.1f} us"),
        ("page fault", f"{one.page_fault_seconds * 1e6:.2f} us"),
        ("non-temporal stores from", _size(one.stream_bytes)),
        ("elements per chunk of tasks", str(thresholds.chunk_elements)),
        ("bytes worth streaming or fusing", _size(thresholds.least_bytes)),
        ("prefetch distance", _size(thresholds.ahead_bytes)),
    ]


def _rate(number: float) -> str:
    return f"{number / 1e9:.1f} GB/s"


def _size(nbytes: int) -> str:
    for unit, shift in (("MiB", 20), ("KiB", 10)):
        if nbytes >= 1 << shift:
            return f"{nbytes / (1 << shift):g} {unit}"
    return f"{nbytes} B"
