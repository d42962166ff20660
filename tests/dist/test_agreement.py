"""Every mode of training on 2 and 4 processes gives the losses of one process.

Programs that train take 20 steps of float32 and compare to 1e-5; their sizes are such as the ranks
do not divide.
"""

from __future__ import annotations

import pytest

from tests.dist.jobs import EXAMPLES, check_done, needs_mpi, run, run_all

pytestmark = [pytest.mark.mpi, needs_mpi]

# Each group is one job.
LOCAL = ("transitions", "carriers", "data_parallel", "batch_norm", "zero", "pipeline")
GLOBAL = ("graph", "network", "placing", "meshes", "predicted", "found")
MODELS = ("models",)


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize(
    ("name", "group"), [(name, group) for group in (LOCAL, GLOBAL, MODELS) for name in group]
)
def test_ranks_agree_with_one_process(name: str, group: tuple[str, ...], ranks: int) -> None:
    check_done(name, ranks, run_all(ranks, *group))


def test_large_values_in_the_window_of_a_host_agree_as_small_ones_in_messages() -> None:
    modes = ("carriers", "transitions", "data_parallel", "batch_norm", "zero")
    done = run_all(3, "--window", *modes)
    for name in modes:
        check_done(name, 3, done)


def test_the_example_of_a_mesh_gives_the_losses_of_one_process() -> None:
    example = EXAMPLES / "mesh.py"
    several, one = run(example, 4), run(example, 1)
    assert several.returncode == one.returncode == 0, several.stderr + one.stderr
    assert several.stdout == one.stdout
    assert several.stdout.count("loss") == 5
