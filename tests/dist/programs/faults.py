"""Rank 1 fails in the way that the first argument names; the others wait for it."""

import os
import signal
import sys
import threading
import time

import numpy as np

import metaop
from metaop.distributed import barrier, distribute_tensor, get_rank, placement, sbp

rank, kind = get_rank(), sys.argv[1]
everywhere = placement.all("cpu")


def fail() -> None:
    raise ValueError("deliberate")


if rank == 1:
    if kind == "raise":
        fail()
    if kind == "thread":
        threading.Thread(target=fail).start()
    if kind == "exit":
        sys.exit(3)
    if kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
if kind == "shape":
    part = metaop.tensor(np.ones((4, 4 + rank)))
    part.to_global(placement=everywhere, sbp=sbp.partial_sum).full_tensor()
if kind == "program":
    x = distribute_tensor(metaop.ones(4, 4), everywhere, sbp.split(0))
    (x.sum(0) if rank == 1 else x.sum(1) @ x).full_tensor()
if kind == "seed":
    metaop.manual_seed(rank)
    metaop.rand(4, placement=everywhere, sbp=sbp.broadcast).numpy()
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
