"""Rank 1 fails in the way that the first argument names; the others wait for it."""

import os
import signal
import sys
import threading
import time

import numpy as np

kind = sys.argv[1]
started_as = int(os.environ["OMPI_COMM_WORLD_RANK"])
if kind == "absent" and started_as == 1:
    time.sleep(60)

import metaop  # noqa: E402
from metaop.dist.actor import pipeline, run  # noqa: E402
from metaop.dist.collectives import MPIWorld, everyone  # noqa: E402
from metaop.dist.follow import Follower  # noqa: E402
from metaop.distributed import (  # noqa: E402
    barrier,
    checkpoint,
    distribute_tensor,
    get_rank,
    placement,
    sbp,
)

rank = get_rank()
if rank == 0:
    memory = next(v for k, v in os.environ.items() if k.endswith("btl_sm_backing_directory"))
    print("shared memory in", memory, flush=True)
everywhere = placement.all("cpu")
# Large enough for the window of the host, and for more than all of its slots.
LARGE = 3_000_000


def fail() -> None:
    raise ValueError("deliberate")


def leave_in_the_middle(action: str) -> None:
    """Rank 1 is lost while gradients are averaged: after the first of them have been put."""
    model = metaop.nn.parallel.DistributedDataParallel(metaop.nn.Linear(1000, LARGE // 1000))
    # Two ranks might find messages faster than the window of their host.
    model._world.transport.by_messages = False
    loss = model(metaop.ones(1, 1000)).sum()
    if rank == 1:
        from metaop.dist.ring_steps import AllReduce

        put = AllReduce.put

        def lost(self: AllReduce, number: int, slot: np.ndarray) -> None:
            if number == 2:
                actions[action]()
            put(self, number, slot)

        AllReduce.put = lost
    loss.backward()


def save_and_be_killed(path: str) -> None:
    """Rank 0 is killed while it writes a file over a complete one."""
    state = {"x": metaop.ones(1000)}
    checkpoint.save(state, checkpoint_id=path)
    os.replace = lambda *_: actions["kill"]()
    checkpoint.save({"x": metaop.zeros(1000)}, checkpoint_id=path)


def end_early(where: str) -> None:
    """Rank 1 comes to its end; rank 0 goes on with what needs both."""
    tensor = metaop.ones(4, 4)
    if where in ("global", "repeated"):
        shared = distribute_tensor(tensor, everywhere, sbp.split(0))
        shared.sum().item()
    if rank == 1:
        if where == "schedule":
            metaop.distributed.init_process_group()
        else:
            sys.exit(0)
    if where == "global":
        shared.sum(1).full_tensor()
    if where == "repeated":
        shared.sum().item()
    if where == "placing":
        distribute_tensor(tensor, everywhere, sbp.split(0)).sum().item()
    if where == "gathering":
        tensor.to_global(placement=everywhere, sbp=sbp.split(0))
    if where == "recv":
        metaop.distributed.recv(tensor, 1)
    if where == "batch":
        operations = [
            metaop.distributed.P2POp(operation, metaop.ones(LARGE), 1)
            for operation in (metaop.distributed.irecv, metaop.distributed.isend)
        ]
        for work in metaop.distributed.batch_isend_irecv(operations):
            work.wait()
    if where == "send":
        metaop.distributed.send(metaop.ones(LARGE), 1)
    if where == "schedule":
        follow_half_a_schedule()


def follow_half_a_schedule() -> None:
    """A pipeline of two stages, of which the second leaves in its second act."""
    actors = pipeline(2, 4)

    def act(number: int, inputs: dict) -> list[np.ndarray]:
        if rank == 1 and number == 1:
            sys.exit(0)
        return [np.ones(3, np.float32)]

    mine = {actor.name: act for actor in actors if actor.device == rank}
    Follower(actors, range(2), MPIWorld(everyone())).run(run(actors), mine)


def end_late() -> None:
    """The ranks end one after another, and two of them work together when the third has left."""
    pair = placement("cpu", [0, 2])
    if rank != 1:
        shared = metaop.ones(4, 4).to_global(placement=pair, sbp=sbp.split(0))
        assert shared.sum().item() == 32
        time.sleep(3 if rank == 2 else 0)
        assert shared.sum(0).full_tensor().sum().item() == 32
        time.sleep(3 if rank == 0 else 0)
    sys.exit(0)


def vanish() -> None:
    os._exit(0)


actions = {
    "raise": fail,
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "sleep": lambda: time.sleep(3),
    "exit": lambda: sys.exit(3),
    "raise exit": lambda: exec("raise SystemExit(3)"),
    "text": lambda: sys.exit("bad data"),
    "vanish": vanish,
    "crash": lambda: os.kill(os.getpid(), signal.SIGSEGV),
    "thread": lambda: threading.Thread(target=fail).start(),
    "interrupt": lambda: os.kill(os.getpid(), signal.SIGINT),
}
if kind in actions and rank == 1:
    actions[kind]()
if kind.startswith("averaging "):
    leave_in_the_middle(kind.split()[1])
if kind.startswith("early "):
    end_early(kind.split()[1])
if kind == "late end":
    end_late()
if kind == "checkpoint":
    save_and_be_killed(sys.argv[2])
if kind == "shape":
    part = metaop.tensor(np.ones((4, 4 + rank)))
    part.to_global(placement=everywhere, sbp=sbp.partial_sum).full_tensor()
if kind == "program":
    x = distribute_tensor(metaop.ones(4, 4), everywhere, sbp.split(0))
    (x.sum(0) if rank == 1 else x.sum(1) @ x).full_tensor()
if kind == "seed":
    metaop.manual_seed(rank)
    metaop.rand(4, placement=everywhere, sbp=sbp.broadcast).numpy()
if kind == "divisor":
    left = metaop.arange(8).to_global(placement=everywhere, sbp=sbp.broadcast)
    right = (7 - metaop.arange(8)).to_global(placement=everywhere, sbp=sbp.broadcast)
    left, right = (x.to_global(sbp=sbp.split(0)) for x in (left, right))
    print("sums", left.sum().item(), right.sum().item(), flush=True)
    print("quotient", (left // right).sum().item())
if kind == "blocks":
    metaop.ones(4 + 2 * rank, 3).to_global(placement=everywhere, sbp=sbp.split(0))
if kind == "collective":
    if rank == 1:
        metaop.distributed.all_reduce(metaop.ones(3))
if kind == "early":
    if rank == 1:
        sys.exit()
if kind == "slow":
    if rank == 1:
        time.sleep(3)
    metaop.distributed.all_reduce(metaop.ones(3))
if kind == "timeout":
    if rank == 1:
        time.sleep(60)
if kind == "module":
    metaop.nn.parallel.DistributedDataParallel(metaop.nn.Linear(3, 4 + rank))
barrier()
