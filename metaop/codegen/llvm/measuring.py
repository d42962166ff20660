"""Measures the processor of this machine: what `python -m metaop tune --machine` runs."""

from __future__ import annotations

import mmap
import statistics
import time
from collections.abc import Callable, Iterable
from ctypes import addressof, c_char
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from metaop.codegen.llvm import probes
from metaop.codegen.llvm.probes import Launch, addresses_of, launched
from metaop.codegen.llvm.processor import system_processor
from metaop.codegen.llvm.runtime import runtime
from metaop.codegen.llvm.target import Target, host_target
from metaop.codegen.machine import Processor
from metaop.codegen.memory.buffers import Buffer, allocate, machine_bytes

# Iterations of register probes, and bytes that a core copies within caches, per launch: about a
# millisecond.
_TURNS, _COPIED = 1 << 16, 1 << 24
# The fewest launches of a measurement; the launches of the program that measures a fork, and the
# iterations of each, a few microseconds.
_LAUNCHES, _FORKS, _WORK = 3, 20, 1 << 12
# Pauses between launches on sleeping threads, and iterations: both long compared to waking.
_REST, _LONG_WORK = 2e-3, 1 << 16
# The resolution of clocks.
_SHORTEST = 1e-8
# The bytes of fresh memory, and of a chain of reads.
_FRESH, _CHASED = 1 << 24, 1 << 15
# Copies from memory are as large as the last cache and at least this large, in this many slices.
_LARGE, _SLICES = 1 << 28, 32
# Nontemporal stores pay if they take at most this share of the time.
_PAYS = 0.97
# The bytes of buffers per second of measuring, and their largest share of the machine's memory.
_BYTES_A_SECOND, _SHARE_OF_MEMORY = 1 << 25, 16


class Measurement(NamedTuple):
    """A function that measures some numbers, given those measured before it."""

    what: str
    function: Callable[[Probing], dict[str, float]]


class Probing:
    """A processor that is measured number by number.

    Each measurement takes about `seconds`, and its buffers at most `most_bytes`.
    """

    def __init__(self, processor: Processor, target: Target, seconds: float, most: int) -> None:
        self.processor = processor
        self.target = target
        self.seconds = seconds
        self.most_bytes = most
        self.threads = runtime().get_num_threads()

    def least(self, *launches: Launch) -> float:
        """The least seconds of launches, run repeatedly as one program."""
        return min(self.times(launched(*launches)))

    def after_rest(self, launch: Launch) -> float:
        """The median seconds of a launch that finds all threads asleep."""
        return statistics.median(self.times(launched(launch), rest=_REST))

    def times(self, launch: Callable[[], float], part: int = 1, rest: float = 0.0) -> list[float]:
        """The seconds of launches for a part of the time, with pauses between them."""
        launch()
        found: list[float] = []
        stop = time.perf_counter() + self.seconds / part
        while len(found) < _LAUNCHES or time.perf_counter() < stop:
            if rest:
                time.sleep(rest)
            found.append(launch())
        return found

    def buffers(self, nbytes: int, count: int = 2) -> list[Buffer]:
        """Buffers filled with small numbers, outside the pool."""
        found = [allocate(nbytes) for _ in range(count)]
        for buffer in found:
            # Normal numbers, because a processor may be a hundred times slower on subnormal ones.
            np.asarray(buffer).view(np.float32)[:] = 0.5
        return found

    def copied(self, nbytes: int) -> float:
        """Bytes read and written per second by a core that copies a buffer repeatedly."""
        unit = probes.VECTORS * self.target.vector_bytes
        size = max(nbytes // unit, 1) * unit
        rounds = max(_COPIED // size, 1)
        text = probes.copy(self.target, size, rounds=rounds)
        seconds = self.least(Launch(text, addresses_of(*self.buffers(size))))
        return 2.0 * size * rounds / seconds

    @property
    def large(self) -> int:
        """The bytes of a copy that exceeds every cache, or the most allowed."""
        return min(max(_LARGE, self.processor.last_bytes), self.most_bytes)


Measurements = Iterable[Measurement]


def measured(seconds: float, show: Callable[[Measurements], Measurements] = iter) -> Processor:
    """This processor, measured for about `seconds` in all.

    `show` iterates over the measurements, like a progress bar. Numbers that a single thread cannot
    measure keep their typical values. A short time means smaller buffers, which caches may hold.
    """
    share = seconds / len(_MEASUREMENTS) / 2
    most = min(max(int(seconds * _BYTES_A_SECOND), 1 << 20), machine_bytes() // _SHARE_OF_MEMORY)
    probing = Probing(system_processor(), host_target(), share, most)
    for measurement in show(_MEASUREMENTS):
        found = measurement.function(probing)
        probing.processor = replace(probing.processor, **found)  # type: ignore[arg-type]
    return replace(probing.processor, is_measured=True)


def _frequency(probing: Probing) -> dict[str, float]:
    text = probes.additions(probing.target, _TURNS)
    seconds = probing.least(Launch(text, addresses_of(*probing.buffers(64, 1))))
    return {"frequency": 2 * _TURNS / seconds}


def _ports(probing: Probing) -> dict[str, float]:
    found = {}
    for name, probe, each in (
        ("fma", probes.multiply_add, probes.CHAINS),
        ("loads", probes.loads, probes.VECTORS),
        ("stores", probes.stores, probes.VECTORS),
    ):
        addresses = addresses_of(*probing.buffers(probing.target.vector_bytes * probes.VECTORS, 1))
        seconds = probing.least(Launch(probe(probing.target, _TURNS), addresses))
        found[name] = each * _TURNS / seconds / probing.processor.frequency
    return found


def _caches(probing: Probing) -> dict[str, float]:
    processor = probing.processor
    sizes = {
        "first_bandwidth": processor.first_bytes // 2,
        "near_bandwidth": processor.near_bytes // 2,
        "last_bandwidth": min(4 * processor.near_bytes, processor.last_bytes // 2),
    }
    return {name: probing.copied(size // 2) for name, size in sizes.items()}


def _memory(probing: Probing) -> dict[str, float]:
    """The memory bandwidths, from copies of slices, one of which probably runs undisturbed."""
    buffers, found = probing.buffers(probing.large), {}
    for name, tasks, around in (
        ("core_bandwidth", 1, False),
        ("memory_bandwidth", 4 * probing.threads, True),
    ):
        unit = tasks * probes.VECTORS * probing.target.vector_bytes
        size = probing.large // _SLICES // unit * unit
        text = probes.copy(probing.target, size // tasks, around=around)
        slices = [
            launched(Launch(text, [one.address + k * size for one in buffers], tasks))
            for k in range(_SLICES)
        ]
        found[name] = 2 * size / min(min(probing.times(one, _SLICES)) for one in slices)
    return found


def _latency(probing: Probing) -> dict[str, float]:
    nbytes, turns = 1 << (probing.large.bit_length() - 1), _CHASED
    (buffer,) = probing.buffers(nbytes, 1)
    np.asarray(buffer)[:] = 0
    text = probes.chase(probing.target, turns, nbytes, probing.processor.line_bytes)
    (own,) = probing.buffers(64, 1)
    np.asarray(own)[:] = 0
    return {"latency_seconds": probing.least(Launch(text, addresses_of(own, buffer))) / turns}


def _threads(probing: Probing) -> dict[str, float]:
    if probing.threads == 1:
        return {}
    addresses = addresses_of(*probing.buffers(64, 1))
    short, long = (probes.additions(probing.target, turns) for turns in (_WORK, _LONG_WORK))
    # One task per thread takes as long as a single task, except for the cost of sharing them.
    alone = probing.least(*[Launch(short, addresses)] * _FORKS)
    shared = probing.least(*[Launch(short, addresses, probing.threads)] * _FORKS)
    fork = max((shared - alone) / _FORKS, _SHORTEST)
    awake = probing.least(Launch(long, addresses))
    woken = probing.after_rest(Launch(long, addresses, probing.threads))
    return {"fork_seconds": fork, "wake_seconds": max(woken - awake, fork)}


def _page_fault(probing: Probing) -> dict[str, float]:
    text, pages = probes.touch(probing.target), min(_FRESH, probing.most_bytes) // probes.PAGE
    times = []
    for _ in range(_LAUNCHES):
        with mmap.mmap(-1, pages * probes.PAGE) as fresh:
            view = c_char.from_buffer(fresh)
            address = addressof(view)
            touched = launched(Launch(text, [address, address], pages, pages))
            first, again = touched(), touched()
            times.append(max(first - again, 0.0))
            del view
    return {"page_fault_seconds": min(times) / pages}


def _streaming(probing: Probing) -> dict[str, float]:
    """The fewest bytes between writing and reading for which nontemporal stores pay."""
    last, tasks = probing.processor.last_bytes, 4 * probing.threads
    found = probing.processor.stream_bytes
    for between in (2 * last, last, last // 2, last // 4):
        # A launch reads as much as it writes.
        nbytes = between // 2
        if nbytes > probing.most_bytes:
            continue
        unit = probes.VECTORS * probing.target.vector_bytes
        chunk = max(nbytes // tasks // unit, 1) * unit
        first, second, third = probing.buffers(chunk * tasks, 3)
        plain, around = (
            probing.least(
                Launch(
                    probes.copy(probing.target, chunk, around=is_around),
                    addresses_of(second, first),
                    tasks,
                ),
                Launch(probes.copy(probing.target, chunk), addresses_of(third, second), tasks),
            )
            for is_around in (False, True)
        )
        if around > _PAYS * plain:
            # They did not pay even for the largest size, so the threshold is above it.
            found = 2 * between if between == 2 * last else found
            break
        found = between
    return {"stream_bytes": found}


_MEASUREMENTS = (
    Measurement("cycles", _frequency),
    Measurement("ports", _ports),
    Measurement("caches", _caches),
    Measurement("memory", _memory),
    Measurement("latency", _latency),
    Measurement("threads", _threads),
    Measurement("page faults", _page_fault),
    Measurement("stores around caches", _streaming),
)
