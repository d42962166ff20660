"""Checks of the machine, the installation and the settings that slow every program down."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import metaop
from metaop import settings
from metaop.codegen.cuda import nvrtc
from metaop.codegen.llvm.runtime import runtime
from metaop.codegen.llvm.target import host_target, target_named
from metaop.forking import core_count
from metaop.inspect.findings import Check

_CGROUP = Path("/sys/fs/cgroup")
_NVRTC_PACKAGES = ("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12")
# Optional packages, by what they provide.
_TOOLS = {
    "llvmlite": ("llvmlite",),
    "cupy": ("cupy-cuda13x", "cupy-cuda12x", "cupy"),
    "NVRTC": _NVRTC_PACKAGES,
    "NCCL": ("nvidia-nccl-cu13", "nvidia-nccl-cu12"),
    "mpi4py": ("mpi4py",),
}
# With a smaller cache, freed memory is soon returned to the system and requested again.
_LEAST_MEMORY_CACHE = 64 << 20

# Debugging settings that cost time: variable, value, and effect on a program.
_COSTLY = (
    ("METAOP_BACKEND", "reference", "runs everything with NumPy"),
    ("METAOP_VERIFY", True, "checks every compiled kernel"),
    ("METAOP_POISON", True, "fills all memory before use"),
    ("METAOP_EXPLAIN", True, "recompiles programs that are on disk"),
    ("METAOP_PORTABLE", True, "uses slower ways to wait and to load code"),
    ("METAOP_SIZES", "exact", "compiles a program for every size"),
    ("METAOP_COMPILE_PROCESSES", 0, "compiles in one process"),
    ("METAOP_WINOGRAD", False, "needs more products for convolutions"),
    ("METAOP_TUNE", "off", "ignores tuned schedules"),
)


class MachineFacts(NamedTuple):
    """The facts that the checks use: widths and sizes in bytes; `cores` available to the process.

    `cached_bytes` is the size of the disk cache; `bytecode` says why no bytecode is cached, or is
    empty; `values` has the settings, `environment` the variables of the process.
    """

    processor: str
    own_vectors: int
    vectors: int
    cores: float
    threads: int
    cache: str
    is_cache_writable: bool
    cached_bytes: int
    bytecode: str
    values: Mapping[str, Any]
    environment: Mapping[str, str]


def facts() -> MachineFacts:
    """The facts about this machine and this process."""
    values = {setting.name: settings.get(setting.name) for setting in settings.SETTINGS}
    own, folder = target_named("native"), Path(values["METAOP_CACHE_DIR"]).expanduser()
    return MachineFacts(
        own.cpu,
        own.vector_bytes,
        host_target().vector_bytes,
        _cores(),
        runtime().get_num_threads(),
        str(folder),
        _is_writable(folder),
        sum(file.stat().st_size for file in folder.glob("*") if file.is_file()),
        _bytecode(),
        values,
        dict(os.environ),
    )


def tools() -> list[tuple[str, str]]:
    """Optional tools and their versions; "not found" if missing."""
    rows = [(name, _version(packages)) for name, packages in _TOOLS.items()]
    if dict(rows)["NVRTC"] == _MISSING and nvrtc.is_available():
        found = ".".join(map(str, nvrtc.version()))
        rows = [(name, found if name == "NVRTC" else text) for name, text in rows]
    return [*rows, ("mpirun", shutil.which("mpirun") or _MISSING)]


_MISSING = "not found"


def _version(packages: Iterable[str]) -> str:
    for package in packages:
        try:
            return metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return _MISSING


def _cores() -> float:
    """The cores of this process; a container's CPU quota may be less than its cores."""
    return min(float(core_count()), _quota(_CGROUP))


def _quota(folder: Path) -> float:
    """The CPU seconds per second that Linux allows, from either version of cgroups."""
    try:
        if (folder / "cpu.max").exists():
            quota, period = (folder / "cpu.max").read_text().split()
        else:
            quota = (folder / "cpu/cpu.cfs_quota_us").read_text().strip()
            period = (folder / "cpu/cpu.cfs_period_us").read_text().strip()
        return float(quota) / float(period) if quota not in ("max", "-1") else float("inf")
    except (OSError, ValueError):
        return float("inf")


def _is_writable(folder: Path) -> bool:
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return os.access(folder, os.W_OK | os.X_OK)


def _bytecode() -> str:
    """Why Python recompiles this package in every process; empty if it does not."""
    source = metaop.__file__
    try:
        kept = Path(importlib.util.cache_from_source(source))
    except NotImplementedError:
        return "this Python caches no bytecode"
    if kept.exists():
        return ""
    if sys.dont_write_bytecode:
        return "PYTHONDONTWRITEBYTECODE is set"
    return "" if _is_writable(kept.parent) else f"{kept.parent} cannot be written"


def _narrow(facts: MachineFacts) -> Iterable[Mapping[str, Any]]:
    if facts.vectors < facts.own_vectors:
        yield {**facts._asdict(), "target": facts.values["METAOP_TARGET"]}


def _many_threads(facts: MachineFacts) -> Iterable[Mapping[str, Any]]:
    if facts.threads > -(-facts.cores // 1):
        yield {**facts._asdict(), "least": max(1, int(facts.cores))}


def _few_threads(facts: MachineFacts) -> Iterable[Mapping[str, Any]]:
    if facts.threads < int(facts.cores):
        yield facts._asdict()


def _unread_threads(facts: MachineFacts) -> Iterable[Mapping[str, Any]]:
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        text = facts.environment.get(name, "")
        if text.isdigit() and int(text) != facts.threads and not facts.values["METAOP_NUM_THREADS"]:
            yield {**facts._asdict(), "name": name, "text": text}


def _no_disk_cache(facts: MachineFacts) -> Iterable[Mapping[str, Any]]:
    if not facts.values["METAOP_DISK_CACHE"]:
        yield {}


def _unwritable_cache(facts: MachineFacts) -> Iterable[Mapping[str, Any]]:
    if facts.values["METAOP_DISK_CACHE"] and not facts.is_cache_writable:
        yield facts._asdict()


def _full_cache(facts: MachineFacts) -> Iterable[Mapping[str, Any]]:
    bound = facts.values["METAOP_CACHE_BYTES"]
    if facts.values["METAOP_DISK_CACHE"] and facts.cached_bytes > 0.9 * bound:
        yield {**facts._asdict(), "bound": bound, "more": 2 * max(bound, 1 << 30)}


def _no_bytecode(facts: MachineFacts) -> Iterable[Mapping[str, Any]]:
    if facts.bytecode:
        yield facts._asdict()


def _small_memory_cache(facts: MachineFacts) -> Iterable[Mapping[str, Any]]:
    nbytes = facts.values["METAOP_MEMORY_CACHE_BYTES"]
    if 0 <= nbytes < _LEAST_MEMORY_CACHE:
        yield {"nbytes": nbytes}


def _costly_settings(facts: MachineFacts) -> Iterable[Mapping[str, Any]]:
    for name, value, what in _COSTLY:
        if facts.values[name] == value:
            yield {"name": name, "text": facts.environment.get(name, value), "what": what}
    if facts.values["METAOP_DUMP"]:
        what = "recompiles programs, and writes all their stages"
        yield {"name": "METAOP_DUMP", "text": facts.values["METAOP_DUMP"], "what": what}


CHECKS = (
    Check(
        "narrow vectors",
        _narrow,
        "METAOP_TARGET={target} uses vectors of {vectors} bytes; this processor ({processor}) has "
        "{own_vectors}",
        "unset METAOP_TARGET",
    ),
    Check(
        "more threads than cores",
        _many_threads,
        "{threads} threads share {cores:g} cores",
        "set METAOP_NUM_THREADS={least}",
    ),
    Check(
        "fewer threads than cores",
        _few_threads,
        "{threads} threads on {cores:g} cores",
        "unset METAOP_NUM_THREADS, unless other processes need the cores",
    ),
    Check(
        "threads of other libraries",
        _unread_threads,
        "{name}={text} does not affect metaop, which uses {threads} threads",
        "set METAOP_NUM_THREADS={text} if metaop should obey it",
    ),
    Check(
        "no disk cache",
        _no_disk_cache,
        "METAOP_DISK_CACHE is off: every process recompiles its kernels",
        "unset METAOP_DISK_CACHE",
    ),
    Check(
        "disk cache is not writable",
        _unwritable_cache,
        "{cache} is not writable: every process recompiles its kernels",
        "set METAOP_CACHE_DIR to a writable folder",
    ),
    Check(
        "full disk cache",
        _full_cache,
        "{cache} holds {cached_bytes} of {bound} bytes: the oldest kernels are evicted",
        "set METAOP_CACHE_BYTES={more}",
    ),
    Check(
        "no bytecode",
        _no_bytecode,
        "Python recompiles metaop's sources in every process: {bytecode}",
        "unset PYTHONDONTWRITEBYTECODE, or run python -m compileall on the package once",
    ),
    Check(
        "small memory cache",
        _small_memory_cache,
        "METAOP_MEMORY_CACHE_BYTES={nbytes}: freed memory returns to the system, which must clear "
        "its pages again",
        "unset METAOP_MEMORY_CACHE_BYTES",
    ),
    Check(
        "setting that costs time",
        _costly_settings,
        "{name}={text} {what}",
        "unset {name}",
    ),
)
