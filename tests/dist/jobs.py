"""Starting programs on several processes; every start is bounded by a timeout."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import pytest

from metaop.dist.launch import launch_environment

PROGRAMS = Path(__file__).parent / "programs"
ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "dist"

needs_mpi = pytest.mark.skipif(
    shutil.which("mpirun") is None or importlib.util.find_spec("mpi4py") is None,
    reason="there is no mpirun, or mpi4py is not installed",
)


def run(
    program: str | Path,
    ranks: int,
    *arguments: str,
    options: Sequence[str] = (),
    timeout: float = 300,
    **settings: str,
) -> subprocess.CompletedProcess[str]:
    """Runs a program, by its name in `programs` or its path, through `metaop run`."""
    environment = {**launch_environment(ranks), **settings}
    environment["PYTHONPATH"] = str(ROOT)
    command = [sys.executable, "-m", "metaop", "run", "-np", str(ranks), *options]
    return subprocess.run(
        [*command, str(PROGRAMS / program), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=timeout,
    )


@lru_cache
def run_all(ranks: int, *programs: str) -> subprocess.CompletedProcess[str]:
    """Runs programs one after another in one job."""
    return run("several.py", ranks, *programs, timeout=500)


def check_done(name: str, ranks: int, done: subprocess.CompletedProcess[str]) -> None:
    """Fails unless every rank has come to the end of one of the programs."""
    for rank in range(ranks):
        assert f"rank {rank} has done {name}\n" in done.stdout, done.stdout + done.stderr
