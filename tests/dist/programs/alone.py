"""A program that uses MPI without a launcher, and fails when it is told to."""

import os
import sys
from pathlib import Path

import metaop
from metaop.distributed import all_reduce, get_rank

settings = dict(os.environ)
x = metaop.ones(100_000)
all_reduce(x)
assert get_rank() == 0 and (x == 1).all()
assert dict(os.environ) == settings, "processes that this one starts would inherit what is changed"
maps = Path("/proc/self/maps")
assert not maps.exists() or "/dev/shm" not in maps.read_text()
print("done", flush=True)
if "fail" in sys.argv:
    raise ValueError("deliberate")
