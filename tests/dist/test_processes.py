"""Programs on several processes started by mpirun; every test is bounded by a timeout."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from metaop.dist.launch import launch_environment

needs_mpi = pytest.mark.skipif(
    shutil.which("mpirun") is None or importlib.util.find_spec("mpi4py") is None,
    reason="there is no mpirun, or mpi4py is not installed",
)
pytestmark = [pytest.mark.mpi, needs_mpi]

PROGRAMS = Path(__file__).parent / "programs"
ROOT = Path(__file__).parents[2]
AGREEING = [
    "transitions.py",
    "data_parallel.py",
    "batch_norm.py",
    "zero.py",
    "pipeline.py",
    "graph.py",
    "network.py",
    "placing.py",
]


def run(
    name: str, ranks: int, *arguments: str, options: Sequence[str] = (), **settings: str
) -> subprocess.CompletedProcess[str]:
    """Runs a program through `metaop run`; fails after two minutes."""
    environment = {**launch_environment(ranks), **settings}
    environment["PYTHONPATH"] = str(ROOT)
    command = [sys.executable, "-m", "metaop", "run", "-np", str(ranks), *options]
    return subprocess.run(
        [*command, str(PROGRAMS / name), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("name", AGREEING)
def test_ranks_agree_with_one_process(name: str, ranks: int) -> None:
    done = run(name, ranks)
    assert done.returncode == 0, done.stdout + done.stderr
    for rank in range(ranks):
        assert f"rank {rank} agrees" in done.stdout


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("raise", "rank 1 failed at"),
        ("thread", "rank 1 failed at"),
        ("exit", "rank 1 left with exit code 3"),
        ("kill", "signal 9"),
        ("shape", "float64[4, 5] P"),
        ("program", "different programs"),
        ("module", "different modules"),
        ("seed", "fix: seed all ranks alike"),
        ("blocks", "the ranks have [4, 6] of 10"),
        ("collective", "'barrier' on rank 0 (at "),
        ("early", "'the end of the program' on rank 1"),
        ("timeout", "for rank 1 in barrier"),
    ],
)
def test_a_failing_rank_ends_the_job(kind: str, message: str) -> None:
    patience = {"METAOP_TIMEOUT_SECONDS": "1"} if kind == "timeout" else {}
    done = run("faults.py", 2, kind, **patience)
    assert done.returncode != 0
    assert message in done.stderr + done.stdout, done.stderr


def test_a_slow_rank_is_named_and_waited_for() -> None:
    done = run("faults.py", 3, "slow", METAOP_WATCHDOG_SECONDS="0.5")
    assert done.returncode == 0, done.stderr
    assert "for rank 1 in all_reduce sum float32[3] at " in done.stderr


def test_a_pipeline_of_four_ranks_takes_the_time_and_memory_of_its_schedule() -> None:
    done = run("pipeline_clock.py", 4)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "rank 0 agrees" in done.stdout


@pytest.mark.parametrize(
    ("model", "data", "tensor", "stages"), [("gpt", 1, 2, 2), ("bert", 2, 1, 2)]
)
def test_transformers_cut_up_in_several_directions(
    model: str, data: int, tensor: int, stages: int
) -> None:
    example = ROOT / "examples" / "dist" / "three_dimensional.py"
    numbers = ["--data", str(data), "--tensor", str(tensor), "--stages", str(stages)]
    done = run(str(example), 4, "--model", model, *numbers, "--steps", "3")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "as on one device" in done.stdout


def test_a_slow_stage_is_named() -> None:
    done = run("pipeline_clock.py", 2, "slow", METAOP_WATCHDOG_SECONDS="0.7")
    assert done.returncode == 0, done.stderr
    assert (
        "rank 0 has waited 1 s in 'backward 0' number 1 for 'backward 1' of rank 1" in done.stderr
    )
