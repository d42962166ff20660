"""The target processor: name, features and vector width."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field, replace

from metaop import settings
from metaop.codegen.llvm.system import System, host_system
from metaop.errors import ArgumentError, DeviceError


@dataclass(frozen=True)
class Target:
    """A processor and its system as LLVM names them.

    `features` is LLVM's list (`+avx2,-avx512f,...`); `vector_bytes` is the width that kernels
    should use, 64, 32 or 16. `triple` names family and system. Code of the "large" model reaches
    what it needs wherever that lies, as where LLVM loads it; all parts of "small" lie together.
    """

    name: str
    cpu: str
    features: str
    vector_bytes: int
    triple: str = System("linux", "x86_64").triple
    code_model: str = "small"
    _enabled: frozenset[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        enabled = frozenset(part[1:] for part in self.features.split(",") if part[:1] == "+")
        object.__setattr__(self, "_enabled", enabled)

    def has(self, feature: str) -> bool:
        """Whether the processor has a feature, by LLVM's name for it (`avx512bf16`)."""
        return feature in self._enabled

    @property
    def is_arm(self) -> bool:
        """AArch64, whose vectors (NEON) are part of the base: features need not name them."""
        return self.triple.startswith(("aarch64", "arm64"))

    @property
    def has_avx512(self) -> bool:
        """The 512-bit instructions of all processors since Skylake-X: F, BW, CD, DQ and VL."""
        return _AVX512 <= self._enabled

    @property
    def vector_registers(self) -> int:
        """How many registers hold vectors."""
        return 32 if self.is_arm or self.has_avx512 else 16

    @property
    def has_f16c(self) -> bool:
        """Conversions between float16 and float32."""
        return self.is_arm or self.has("f16c")

    @property
    def has_bfloat16_pairs(self) -> bool:
        """Multiply-adds of pairs of bfloat16, in vectors of 64 bytes."""
        return self.has_avx512 and self.has("avx512bf16")

    @property
    def has_bfloat16_matrices(self) -> bool:
        """Matrix registers and multiply-adds of bfloat16 in them; Linux must allow their use."""
        return self.has_bfloat16_pairs and self.has("amx-tile") and self.has("amx-bf16")

    @property
    def has_byte_products(self) -> bool:
        """Sums of four products of unsigned and signed bytes, in vectors of the usual width."""
        is_wide = self.has_avx512 and self.vector_bytes == 64
        return self.has("avx512vnni") if is_wide else self.has("avxvnni")

    @property
    def has_fma(self) -> bool:
        """Fused multiply-add of vectors."""
        return self.is_arm or self.has("fma")

    @property
    def has_rounding(self) -> bool:
        """Instructions that round to integers, without which LLVM calls the C library."""
        return self.is_arm or self.vector_bytes >= 32


_AVX2 = frozenset("avx,avx2,bmi,bmi2,f16c,fma,lzcnt,movbe,popcnt,sse4.1,sse4.2,ssse3".split(","))
_AVX512 = frozenset("avx512f,avx512bw,avx512cd,avx512dq,avx512vl".split(","))
_BASELINE = frozenset("sse,sse2".split(","))
# The microarchitecture levels of the x86-64 ABI: features that code of this level may use.
_LEVELS = {
    "avx512": ("x86-64-v4", _BASELINE | _AVX2 | _AVX512, 64),
    "avx2": ("x86-64-v3", _BASELINE | _AVX2, 32),
    "baseline": ("x86-64", _BASELINE, 16),
}


def host_target() -> Target:
    """The processor of this machine, or the narrower one that METAOP_TARGET asks for.

    Raises `DeviceError` if the machine lacks the requested instructions.
    """
    return _target(settings.get("METAOP_TARGET"), host_system())


def target_named(name: str) -> Target:
    """A processor to compile for, which need not be this one: "native", a level of x86-64, or
    "aarch64", with the system of this machine.

    Raises `ArgumentError` for another name.
    """
    if name == "native":
        return replace(_target(name, host_system()), code_model="small")
    for system in (host_system()._replace(processor=one) for one in ("x86_64", "aarch64")):
        for target in targets_of(system):
            if name == target.cpu or (name == system.processor == "aarch64"):
                return target
    known = ", ".join(["native", *(cpu for cpu, _, _ in _LEVELS.values()), "aarch64"])
    raise ArgumentError(f"{name!r} is not a processor to compile for", fix=f"use one of {known}")


def targets_of(system: System) -> list[Target]:
    """The processors of a system for which code can be compiled, on any machine."""
    if system.processor == "aarch64":
        return [Target("aarch64", "generic", "+neon", 16, system.triple)]
    return [_level(name, *level, system.triple) for name, level in _LEVELS.items()]


def narrower() -> list[str]:
    """The values of METAOP_TARGET with narrower vectors than this machine has."""
    own = _target("native", host_system()).vector_bytes
    return [name for name, (_, _, vector_bytes) in _LEVELS.items() if vector_bytes < own]


@functools.cache
def _host() -> tuple[str, frozenset[str], str]:
    """LLVM's name of this processor, its enabled features and the full feature text."""
    import llvmlite.binding as llvm

    features = llvm.get_host_cpu_features()
    enabled = frozenset(name for name, present in features.items() if present)
    return llvm.get_host_cpu_name(), enabled, features.flatten()


@functools.cache
def _target(name: str, system: System) -> Target:
    cpu, enabled, features = _host()
    model = "small" if system.has_own_loader else "large"
    if name == "native":
        return Target(name, cpu, features, _vector_bytes(enabled), system.triple, model)
    level_cpu, needed, vector_bytes = _LEVELS[name]
    if not needed <= enabled:
        raise DeviceError(
            f"METAOP_TARGET={name} needs {', '.join(sorted(needed - enabled))}, "
            f"which this processor ({cpu}) lacks",
            fix="unset METAOP_TARGET",
        )
    level = _level(name, level_cpu, needed, vector_bytes, system.triple)
    return replace(level, code_model=model)


def _level(name: str, cpu: str, features: frozenset[str], vector_bytes: int, triple: str) -> Target:
    listed = ",".join(f"+{one}" for one in sorted(features))
    return Target(name, cpu, listed, vector_bytes, triple)


def _vector_bytes(enabled: frozenset[str]) -> int:
    if _AVX512 <= enabled:
        return 64
    return 32 if _AVX2 <= enabled else 16
