"""Both frameworks restricted to a narrower processor than this one."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

# By the value of METAOP_TARGET: what PyTorch's own kernels, oneDNN and MKL are told. MKL listens on
# Intel's processors only, and on others takes AVX2 at most by itself.
_RESTRICTIONS = {
    "avx2": {
        "ATEN_CPU_CAPABILITY": "avx2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    },
    "baseline": {
        "ATEN_CPU_CAPABILITY": "default",
        "ONEDNN_MAX_CPU_ISA": "SSE41",
        "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
    },
}
TARGETS = tuple(_RESTRICTIONS)


def restart(module: str, arguments: Sequence[str], target: str) -> None:
    """Goes on as a fresh process of `module` whose frameworks know no more than the target.

    Libraries read these variables when they are loaded. Returns at once in that process.
    """
    wanted = {"METAOP_TARGET": target, **_RESTRICTIONS[target]}
    if any(os.environ.get(name) != value for name, value in wanted.items()):
        command = [sys.executable, "-m", module, *arguments]
        os.execve(sys.executable, command, {**os.environ, **wanted})


def paths_of_torch() -> str:
    """Which instructions PyTorch's kernels use, and what its libraries were told."""
    import torch

    own = torch.backends.cpu.get_cpu_capability()
    libraries = ", ".join(
        f"{name} {'as it likes' if limit is None else f'at most {limit}'}"
        for name, limit in (
            ("oneDNN", os.environ.get("ONEDNN_MAX_CPU_ISA")),
            ("MKL", os.environ.get("MKL_ENABLE_INSTRUCTIONS")),
        )
    )
    return f"{own} in its own kernels, {libraries}"
