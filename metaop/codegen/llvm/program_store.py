"""Programs on disk: a second process finds the layout of a program instead of compiling it.

The key is the fingerprint of the subgraph together with everything that determines the result: the
package's own sources, the settings of the compiler, the machine and its tuned tactics. An entry
that is damaged, or whose kernels have been evicted, counts as absent.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import TypeVar

from metaop import settings
from metaop.codegen.budget import current_budget, current_folder
from metaop.codegen.caches.disk import DiskCache, shared_cache
from metaop.codegen.caches.fingerprint import graph_fingerprint, subgraph_fingerprint
from metaop.codegen.llvm import tuning
from metaop.codegen.llvm.general import GeneralProgram
from metaop.codegen.llvm.layout import Layout, from_bytes, layout_of, to_bytes
from metaop.codegen.llvm.machine import host_machine
from metaop.codegen.llvm.target import host_target
from metaop.codegen.schedule import Schedule
from metaop.unified_graph.cut import Subgraph
from metaop.unified_graph.node import Node
from metaop.unified_graph.symbolic_cut import SymbolicCut

Made = TypeVar("Made")

# When this process read the sources.
_LOADED = time.time_ns()

# Settings that do not change what is compiled.
_IRRELEVANT = {
    "METAOP_ALL_RANKS_TALK",
    "METAOP_CACHE_DIR",
    "METAOP_CACHE_BYTES",
    "METAOP_COMPILE_PROCESSES",
    "METAOP_DISK_CACHE",
    "METAOP_MACHINE",
    "METAOP_MEMORY_BUDGET",
    "METAOP_MEMORY_CACHE_BYTES",
    "METAOP_PENDING_LIMIT",
    "METAOP_POISON",
    "METAOP_SIZES",
    "METAOP_SPILL",
    "METAOP_TIERS",
    "METAOP_TIMEOUT_SECONDS",
    "METAOP_TUNE",
    "METAOP_WATCHDOG_SECONDS",
}


def layout_for(subgraph: Subgraph, scheduled: Callable[[], Schedule]) -> Layout:
    """The layout of a subgraph's program, from disk or of the schedule that `scheduled` makes."""
    return _layout(lambda: subgraph_fingerprint(subgraph), scheduled)


def layout_of_part(
    inputs: Sequence[Node], outputs: Sequence[Node], scheduled: Callable[[], Schedule]
) -> Layout:
    """The same for what a rank runs between collectives; kernels that were tuned are not for it."""

    def fingerprint() -> str | None:
        found = graph_fingerprint(inputs, outputs)
        return found and f"{found} of a rank"

    return _layout(fingerprint, scheduled)


def _layout(fingerprint: Callable[[], str | None], scheduled: Callable[[], Schedule]) -> Layout:
    return _found(fingerprint, from_bytes, lambda: layout_of(scheduled()), to_bytes)


def general_program_for(cut: SymbolicCut, compiled: Callable[[], GeneralProgram]) -> GeneralProgram:
    """The program of a subgraph on symbolic sizes, from disk or as `compiled`.

    Hints choose schedules, so a program that was made for other ones may not admit these numbers.
    Then there is another one for them alone.
    """

    def fingerprint() -> str | None:
        found = graph_fingerprint(cut.inputs, cut.outputs)
        return found and "\n".join([found, repr(cut.env.guards), repr(cut.expected)])

    def of_numbers() -> str | None:
        found = fingerprint()
        return found and f"{found}\n{cut.numbers}"

    found = _general(fingerprint, compiled)
    return found if found.admits(cut.numbers) else _general(of_numbers, compiled)


def _general(
    fingerprint: Callable[[], str | None], compiled: Callable[[], GeneralProgram]
) -> GeneralProgram:
    return _found(fingerprint, GeneralProgram.from_bytes, compiled, GeneralProgram.to_bytes)


def _found(
    fingerprint: Callable[[], str | None],
    read: Callable[[bytes], Made | None],
    make: Callable[[], Made],
    write: Callable[[Made], bytes],
) -> Made:
    """What is stored under a fingerprint, or what is made and stored now.

    Of processes that start together, such as ranks, one makes it, and all share its kernels out.
    """
    cache = _cache()
    text = None if cache is None else fingerprint()
    if cache is None or text is None:
        return make()
    if tuning.mode() == "search":
        # The search may change the tactics, which belong to the key.
        found = make()
        cache.put(_key(text), write(found))
        return found
    key = _key(text)
    known = _read(cache, key, read)
    if known is None:
        with cache.alone(key):
            known = _read(cache, key, read)
            if known is None:
                known = make()
                cache.put(key, write(known))
    return known


def _read(cache: DiskCache, key: str, read: Callable[[bytes], Made | None]) -> Made | None:
    content = cache.get(key)
    return None if content is None else read(content)


def _cache() -> DiskCache | None:
    """The cache on disk, unless the passes must run in order to be inspected."""
    shows_passes = settings.get("METAOP_EXPLAIN") or settings.get("METAOP_DUMP")
    return None if shows_passes else shared_cache()


def _key(fingerprint: str) -> str:
    values = [
        f"{setting.name}={settings.get(setting.name)}"
        for setting in settings.SETTINGS
        if setting.name not in _IRRELEVANT
    ]
    machine = host_machine()
    state = tuning.state_of_choices(machine)
    values.append(f"budget={current_budget()} {bool(current_folder())}")
    parts = (fingerprint, _sources(), repr(host_target()), repr(machine), state, *values)
    return "program-" + blake2b("\n".join(parts).encode(), digest_size=20).hexdigest()


@functools.cache
def _sources() -> str:
    """The state of the package's sources."""
    return _state_of(Path(settings.__file__).parent)


def _state_of(root: Path) -> str:
    """The state of a folder of sources: paths, sizes and modification times.

    Where files have changed since this process read them, its programs are of an older state, which
    is known no more: the state then is that of the process alone.
    """
    lines, newest = [], 0
    for path in sorted(root.rglob("*.py")):
        status = path.stat()
        newest = max(newest, status.st_mtime_ns)
        lines.append(f"{path.relative_to(root)} {status.st_size} {status.st_mtime_ns}")
    if newest > _LOADED:
        lines.append(f"read by {os.getpid()} at {_LOADED}")
    return blake2b("\n".join(lines).encode(), digest_size=20).hexdigest()
