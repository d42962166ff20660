"""Every mode of training on several processes gives the losses of one process.

Programs that train take 20 steps of float32 and compare to 1e-5; their sizes are such as the ranks
do not divide.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.dist.jobs import EXAMPLES, check_done, needs_mpi, run, run_all

pytestmark = [pytest.mark.mpi, needs_mpi]

# Each group is one job.
LOCAL = (
    "transitions",
    "transports",
    "communication",
    "messages",
    "collectives",
    "linear_collectives",
    "data_parallel",
    "batch_norm",
    "zero",
    "uneven",
    "equal",
    "pipeline",
)
GLOBAL = (
    "graph",
    "placing",
    "stages",
    "meshes",
    "predicted",
    "found",
)
ALL_RANKS = ("models", "network", "complex_numbers")
# Meshes and parts of the ranks need 4 processes; what is local runs on 3 below.
GROUPS = ((LOCAL, 2), (GLOBAL, 4), (ALL_RANKS, 2))


@pytest.mark.parametrize(
    ("name", "group", "ranks"),
    [(name, group, ranks) for group, ranks in GROUPS for name in group],
)
def test_ranks_agree_with_one_process(name: str, group: tuple[str, ...], ranks: int) -> None:
    check_done(name, ranks, run_all(ranks, *group))


def test_large_values_in_the_window_of_a_host_agree_as_small_ones_in_messages() -> None:
    modes = ("transports", "communication", "messages", "collectives", "linear_collectives")
    modes += ("transitions", "data_parallel", "batch_norm", "zero")
    done = run_all(3, "--window", *modes)
    for name in modes:
        check_done(name, 3, done)


def test_the_example_of_a_mesh_gives_the_losses_of_one_process() -> None:
    example = EXAMPLES / "mesh.py"
    several, one = run(example, 4), run(example, 1)
    assert several.returncode == one.returncode == 0, several.stderr + one.stderr
    assert several.stdout == one.stdout
    assert several.stdout.count("loss") == 5


@pytest.mark.nightly
def test_the_example_of_a_search_goes_on_with_another_number_of_ranks(tmp_path: Path) -> None:
    def losses(*ranks: int) -> list[float]:
        folder = str(tmp_path / "-".join(map(str, ranks)))
        found = []
        for count in ranks:
            done = run(EXAMPLES / "auto_parallel.py", count, folder)
            assert done.returncode == 0, done.stderr
            assert ("0.weight S0, 0.bias S0, 2.weight S1" in done.stdout) == (count > 1)
            found += [float(line.split()[3]) for line in done.stdout.splitlines()[:5]]
        return found

    assert losses(3, 2) == pytest.approx(losses(1, 1), rel=1e-4, abs=2e-5)
