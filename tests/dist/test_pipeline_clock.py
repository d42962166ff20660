"""Pipelines on processes against their schedules on the simulated clock."""

from __future__ import annotations

import pytest

from tests.dist.jobs import needs_mpi, run

pytestmark = [pytest.mark.mpi, needs_mpi]


def test_a_pipeline_of_four_ranks_takes_the_time_and_memory_of_its_schedule() -> None:
    done = run("pipeline_clock.py", 4)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "rank 0 agrees" in done.stdout
