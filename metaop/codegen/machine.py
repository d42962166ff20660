"""The processor in numbers, and the thresholds of schedules that follow from them.

A `Processor` says what the hardware has and how fast it is: registers, ports, caches, bandwidths,
and the cost of starting threads. `Thresholds` are the numbers that schedules use. They are powers
of two, or sizes of caches, so that measurements that differ by noise give the same code. Schedules
read only thresholds.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

# Linux describes the caches of a processor here.
CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
# An element in a map: 4 bytes are read and 4 are written.
_MOVED_BYTES = 8
# The operations of an expensive map for one element, which takes as long as moving it.
OPERATIONS = 16
# Memory traffic that takes as long as this many forks and joins is worth separate code, or a group.
_FORKS_WORTH_CODE = 32
# The fewest and the most elements of a chunk, whatever was measured.
_FEWEST, _MOST = 1 << 10, 1 << 18
# The fewest and the most bytes by which kernels prefetch ahead.
_NEAREST, _FARTHEST = 1 << 9, 1 << 13


def power_of_two(number: float) -> int:
    """The power of two that is nearest to a number, by their ratio; at least 1."""
    return int(1 << max(round(math.log2(number)), 0)) if number > 1 else 1


class Thresholds(NamedTuple):
    """What schedules need to know of a processor; the defaults are for an unknown one.

    A thread takes tasks with `chunk_work` operations in all at a time. Values that launches
    exchange, or write around the caches, are worth separate code from `least_bytes` on. Results are
    written around the caches if more than `stream_bytes` pass before they are read (0: never).
    `first_bytes` is the size of the first-level cache, rounded down to a power of two. Loops whose
    reads the hardware does not prefetch do so `ahead_bytes` ahead; cache lines have `line_bytes`.
    `registers` hold a vector each.
    """

    chunk_work: int
    least_bytes: int
    stream_bytes: int
    first_bytes: int
    ahead_bytes: int
    line_bytes: int
    registers: int

    @property
    def chunk_elements(self) -> int:
        """The elements of a cheap map with the work of a chunk."""
        return self.chunk_work // OPERATIONS

    def tasks_in_chunk(self, work: int) -> int:
        """The tasks that a thread takes at a time, by the operations of one; for 0 it takes one."""
        return max(self.chunk_work // work, 1) if work else 1


@dataclass(frozen=True)
class Processor:
    """What a processor has, and how fast it is.

    A vector has `lanes` elements of 4 bytes and there are `registers` of them. In a cycle, of which
    there are `frequency` in a second, a core starts `fma` multiply-adds, `loads` and `stores` of
    vectors. Caches have `first_bytes`, `near_bytes` (both of a core) and `last_bytes` (shared by
    cores; 0: not known), in lines of `line_bytes`. Bandwidths count bytes read and bytes written in
    a second: of a core in each cache, of a core in memory and of all cores in memory.
    `latency_seconds` passes until a line comes from memory. A launch on threads that wait for it
    costs `fork_seconds`, on threads that sleep `wake_seconds`; the first access to a page of 4 KiB
    costs `page_fault_seconds`. Where more than `stream_bytes` pass between writing and reading,
    stores around the caches pay (0: never). `is_measured` says whether the speeds were measured
    here, or are typical ones.
    """

    registers: int = 16
    lanes: int = 4
    fma: float = 1.0
    loads: float = 2.0
    stores: float = 1.0
    frequency: float = 3e9
    first_bytes: int = 32 << 10
    near_bytes: int = 0
    last_bytes: int = 0
    line_bytes: int = 64
    first_bandwidth: float = 196.608e9
    near_bandwidth: float = 65.536e9
    last_bandwidth: float = 32.768e9
    core_bandwidth: float = 16.384e9
    memory_bandwidth: float = 32.768e9
    latency_seconds: float = 62.5e-9
    fork_seconds: float = 2e-6
    wake_seconds: float = 20e-6
    page_fault_seconds: float = 0.25e-6
    stream_bytes: int = 0
    is_measured: bool = False

    @property
    def core_flops(self) -> float:
        """Operations of a core in a second; a multiply-add of float32 counts as two."""
        return 2 * self.fma * self.lanes * self.frequency

    def thresholds(self) -> Thresholds:
        """The numbers that schedules ask for.

        A chunk moves its elements in the near cache for as long as starting another thread takes:
        fewer are computed before that thread comes.
        """
        chunk = self.fork_seconds * self.near_bandwidth / _MOVED_BYTES
        worth_code = _FORKS_WORTH_CODE * self.fork_seconds * self.core_bandwidth
        ahead = self.latency_seconds * self.core_bandwidth
        return Thresholds(
            chunk_work=OPERATIONS * min(max(power_of_two(chunk), _FEWEST), _MOST),
            least_bytes=power_of_two(worth_code),
            stream_bytes=self.stream_bytes,
            first_bytes=1 << (self.first_bytes.bit_length() - 1),
            ahead_bytes=min(max(power_of_two(ahead), _NEAREST), _FARTHEST),
            line_bytes=self.line_bytes,
            registers=self.registers,
        )


# What instruction sets guarantee, and the processors that usually have them: everything that this
# package assumes of a processor. Caches have the smallest usual sizes.
_TYPICAL = Processor(near_bytes=1 << 18, last_bytes=8 << 20, stream_bytes=8 << 20)
TYPICAL = {
    "avx512": replace(_TYPICAL, registers=32, lanes=16, fma=2.0),
    "avx2": replace(_TYPICAL, lanes=8, fma=2.0),
    "baseline": _TYPICAL,
    "aarch64": replace(_TYPICAL, registers=32, fma=2.0),
}

PLAIN = Processor().thresholds()


def with_caches(processor: Processor, sizes: Mapping[int, int], line_bytes: int = 64) -> Processor:
    """The processor with caches as the system describes them, by their level.

    Neither the caches of a core nor the last one are assumed to be smaller than typical ones,
    because a virtual machine may report only a part.
    """
    near = max(processor.near_bytes, sizes.get(2, 0))
    last = max([processor.last_bytes, *sizes.values()])
    return replace(
        processor,
        first_bytes=sizes.get(1, processor.first_bytes),
        near_bytes=near,
        last_bytes=last,
        stream_bytes=last,
        line_bytes=line_bytes,
    )


# Every program asks for the machine, and the files take a millisecond to read.
@functools.cache
def cache_sizes(folder: Path = CACHES) -> tuple[dict[int, int], int]:
    """The caches of data by their level, in bytes, and the size of a line.

    Caches that the operating system does not report are missing; lines then have 64 bytes.
    """
    sizes: dict[int, int] = {}
    line = 0
    for path in sorted(folder.glob("index*/size")):
        with contextlib.suppress(OSError, ValueError):
            if _text(path.parent / "type") == "Instruction":
                continue
            level, size = int(_text(path.parent / "level")), _bytes(_text(path))
            sizes[level] = max(size, sizes.get(level, 0))
            line = line or int(_text(path.parent / "coherency_line_size") or 0)
    return sizes, line or 64


def _text(path: Path) -> str:
    return path.read_text().strip() if path.exists() else ""


def _bytes(text: str) -> int:
    units = {"K": 10, "M": 20, "G": 30}
    return int(text.rstrip("KMG")) << units.get(text[-1:], 0)
