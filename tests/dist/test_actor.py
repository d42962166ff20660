"""The pipeline schedule: one-forward-one-backward comes out of the credits."""

from __future__ import annotations

from itertools import pairwise

import pytest

from metaop.dist.actor import Actor, peak_stash, pipeline, run
from metaop.errors import DistributedError


@pytest.mark.parametrize(("stages", "batches"), [(1, 4), (2, 6), (4, 8), (4, 16), (8, 16)])
def test_makespan_is_ideal_and_stash_bounded(stages: int, batches: int) -> None:
    actions = run(pipeline(stages, batches, forward=1.0, backward=2.0))
    makespan = max(action.end for action in actions)
    assert makespan <= 1.1 * (batches + stages - 1) * 3.0
    assert len(actions) == 2 * stages * batches
    for stage in range(stages):
        assert peak_stash(actions, stage) <= stages - stage


def test_a_device_does_one_thing_at_a_time_in_order() -> None:
    actions = run(pipeline(3, 5))
    for device in range(3):
        mine = [action for action in actions if action.device == device]
        assert all(a.end <= b.start for a, b in pairwise(mine))
    ends = {(action.actor, action.number): action.end for action in actions}
    for action in actions:
        if action.actor == "backward 1":
            assert ends["forward 1", action.number] <= action.start
            assert ends["backward 2", action.number] <= action.start


def test_the_watchdog_names_who_waits() -> None:
    source = Actor("load", 0, 1.0, 4, credits=1)
    first = Actor("first", 1, 1.0, 4, 1, [source])
    Actor("never", 2, 1.0, 0, 1, [first])
    with pytest.raises(DistributedError, match="first has no free register"):
        run([source, first])
