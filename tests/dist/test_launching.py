"""Starting jobs, the variables that programs read, and whose progress bars are seen."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import metaop
from metaop.__main__ import main
from metaop.dist.environment import adopt, launched
from metaop.dist.joining import Wish, check_place, wish_of
from metaop.dist.launch import launch_environment
from metaop.errors import ArgumentError, DistributedError
from tests.dist.jobs import PROGRAMS, ROOT, needs_mpi, run

OMPI = {"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4"}
LOCAL = {"OMPI_COMM_WORLD_LOCAL_RANK": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}
TORCHRUN = {"MASTER_ADDR": "a", "MASTER_PORT": "1"}


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


@pytest.mark.parametrize(
    ("method", "rank", "size", "environment", "found"),
    [
        (None, -1, -1, {}, None),
        ("tcp://a:1", 1, 2, {}, (1, 2, "a:1", "a")),
        ("tcp://a:1?rank=1&world_size=2", -1, -1, {}, (1, 2, "a:1", "a")),
        ("file:///b/c", 0, 2, {}, (0, 2, "/b/c", "")),
        (None, -1, -1, {**TORCHRUN, "RANK": "3", "WORLD_SIZE": "4"}, (3, 4, "a:1", "a")),
        ("env://", 1, 4, {**TORCHRUN, "RANK": "3"}, (1, 4, "a:1", "a")),
        (None, 3, -1, {**OMPI}, (3, 4, ":", "")),
        (None, 0, 1, {}, (0, 1, ":", "")),
        (None, 0, 2, {}, "MASTER_ADDR or MASTER_PORT is not set"),
        (None, 0, -1, {}, "world_size is -1"),
        (None, -1, -1, {"WORLD_SIZE": "2"}, "rank is -1"),
        ("tcp://a:1", 2, 2, {}, "rank is 2 and world_size is 2"),
        ("tcp://", 0, 2, {}, "init_method is 'tcp://'"),
        ("mpi://a", 0, 2, {}, "init_method is 'mpi://a'"),
    ],
)
def test_the_place_that_a_program_asks_for(
    method: str, rank: int, size: int, environment: dict[str, str], found: Any
) -> None:
    if isinstance(found, str):
        with pytest.raises(ArgumentError, match=re.escape(found)):
            wish_of(method, rank, size, environment)
    else:
        assert wish_of(method, rank, size, environment) == found


def test_a_place_that_is_not_that_of_mpi_is_an_error() -> None:
    check_place(None, 0, 1)
    check_place(Wish(1, 2, "", ""), 1, 2)
    with pytest.raises(DistributedError, match="rank 0 of 1 of the MPI job, and rank 1 of 2"):
        check_place(Wish(1, 2, "", ""), 0, 1)


@pytest.mark.parametrize(
    "argument",
    [{"backend": "smoke"}, {"store": 1}, {"pg_options": 1}, {"device_id": 0}, {"rank": 1}],
    ids=str,
)
def test_what_init_process_group_cannot_do_is_refused(argument: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError, match=next(iter(argument))):
        metaop.distributed.init_process_group(**argument)


JOINED = str(PROGRAMS / "joined.py")


def joined(*arguments: str, **settings: str) -> subprocess.Popen[str]:
    """The program `joined.py`, without mpirun."""
    return subprocess.Popen(
        [sys.executable, JOINED, *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT), **settings},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@needs_mpi
@pytest.mark.mpi
@pytest.mark.parametrize("kind", ["tcp", "file"])
def test_processes_of_spawn_are_ranks(kind: str, tmp_path: Path) -> None:
    method = f"file://{tmp_path}/meeting" if kind == "file" else "tcp://localhost:29741"
    out, errors = joined("spawn", method, "2").communicate(timeout=300)
    assert "rank 0 of 2 agrees" in out and "rank 1 of 2 agrees" in out, out + errors


@needs_mpi
@pytest.mark.mpi
def test_processes_with_pytorchs_variables_are_ranks() -> None:
    place = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29742"}
    started = [joined("rank", RANK=str(rank), **place) for rank in (1, 0)]
    answers = [process.communicate(timeout=300) for process in started]
    for rank, (out, errors) in zip((1, 0), answers):
        assert f"rank {rank} of 2 agrees" in out, out + errors


@needs_mpi
@pytest.mark.mpi
def test_a_failing_process_of_spawn_ends_the_others(tmp_path: Path) -> None:
    process = joined("fail", f"file://{tmp_path}/meeting", "2")
    _, errors = process.communicate(timeout=55)
    assert process.returncode != 0 and "ZeroDivisionError: on purpose" in errors


@needs_mpi
@pytest.mark.mpi
def test_a_process_of_spawn_does_not_train_alone() -> None:
    process = joined("alone")
    _, errors = process.communicate(timeout=300)
    assert process.returncode != 0 and "would be rank 0 of 1" in errors


@needs_mpi
@pytest.mark.mpi
def test_ranks_of_mpirun_are_not_renumbered() -> None:
    done = run("joined.py", 2, "spawn", "tcp://localhost:29743", "2")
    assert done.returncode != 0
    assert "of 2 of the MPI job, and rank" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "there is no program"),
        (["-np", "2"], "there is no program"),
        (["-np", "0", "x.py"], "'0' is not a number of processes"),
        (["-np", "-1", "x.py"], "'-1' is not a number of processes"),
        (["-np", "x", "x.py"], "'x' is not a number of processes"),
        (["-np", "1.5", "x.py"], "'1.5' is not a number of processes"),
        (["-np", "2", "/there/is/no.py"], "there is no file '/there/is/no.py'"),
    ],
)
def test_a_job_that_cannot_be_meant_is_refused(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        main(["run", *arguments])
    assert left.value.code == 2
    assert message in capsys.readouterr().err


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
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "rank 0 of 2 agrees" in done.stdout and "rank 1 of 2 agrees" in done.stdout
    assert "log of rank 0" in done.stdout and "log of rank 1" not in done.stdout
    assert "bar of rank 0" in done.stderr and "bar of rank 1" not in done.stderr


@needs_mpi
@pytest.mark.mpi
@pytest.mark.parametrize("kind", ["succeed", "fail"])
def test_a_process_without_a_launcher_leaves_nothing_behind(kind: str, tmp_path: Path) -> None:
    environment = dict.fromkeys(("TMPDIR", "OMPI_MCA_btl_sm_backing_directory"), str(tmp_path))
    done = subprocess.run(
        [sys.executable, str(PROGRAMS / "alone.py"), kind],
        env={**os.environ, **environment, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert "done" in done.stdout and done.returncode == (kind == "fail"), done.stderr
    assert not list(tmp_path.iterdir())


@needs_mpi
@pytest.mark.mpi
@pytest.mark.parametrize("kind", ["kill", "raise"])
def test_training_goes_on_when_a_rank_is_lost(kind: str, tmp_path: Path) -> None:
    path = str(tmp_path / "last.pt")
    done = run("elastic.py", 3, kind, path, options=["--with-ft"])
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 of 3 ranks are lost; continuing with 2" in done.stderr
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
    ("before", "after", "name"),
    [
        (3, 2, "half"),
        (4, 1, "half"),
        pytest.param(3, 2, "half.pt", marks=pytest.mark.nightly),
        pytest.param(2, 4, "half", marks=pytest.mark.nightly),
    ],
)
def test_a_checkpoint_is_read_by_any_number_of_ranks(
    before: int, after: int, name: str, tmp_path: Path
) -> None:
    path = str(tmp_path / name)
    for ranks in (before, after):
        done = run("resume.py", ranks, path)
        assert done.returncode == 0, done.stdout + done.stderr
        assert f"rank {ranks - 1} agrees" in done.stdout
