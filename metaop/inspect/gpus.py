"""Describes the GPUs of this machine, and what is missing to use them."""

from __future__ import annotations

from metaop import cuda
from metaop.codegen.cuda import nvrtc


def describe() -> list[tuple[str, str]]:
    """A row for each GPU and for each library that it needs."""
    try:
        import cupy
    except ImportError:
        return [("cupy", "not installed: pip install 'metaop[cuda13]' for NVIDIA GPUs")]
    compiler = "not found: pip install 'nvidia-cuda-nvrtc==13.0.*', or metaop[cuda13]"
    nccl = "not found: pip install nvidia-nccl-cu13 (it comes with metaop[cuda13]) for several GPUs"
    rows = [
        ("driver", _version(_driver_version(cupy))),
        ("NVRTC", ".".join(map(str, nvrtc.version())) if nvrtc.is_available() else compiler),
        ("NCCL", ".".join(map(str, cuda.nccl.version())) if cuda.nccl.is_available() else nccl),
    ]
    for index in range(cuda.device_count()):
        facts = cuda.get_device_properties(index)
        rows.append(
            (
                f"cuda:{index}",
                f"{facts.name}, compute capability {facts.major}.{facts.minor}, "
                f"{facts.multi_processor_count} multiprocessors, "
                f"{facts.total_memory / (1 << 30):.0f} GiB",
            )
        )
    if not cuda.device_count():
        rows.append(("devices", "none found: check nvidia-smi and CUDA_VISIBLE_DEVICES"))
    return rows


def _driver_version(cupy: object) -> int:
    runtime = cupy.cuda.runtime  # type: ignore[attr-defined]
    try:
        return int(runtime.driverGetVersion())
    except runtime.CUDARuntimeError:
        return 0


def _version(number: int) -> str:
    return f"CUDA {number // 1000}.{number % 1000 // 10}" if number else "not found"
