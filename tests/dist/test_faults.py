"""A rank that fails, leaves, differs or is late: nothing hangs, the message says who and why."""

from __future__ import annotations

from pathlib import Path

import pytest

import metaop
from tests.dist.jobs import PROGRAMS, needs_mpi, run

pytestmark = [pytest.mark.mpi, needs_mpi]


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("raise", "rank 1 failed at"),
        ("thread", "rank 1 failed at"),
        ("exit", "rank 1 exited with code 3"),
        ("raise exit", "'the end of the program' on rank 1"),
        ("vanish", "process rank 0 with PID|process rank 1 with PID"),
        ("kill", "signal 9"),
        ("shape", "float64[4, 5] P"),
        ("program", "different programs"),
        ("module", "different modules"),
        ("seed", "fix: use the same seed"),
        ("blocks", "the ranks have [4, 6] of 10"),
        ("collective", "'barrier' on rank 0 (at "),
        ("early", "'the end of the program' on rank 1"),
        ("averaging raise", "rank 1 failed at"),
        ("averaging kill", "process rank 1 with PID"),
    ],
)
def test_a_failing_rank_ends_the_job(kind: str, message: str) -> None:
    done = run("faults.py", 2, kind)
    assert done.returncode != 0
    output = done.stderr + done.stdout
    assert any(text in output for text in message.split("|")), output


@pytest.mark.parametrize(
    "where", ["global", "repeated", "placing", "gathering", "recv", "send", "batch", "schedule"]
)
def test_a_rank_that_ends_early_is_named_by_those_who_wait_for_it(where: str) -> None:
    # Far less than METAOP_WATCHDOG_SECONDS, after which a slow rank would be named.
    done = run("faults.py", 2, f"early {where}")
    assert done.returncode != 0
    assert "for rank 1, which has reached the end of its program" in done.stderr, done.stderr


def test_a_rank_names_the_operator_that_refuses_a_value() -> None:
    done = run("faults.py", 2, "divisor")
    assert done.returncode != 0 and "sums 28 28" in done.stdout
    assert "quotient" not in done.stdout, done.stdout
    assert "rank 1 failed" in done.stderr, done.stderr
    assert "floor_divide: ZeroDivisionError" in done.stderr
    line = (PROGRAMS / "faults.py").read_text().split("(left // right)")[0].count("\n") + 1
    assert f"faults.py:{line} in <module>" in done.stderr


def test_ranks_that_end_one_after_another_are_no_fault() -> None:
    done = run("faults.py", 3, "late end")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("kind", "message"),
    [("timeout", "for rank 1 in barrier"), ("absent", "for rank 1 to use MPI at ")],
)
def test_a_rank_that_does_not_come_ends_the_job(kind: str, message: str) -> None:
    done = run("faults.py", 2, kind, METAOP_TIMEOUT_SECONDS="1")
    assert done.returncode != 0
    assert message in done.stderr, done.stderr


def test_a_killed_writer_leaves_the_checkpoint_before(tmp_path: Path) -> None:
    path = tmp_path / "last.pt"
    done = run("faults.py", 2, "checkpoint", str(path))
    assert done.returncode != 0
    assert (metaop.load(path)["x"] == 1).all()


def test_nothing_is_left_in_shared_memory() -> None:
    done = run("faults.py", 2, "averaging kill")
    folder = done.stdout.partition("shared memory in ")[2].splitlines()[0]
    assert Path(folder).name.startswith("metaop-") and not Path(folder).exists()


@pytest.mark.parametrize(
    ("kind", "what"),
    [("slow", "all_reduce sum float32[3] at "), ("averaging sleep", "averaging of ")],
)
def test_a_slow_rank_is_named_and_waited_for(kind: str, what: str) -> None:
    done = run("faults.py", 2, kind, METAOP_WATCHDOG_SECONDS="0.5")
    assert done.returncode == 0, done.stderr
    assert f"for rank 1 in {what}" in done.stderr


def test_a_slow_stage_is_named() -> None:
    done = run("pipeline_clock.py", 2, "slow", METAOP_WATCHDOG_SECONDS="0.7")
    assert done.returncode == 0, done.stderr
    assert (
        "rank 0 has waited 1 s in 'backward 0' number 1 for 'backward 1' of rank 1" in done.stderr
    )
