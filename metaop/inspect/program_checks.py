"""Finds what makes a program slow by watching it run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from metaop.codegen.estimate import KernelWork
from metaop.codegen.memory.buffers import machine_bytes
from metaop.inspect.by_line import Place
from metaop.inspect.findings import Check
from metaop.inspect.limits import Limits, limits

# The minimum count, or share of the time, of a finding.
_PROGRAMS, _READS, _CUTS, _ELEMENTS = 5, 10, 50, 200
_COMPILING, _COMPILING_SECONDS = 0.5, 0.2
_TINY_SECONDS, _HOST = 1e-4, 0.5
_WAITING, _WAITING_SECONDS = 0.2, 0.05
# Shorter kernels mostly wait for threads.
_SLOW, _SLOW_SHARE, _SLOW_SECONDS = 0.2, 0.1, 1e-4
_MEMORY, _UNUSED = 0.5, 0.1
_LINES = 3


class Compilation(NamedTuple):
    """A compiled program: its line, compile time, operators and inputs."""

    place: Place
    seconds: float
    operators: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]


class KernelTime(NamedTuple):
    """A kernel's work, its number of runs, its fastest run, and the line it mostly serves."""

    work: KernelWork
    runs: int
    seconds: float
    place: Place


class ProgramFacts(NamedTuple):
    """Observations of a running program; times in seconds, memory in bytes, counts by line.

    `cuts` counts programs run at a line, `early_reads` those followed by a backward pass, and
    `element_reads` those of one or two operators with one element. `unrolled` is the largest number
    of operators on few elements that a line recorded in one program, `doubles` the operators that
    converted float32 to float64, `waits` the seconds that a line waited for batches of a DataLoader
    with at most that many `workers`. `gradients` and `unused` are the bytes of all gradients and of
    those that no optimizer uses.
    """

    seconds: float = 0.0
    kernel_seconds: float = 0.0
    compilations: Sequence[Compilation] = ()
    cuts: Mapping[Place, int] = {}
    early_reads: Mapping[Place, int] = {}
    element_reads: Mapping[Place, int] = {}
    unrolled: Mapping[Place, int] = {}
    doubles: Mapping[Place, int] = {}
    waits: Mapping[Place, float] = {}
    workers: int = 0
    kernels: Sequence[KernelTime] = ()
    peak: int = 0
    gradients: int = 0
    unused: int = 0


Evidence = Iterable[Mapping[str, Any]]


def _many_programs(facts: ProgramFacts) -> Evidence:
    by_place: dict[Place, list[Compilation]] = {}
    for compilation in facts.compilations:
        by_place.setdefault(compilation.place, []).append(compilation)
    for place, found in by_place.items():
        if len(found) >= _PROGRAMS:
            seconds = sum(one.seconds for one in found)
            yield {
                "place": place,
                "count": len(found),
                "seconds": seconds,
                "change": _change(found[-2], found[-1]),
            }


def _change(before: Compilation, after: Compilation) -> str:
    """Describes what differs between two programs, in a few words."""
    if before.operators != after.operators:
        return f"{len(before.operators)} operators, then {len(after.operators)}"
    if len(before.shapes) != len(after.shapes):
        return f"{len(before.shapes)} inputs, then {len(after.shapes)}"
    for number, (a, b) in enumerate(zip(before.shapes, after.shapes)):
        if a != b:
            return f"input {number} has shape {list(a)}, then {list(b)}"
    return "the same operators on inputs of the same shapes, with other attributes"


def _compiling(facts: ProgramFacts) -> Evidence:
    seconds = sum(one.seconds for one in facts.compilations)
    if seconds > _COMPILING * facts.seconds and seconds >= _COMPILING_SECONDS:
        count = len(facts.compilations)
        yield {"seconds": seconds, "share": seconds / facts.seconds, "count": count}


def _early_reads(facts: ProgramFacts) -> Evidence:
    return _frequent(facts.early_reads, _READS)


def _element_reads(facts: ProgramFacts) -> Evidence:
    return _frequent(facts.element_reads, _ELEMENTS)


def _unrolled(facts: ProgramFacts) -> Evidence:
    return _frequent(facts.unrolled, _ELEMENTS)


def _doubles(facts: ProgramFacts) -> Evidence:
    return _frequent(facts.doubles, 1)


def _frequent(counts: Mapping[Place, int], least: int) -> Evidence:
    """The lines with the highest counts."""
    for place, count in Counter(counts).most_common(_LINES):
        if count >= least:
            yield {"place": place, "count": count}


def _tiny_programs(facts: ProgramFacts) -> Evidence:
    count = sum(facts.cuts.values())
    compiling = sum(one.seconds for one in facts.compilations)
    running = facts.seconds - compiling - sum(facts.waits.values())
    rest = running - facts.kernel_seconds
    if count < _CUTS or facts.kernel_seconds > count * _TINY_SECONDS or rest < _HOST * running:
        return
    place, most = Counter(facts.cuts).most_common(1)[0]
    yield {
        "place": place,
        "most": most,
        "count": count,
        "kernels": facts.kernel_seconds * 1e3,
        "rest": rest * 1e3,
    }


def _waiting(facts: ProgramFacts) -> Evidence:
    for place, seconds in facts.waits.items():
        if seconds >= max(_WAITING * facts.seconds, _WAITING_SECONDS):
            share = seconds / facts.seconds
            yield {"place": place, "seconds": seconds, "share": share, "workers": facts.workers}


def _slow_kernels(facts: ProgramFacts) -> Evidence:
    whole = sum(kernel.runs * kernel.seconds for kernel in facts.kernels)
    for kernel in facts.kernels:
        total = kernel.runs * kernel.seconds
        if kernel.seconds < _SLOW_SECONDS or total < _SLOW_SHARE * whole:
            continue
        least = _limits().seconds(kernel.work.nbytes, kernel.work.operations)
        if least < _SLOW * kernel.seconds:
            yield {
                "name": kernel.work.name,
                "place": kernel.place,
                "count": kernel.runs,
                "milliseconds": kernel.seconds * 1e3,
                "least": least * 1e3,
            }


@cache
def _limits() -> Limits:
    return limits()


def _memory(facts: ProgramFacts) -> Evidence:
    whole = machine_bytes()
    if facts.peak > _MEMORY * whole:
        yield {"peak": facts.peak / 2**30, "whole": whole / 2**30}


def _unused_gradients(facts: ProgramFacts) -> Evidence:
    if facts.unused > _UNUSED * facts.gradients:
        yield {"unused": facts.unused, "gradients": facts.gradients}


CHECKS = (
    Check(
        "repeated compilation",
        _many_programs,
        "{count} programs were compiled in {seconds:.2f} s for {place}; the last two: {change}",
        "keep the structure fixed: pad to a few sizes, or use metaop.scan for loops of varying "
        "length (see docs/sizes.md)",
    ),
    Check(
        "compiling",
        _compiling,
        "{seconds:.2f} s, {share:.0%} of the time, were spent compiling {count} programs",
        "with METAOP_DISK_CACHE on, later processes load kernels from disk; longer runs pay less",
    ),
    Check(
        "values read in the middle of a step",
        _early_reads,
        "{count} times {place} read a value between the forward and the backward pass",
        "read it after optimizer.step(), so that the whole step is one program",
    ),
    Check(
        "tiny programs",
        _tiny_programs,
        "{count} programs ran kernels for {kernels:.2f} ms with {rest:.1f} ms of overhead; most of "
        "them ({most}) at {place}",
        "use larger batches, metaop.jit for the step, or metaop.iterate for many steps",
    ),
    Check(
        "elements read one by one",
        _element_reads,
        "{count} times {place} ran a program for a single number",
        "read the whole tensor once, by tolist() or numpy()",
    ),
    Check(
        "Python loop over elements",
        _unrolled,
        "{place} recorded {count} operators of few elements for one program",
        "use whole tensors, func.vmap, or metaop.scan",
    ),
    Check(
        "float64",
        _doubles,
        "{count} times {place} converted float32 to float64",
        "NumPy's default is float64: convert with .astype(np.float32), or pass dtype=",
    ),
    Check(
        "waiting for data",
        _waiting,
        "{place} waited {seconds:.2f} s, {share:.0%} of the time, for batches of a DataLoader with "
        "{workers} workers",
        "increase num_workers, or preprocess the data set once",
    ),
    Check(
        "slow kernel",
        _slow_kernels,
        "{name} ran {count} times for {place}, at best in {milliseconds:.3f} ms; memory and "
        "arithmetic of this machine allow {least:.3f} ms",
        "look at it with metaop.inspect.kernels; METAOP_TUNE=search may speed contractions up",
    ),
    Check(
        "memory",
        _memory,
        "the peak was {peak:.1f} GiB, of {whole:.1f} GiB on this machine",
        "set METAOP_MEMORY_BUDGET, use smaller batches, or see metaop.inspect.memory",
    ),
    Check(
        "gradients without an optimizer",
        _unused_gradients,
        "{unused} of {gradients} bytes of gradients belong to no optimizer",
        "call requires_grad_(False) on tensors that are not trained",
    ),
)
