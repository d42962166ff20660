"""Programs in fresh processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping

from metaop.codegen.llvm.runtime import runtime


def run_program(code: str, environment: Mapping[str, str]) -> str:
    """The last line that a program prints in a fresh process, with some more variables set."""
    # Users import from bytecode; without any, the imports of metaop take twice as long. They do not
    # compile for speed at once, as measurements of steady steps do.
    ours = ("PYTHONDONTWRITEBYTECODE", "METAOP_TIERS")
    own = {name: value for name, value in os.environ.items() if name not in ours}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**own, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    return done.stdout.strip().splitlines()[-1]


def same_threads() -> dict[str, str]:
    """Variables that give both frameworks as many threads as metaop has here."""
    threads = str(runtime().get_num_threads())
    return {"METAOP_NUM_THREADS": threads, "OMP_NUM_THREADS": threads}


def disk_cache(folder: str) -> dict[str, str]:
    """Variables that have metaop, and PyTorch's compiler, keep in a folder what they compile."""
    ours = {"METAOP_CACHE_DIR": folder, "METAOP_DISK_CACHE": "1"}
    return {**ours, "TORCHINDUCTOR_CACHE_DIR": folder}
