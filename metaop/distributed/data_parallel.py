"""`metaop run --data-parallel train.py`: a program for one device, trained by all ranks.

The program itself is unchanged; `metaop.tensor.sharded.data_parallel` describes what happens to its
tensors. This module does the rest: ranks draw the same random numbers, only one of them prints, and
no two write the same file.
"""

from __future__ import annotations

import os
import random
import sys
import warnings
from collections.abc import Sequence

import numpy as np

from metaop import settings
from metaop.dist.collectives import everyone
from metaop.dist.own_files import keep_files_apart
from metaop.dist.sbp import BROADCAST
from metaop.main_program import run_as_main
from metaop.nn.hooks import register_module_buffer_registration_hook
from metaop.nn.module import Module
from metaop.tensor.core import Tensor
from metaop.tensor.sharded import data_parallel
from metaop.tensor.sharded.data_parallel import home_of, split_all
from metaop.tensor.sharded.global_tensor import distribute_tensor

__all__ = ["become_one", "begin", "home_of", "run_program", "split_all"]

_HASHES = "PYTHONHASHSEED"


def run_program(program: Sequence[str]) -> None:
    """Runs `script.py argument …` or `-m module argument …` as the main program of this rank."""
    if _HASHES not in os.environ:
        # Sets of strings must have the same order on all ranks.
        os.environ[_HASHES] = "0"
        command = [sys.executable, "-m", "metaop", "run", "--data-parallel", *program]
        os.execv(sys.executable, command)
    begin()
    run_as_main(program)


def begin(mesh: Sequence[int] | None = None) -> None:
    """Makes the program of this process data-parallel over all ranks, in a line or in a mesh.

    Data is split along the first axis of the mesh. In a job of one process, it does nothing.
    """
    if everyone().size == 1:
        return
    data_parallel.begin((everyone().size,) if mesh is None else mesh)
    register_module_buffer_registration_hook(_whole)
    become_one()


def become_one() -> None:
    """Gives all ranks the same random numbers, and lets only rank 0 print and write."""
    job = everyone()
    seed = job.bcast(int.from_bytes(os.urandom(4), "little"), 0)
    random.seed(seed)
    np.random.seed(seed)
    if job.rank and not settings.get("METAOP_ALL_RANKS_TALK"):
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        warnings.showwarning = lambda *_, **__: None
    if job.rank:
        keep_files_apart()


def _whole(module: Module, name: str, value: Tensor | None) -> Tensor | None:
    """Shards a buffer as the parameters are sharded."""
    if value is None or value.device.placement is not None:
        return value
    placement = home_of(value.device).placement
    return (
        value
        if placement is None
        else distribute_tensor(
            value, placement, data_parallel.uniform_sharding(placement, BROADCAST)
        )
    )
