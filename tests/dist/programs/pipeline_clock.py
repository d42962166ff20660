"""A balanced pipeline of sleeping stages on real ranks: order, stash and makespan."""

import sys
import time

import numpy as np

from metaop.dist.actor import peak_stash, pipeline, run
from metaop.dist.collectives import MPIWorld, mpi
from metaop.dist.follow import Follower

FORWARD, BACKWARD, BATCHES = 0.08, 0.16, 8
world = MPIWorld(mpi().COMM_WORLD)
stages = world.size
actors = pipeline(stages, BATCHES, FORWARD, BACKWARD)
schedule = run(actors)
# Larger than what MPI sends at once without the receiver's help.
message = np.arange(100_000, dtype=np.float32)
slow = sys.argv[1:] == ["slow"]


def work(name: str, seconds: float) -> object:
    def act(number: int, inputs: dict) -> list[np.ndarray]:
        if slow and name == "forward 1" and number == 1:
            time.sleep(2)
        for source, arrays in inputs.items():
            expected = number + message if source.split()[1] != name.split()[1] else None
            if expected is not None:
                np.testing.assert_array_equal(arrays[0], expected)
        time.sleep(seconds)
        return [number + message]

    return act


mine = {
    actor.name: work(actor.name, actor.seconds) for actor in actors if actor.device == world.rank
}
ideal = (BATCHES + stages - 1) * (FORWARD + BACKWARD)
for _ in range(1 if slow else 3):
    done = Follower(actors, range(stages), world).run(schedule, mine)
    # Other programs may have the cores for a moment: the best of some runs counts.
    together = [action for part in world.communicator.allgather(done) for action in part]
    makespan = max(action.end for action in together)
    if makespan <= 1.1 * ideal:
        break
planned = [(a.actor, a.number) for a in schedule if a.device == world.rank]
assert [(a.actor, a.number) for a in done] == planned
for stage in range(stages):
    assert (
        peak_stash(together, stage) == peak_stash(schedule, stage) == min(stages - stage, BATCHES)
    )
assert slow or makespan <= 1.1 * ideal, (makespan, ideal)
print(f"rank {world.rank} agrees: {makespan:.3f} s of {ideal:.3f} s")
