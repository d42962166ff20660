"""The processor of this machine: as its instructions and the system tell, or as it was measured.

What was measured is kept in the folder of compiled kernels, one file for each processor and number
of threads. It counts only where code may use all instructions of the processor: METAOP_TARGET gives
the same code on every machine that has the same caches.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from hashlib import blake2b
from pathlib import Path
from typing import Any

from metaop import settings
from metaop.codegen import machine
from metaop.codegen.caches.disk import DiskCache, cache_at
from metaop.codegen.llvm.runtime import runtime
from metaop.codegen.llvm.target import Target, host_target
from metaop.codegen.machine import CACHES, TYPICAL, Processor, with_caches

# Part of the name of a file: raise it when older measurements should be forgotten.
_VERSION = "1"
_FOLDER = "processors"
_INFORMATION = Path("/proc/cpuinfo")


def typical(target: Target) -> Processor:
    """A processor with the instructions of a target, its caches as small as they come."""
    if target.is_arm:
        return TYPICAL["aarch64"]
    return TYPICAL[{64: "avx512", 32: "avx2"}.get(target.vector_bytes, "baseline")]


def system_processor(folder: Path = CACHES) -> Processor:
    """The processor of this machine with typical speeds and the caches that the system tells."""
    return with_caches(typical(host_target()), *machine.cache_sizes(folder))


def host_processor() -> Processor:
    """The processor of this machine, as it was measured if METAOP_MACHINE and METAOP_TARGET allow
    that, else with typical speeds."""
    is_allowed = settings.get("METAOP_MACHINE") == "measured" and host_target().name == "native"
    key = _key() if is_allowed else None
    return _processor(key, _cache() if is_allowed else None, host_target())


def keep(processor: Processor) -> bool:
    """Keeps what was measured for this and later processes; False where nothing is kept."""
    cache = _cache()
    _processor.cache_clear()
    content = json.dumps(dataclasses.asdict(processor), indent=1).encode()
    return cache is not None and cache.put(_key(), content)


@functools.cache
def _processor(key: str | None, cache: DiskCache | None, target: Target) -> Processor:
    content = None if key is None or cache is None else cache.get(key)
    found = None if content is None else _read(content)
    return found or system_processor()


def _read(content: bytes) -> Processor | None:
    """The processor that was kept; None for what lacks a number, or is no number."""
    try:
        values: dict[str, Any] = json.loads(content)
        fields = {name: type(value) for name, value in dataclasses.asdict(Processor()).items()}
        if values.keys() != fields.keys():
            return None
        return Processor(**{name: kind(values[name]) for name, kind in fields.items()})
    except (ValueError, TypeError, AttributeError):
        return None


def _cache() -> DiskCache | None:
    if not settings.get("METAOP_DISK_CACHE"):
        return None
    folder = Path(settings.get("METAOP_CACHE_DIR")).expanduser() / _FOLDER
    return cache_at(str(folder), settings.get("METAOP_CACHE_BYTES"))


def _key() -> str:
    """The processor, what the system shows of it, and the threads that share it."""
    threads = runtime().get_num_threads()
    parts = (_VERSION, repr(host_target()), _model(), repr(system_processor()), str(threads))
    return "processor-" + blake2b("\n".join(parts).encode(), digest_size=12).hexdigest()


@functools.cache
def _model() -> str:
    """The model as the system calls it: LLVM has one name for all of a family."""
    try:
        lines = _INFORMATION.read_text().splitlines()
    except OSError:
        return ""
    return next((line for line in lines if line.startswith("model name")), "")
