"""Meshes, placements and styles under PyTorch's names, on 2 and 4 processes."""

from __future__ import annotations

import pytest

from tests.dist.jobs import check_done, needs_mpi, run_all

pytestmark = [pytest.mark.mpi, needs_mpi]


@pytest.mark.parametrize(
    ("ranks", "programs"),
    [
        (2, ("mesh_tensors",)),
        (4, ("mesh_tensors", "mesh_training")),
        pytest.param(2, ("mesh_training",), marks=pytest.mark.nightly),
    ],
)
def test_meshes_agree_with_one_process(ranks: int, programs: tuple[str, ...]) -> None:
    done = run_all(ranks, *programs)
    for name in programs:
        check_done(name, ranks, done)
