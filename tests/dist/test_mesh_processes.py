"""Meshes of ranks on several processes started by mpirun, against one process."""

from __future__ import annotations

import pytest

from tests.dist.test_processes import ROOT, run
from tests.dist.test_processes import pytestmark as needs_mpi

pytestmark = needs_mpi


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("name", ["meshes.py", "predicted.py", "found.py"])
def test_meshes_agree_with_one_process(name: str, ranks: int) -> None:
    done = run(name, ranks)
    assert done.returncode == 0, done.stdout + done.stderr
    for rank in range(ranks):
        assert f"rank {rank} agrees" in done.stdout


def test_the_example_of_a_mesh_gives_the_losses_of_one_process() -> None:
    example = str(ROOT / "examples" / "dist" / "mesh.py")
    several, one = run(example, 4), run(example, 1)
    assert several.returncode == one.returncode == 0, several.stderr + one.stderr
    assert several.stdout == one.stdout
    assert several.stdout.count("loss") == 5
