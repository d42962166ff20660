"""The processor of this machine, as derived from its instructions and the system, or as measured.

Measurements are stored in the folder of compiled kernels, one file per processor and number of
threads. They are used only if code may use all instructions of the processor: METAOP_TARGET gives
the same code on every machine with the same caches.
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
from metaop.codegen.machine import TYPICAL, Processor, with_caches

# A part of the file name: increment it to invalidate older measurements.
_VERSION = "1"
_FOLDER = "processors"
_INFORMATION = Path("/proc/cpuinfo")


def typical(target: Target) -> Processor:
    """A processor with the instructions of a target and the smallest usual caches."""
    if target.is_arm:
        return TYPICAL["aarch64"]
    return TYPICAL[{64: "avx512", 32: "avx2"}.get(target.vector_bytes, "baseline")]


def system_processor() -> Processor:
    """The processor of this machine, with typical speeds and the caches that the system reports."""
    return with_caches(typical(host_target()), *machine.cache_sizes())


def host_processor() -> Processor:
    """The processor of this machine: as measured if METAOP_MACHINE and METAOP_TARGET allow, else
    with typical speeds."""
    is_allowed = settings.get("METAOP_MACHINE") == "measured" and host_target().name == "native"
    key = _key() if is_allowed else None
    return _processor(key, _cache() if is_allowed else None, host_target())


def keep(processor: Processor) -> bool:
    """Stores measurements for this and later processes; False if nothing can be stored."""
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
    """The stored processor; None if a number is missing or invalid."""
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
    """The processor, what the system reports of it, and the threads that share it."""
    return _key_of(host_target(), system_processor(), runtime().get_num_threads())


@functools.cache
def _key_of(target: Target, processor: Processor, threads: int) -> str:
    parts = (_VERSION, repr(target), _model(), repr(processor), str(threads))
    return "processor-" + blake2b("\n".join(parts).encode(), digest_size=12).hexdigest()


@functools.cache
def _model() -> str:
    """The system's name of the model, because LLVM has one name for a whole family."""
    try:
        lines = _INFORMATION.read_text().splitlines()
    except OSError:
        return ""
    return next((line for line in lines if line.startswith("model name")), "")
