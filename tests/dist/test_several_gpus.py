"""Ranks with a GPU each, on stand-ins for cupy and NCCL: their results are those of one device."""

from __future__ import annotations

import pytest

from tests.cuda import emulator
from tests.dist.jobs import check_done, needs_mpi, run

pytestmark = [
    pytest.mark.mpi,
    needs_mpi,
    pytest.mark.skipif(not emulator.is_available(), reason="the emulator needs g++"),
]

PROGRAMS = ("gpu_collectives", "gpu_training", "pipeline")


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Where the kernels of all jobs are compiled, each once."""
    return str(tmp_path_factory.mktemp("kernels"))


def check(kernels: str, ranks: int, *programs: str) -> None:
    done = run("several.py", ranks, "--gpus", *programs, timeout=500, EMULATED_KERNELS=kernels)
    for name in programs:
        check_done(name, ranks, done)


def test_two_ranks_with_a_gpu_each(kernels: str) -> None:
    check(kernels, 2, *PROGRAMS)


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.nightly)])
def test_a_network_shared_out_over_gpus(ranks: int, kernels: str) -> None:
    check(kernels, ranks, "gpu_parallel")


@pytest.mark.nightly
def test_modules_that_are_gathered_when_they_are_called(kernels: str) -> None:
    check(kernels, 2, "fully_sharded")


@pytest.mark.nightly
def test_four_ranks_with_shares_of_the_batch(kernels: str) -> None:
    check(kernels, 4, "gpu_training")


def test_two_ranks_that_share_a_gpu(kernels: str) -> None:
    done = run("shared_gpu.py", 2, timeout=300, EMULATED_KERNELS=kernels)
    for rank in range(2):
        assert f"rank {rank} agrees\n" in done.stdout, done.stdout + done.stderr
