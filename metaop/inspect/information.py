"""Describes this installation, and tests that it computes correctly."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from metaop import settings
from metaop.codegen.llvm import matrix_registers
from metaop.codegen.llvm.machine import host_machine
from metaop.codegen.llvm.runtime import runtime
from metaop.codegen.llvm.target import host_target
from metaop.codegen.llvm.tuning import count_of_choices
from metaop.cuda import device_count
from metaop.inspect import gpus
from metaop.inspect.processor import describe
from metaop.nn.functional import softmax

_LIBRARIES = (
    *("numpy", "llvmlite", "cffi", "networkx", "ml-dtypes", "safetensors", "scipy"),
    *("cupy-cuda13x", "cupy-cuda12x", "mpi4py", "torch"),
)


def info() -> str:
    """Versions, processor, GPUs, threads, settings and cache as text.

    >>> "metaop" in metaop.inspect.info()
    True
    """
    sections = {
        "versions": _versions(),
        "processor": _processor(),
        "processor as seen by schedules": describe(),
        "GPUs": gpus.describe(),
        "settings": _settings(),
        "kernel cache": _cache(),
    }
    lines = []
    for title, rows in sections.items():
        width = max(len(name) for name, _ in rows)
        lines.append(title)
        lines.extend(f"  {name.ljust(width)}  {value}" for name, value in rows)
    return "\n".join(lines) + "\n"


def _versions() -> list[tuple[str, str]]:
    import metaop

    rows = [("metaop", metaop.__version__), ("python", platform.python_version())]
    for library in _LIBRARIES:
        try:
            rows.append((library, metadata.version(library)))
        except metadata.PackageNotFoundError:
            rows.append((library, "not installed"))
    return rows


def _processor() -> list[tuple[str, str]]:
    target = host_target()
    matrices = matrix_registers.verdict()
    features = ("avx2", "fma", "f16c", "avx512f", "avx512bf16", "avx512fp16", "amx-bf16")
    return [
        ("system", f"{platform.system()} {platform.machine()}"),
        ("processor", target.cpu),
        ("features", " ".join(name for name in features if target.has(name)) or "baseline"),
        ("vectors", f"{target.vector_bytes} bytes"),
        ("bfloat16 products", "in pairs" if target.has_bfloat16_pairs else "as float32"),
        ("matrix registers", f"{'used' if matrices.usable else 'not used'}: {matrices.reason}"),
        ("cores", str(os.cpu_count())),
        ("threads", str(runtime().get_num_threads())),
    ]


def _settings() -> list[tuple[str, str]]:
    rows = []
    for setting in settings.SETTINGS:
        origin = "set" if setting.name in os.environ else "default"
        value = settings.get(setting.name)
        rows.append((setting.name, f"{value!r} ({origin}): {setting.meaning}"))
    return rows


def _cache() -> list[tuple[str, str]]:
    folder = Path(settings.get("METAOP_CACHE_DIR")).expanduser()
    sizes = [file.stat().st_size for file in folder.glob("*") if file.is_file()]
    tuned = count_of_choices(host_machine())
    return [
        ("folder", str(folder)),
        ("content", f"{len(sizes)} files, {sum(sizes) / 1e6:.1f} MB"),
        ("tuned", f"{tuned} contractions for this processor and number of threads"),
    ]


def self_test() -> str:
    """Compares a few computations, forward and backward, with NumPy, here and on every GPU.

    Returns a line per computation with its time, starting with "ok" or "WRONG".

    >>> "WRONG" in metaop.inspect.self_test()
    False
    """
    places = ["cpu", *(f"cuda:{index}" for index in range(device_count()))]
    return "".join(f"{_verdict(check, place)}\n" for place in places for check in _CHECKS)


def _verdict(check: Check, place: str) -> str:
    start = time.perf_counter()
    try:
        found, expected = check(place)
        right = np.allclose(found.numpy(force=True), expected, rtol=1e-4, atol=1e-5)
        verdict = "ok" if right else "WRONG"
    except Exception as error:  # the report is the purpose
        verdict = f"WRONG ({type(error).__name__}: {error})"
    name = check.__name__.removeprefix("_check_")
    where = "" if place == "cpu" else f" on {place}"
    return f"{verdict}  {name}{where}  {time.perf_counter() - start:.2f} s"


# Computes something on a device; returns the tensor and the values that NumPy computes.
Check = Callable[[str], tuple[Any, np.ndarray]]


def _random(place: str, *shape: int) -> tuple[Any, np.ndarray]:
    import metaop

    values = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    return metaop.from_numpy(values).to(place), values


def _check_elementwise(place: str) -> tuple[Any, np.ndarray]:
    tensor, values = _random(place, 1000)
    return tensor.exp() * 2 + tensor, np.exp(values) * 2 + values


def _check_matmul(place: str) -> tuple[Any, np.ndarray]:
    tensor, values = _random(place, 65, 33)
    return tensor @ tensor.t(), values @ values.T


def _check_bfloat16(place: str) -> tuple[Any, np.ndarray]:
    """Sums of a few ones, which are exact."""
    import metaop

    values = np.random.default_rng(0).integers(-1, 2, (70, 100)).astype(np.float32)
    tensor = metaop.from_numpy(values).to(place).bfloat16()
    return (tensor @ tensor.t()).float(), values @ values.T


def _check_softmax(place: str) -> tuple[Any, np.ndarray]:
    tensor, values = _random(place, 7, 50)
    powers = np.exp(values)
    return softmax(tensor, -1), powers / powers.sum(-1, keepdims=True)


def _check_gradient(place: str) -> tuple[Any, np.ndarray]:
    tensor, values = _random(place, 20)
    tensor.requires_grad_()
    (tensor.sin() * tensor).sum().backward()
    return tensor.grad, np.cos(values) * values + np.sin(values)


_CHECKS = (_check_elementwise, _check_matmul, _check_bfloat16, _check_softmax, _check_gradient)
