"""Starting jobs, the variables that programs read, and whose progress bars are seen."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from metaop.dist.environment import adopt, check_launcher, launched
from metaop.dist.launch import launch_environment
from tests.dist.jobs import PROGRAMS, ROOT, needs_mpi, run

OMPI = {"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4"}
LOCAL = {"OMPI_COMM_WORLD_LOCAL_RANK": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}


def test_the_place_of_a_process_is_read_from_its_launcher() -> None:
    assert launched({}) is None
    assert launched({**OMPI, **LOCAL}) == (3, 4, 1, 2)
    assert launched({"PMI_RANK": "1", "PMI_SIZE": "2"}) == (1, 2, 1, 2)
    assert launched({"SLURM_PROCID": "5", "SLURM_STEP_NUM_TASKS": "8", "SLURM_LOCALID": "1"})


def test_pytorchs_variables_are_set_and_what_is_set_stays() -> None:
    environment = {**OMPI, **LOCAL, "MASTER_PORT": "1234", "METAOP_ALL_RANKS_TALK": "1"}
    alone: dict[str, str] = {}
    adopt(alone)
    assert alone == {}
    os.environ["METAOP_ALL_RANKS_TALK"] = "1"
    try:
        adopt(environment)
    finally:
        del os.environ["METAOP_ALL_RANKS_TALK"]
    assert environment["RANK"] == "3" and environment["WORLD_SIZE"] == "4"
    assert environment["LOCAL_RANK"] == "1" and environment["MASTER_PORT"] == "1234"
    assert "OMPI_MCA_btl" not in environment, "ranks on two hosts choose their transport"
    assert "TQDM_DISABLE" not in environment


def test_a_launcher_that_did_not_start_mpi_is_an_error() -> None:
    assert "WORLD_SIZE is 4" in check_launcher(1, {"WORLD_SIZE": "4", "RANK": "0"})
    assert not check_launcher(4, {**OMPI, "WORLD_SIZE": "4"})
    assert not check_launcher(1, {})


@needs_mpi
@pytest.mark.mpi
def test_mpirun_works_as_it_is_and_rank_0_alone_talks() -> None:
    environment = {k: v for k, v in launch_environment(2).items() if not k.startswith("METAOP_NUM")}
    environment["PYTHONPATH"] = str(ROOT)
    mpirun = shutil.which("mpirun")
    assert mpirun is not None
    done = subprocess.run(
        [mpirun, "-np", "2", sys.executable, str(PROGRAMS / "launched.py")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "rank 0 of 2 agrees" in done.stdout and "rank 1 of 2 agrees" in done.stdout
    assert "log of rank 0" in done.stdout and "log of rank 1" not in done.stdout
    assert "bar of rank 0" in done.stderr and "bar of rank 1" not in done.stderr


@needs_mpi
@pytest.mark.mpi
@pytest.mark.parametrize("kind", ["kill", "raise"])
def test_training_goes_on_when_a_rank_is_lost(kind: str, tmp_path: Path) -> None:
    path = str(tmp_path / "last.pt")
    done = run("elastic.py", 3, kind, path, options=["--with-ft"])
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 of 3 ranks are lost; going on with 2" in done.stderr
    assert "rank 0 of 2 agrees" in done.stdout and "rank 1 of 2 agrees" in done.stdout


@needs_mpi
@pytest.mark.mpi
def test_a_job_that_loses_all_ranks_has_failed(tmp_path: Path) -> None:
    done = run("elastic.py", 2, "all", str(tmp_path / "last.pt"), options=["--with-ft"])
    assert done.returncode != 0
    assert "ZeroDivisionError" in done.stderr


@needs_mpi
@pytest.mark.mpi
@pytest.mark.parametrize(
    ("before", "after", "name"), [(3, 2, "half.pt"), (3, 2, "half"), (2, 4, "half"), (4, 1, "half")]
)
def test_a_checkpoint_is_read_by_any_number_of_ranks(
    before: int, after: int, name: str, tmp_path: Path
) -> None:
    path = str(tmp_path / name)
    for ranks in (before, after):
        done = run("resume.py", ranks, path)
        assert done.returncode == 0, done.stdout + done.stderr
        assert f"rank {ranks - 1} agrees" in done.stdout
