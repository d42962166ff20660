"""Ranks with a GPU each, on stand-ins for cupy and NCCL: their results are those of one device."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cuda import emulator
from tests.dist.jobs import check_done, needs_mpi, run

pytestmark = [
    pytest.mark.mpi,
    needs_mpi,
    pytest.mark.skipif(not emulator.is_available(), reason="the emulator needs g++"),
]

PROGRAMS = ("gpu_collectives", "gpu_training", "pipeline")


def test_two_ranks_with_a_gpu_each(tmp_path: Path) -> None:
    done = run("several.py", 2, "--gpus", *PROGRAMS, timeout=280, EMULATED_KERNELS=str(tmp_path))
    for name in PROGRAMS:
        check_done(name, 2, done)


def test_two_ranks_that_share_a_gpu(tmp_path: Path) -> None:
    done = run("shared_gpu.py", 2, timeout=120, EMULATED_KERNELS=str(tmp_path))
    for rank in range(2):
        assert f"rank {rank} agrees\n" in done.stdout, done.stdout + done.stderr
