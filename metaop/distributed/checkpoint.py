"""Checkpoints of a whole job, which any number of ranks can read.

state = {"model": model, "optimizer": optimizer, "step": step}
checkpoint.save(state, checkpoint_id="last")
checkpoint.load(state, checkpoint_id="last")

A path like `last` names a folder: every rank writes its parts to it and reads those that it needs.
A path that ends in .pt, .pth, .ckpt or .bin names a single file, which rank 0 writes and PyTorch
can read too. Objects with `state_dict` and `load_state_dict` are saved and loaded by these methods.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from metaop import serialization
from metaop.distributed.restoring import InMemory, Restoring, is_stateful, stateful_core
from metaop.distributed.shards import InShards, ranks_of_job, write_folder
from metaop.errors import CheckpointError
from metaop.serialization.files import open_sharded, save_here
from metaop.serialization.sharded_format import mapped
from metaop.tensor.core import Tensor
from metaop.tensor.grad_mode import no_grad
from metaop.tensor.sharded.global_tensor import full_tensor

PathLike = str | os.PathLike[str]

_FILES = (".pt", ".pth", ".ckpt", ".bin")


@no_grad()
def save(state_dict: dict[str, Any], *, checkpoint_id: PathLike) -> None:
    """Writes nested dicts, lists and tensors; every rank of the job must call it.

    In a folder, each box of a global tensor is written by one of the ranks that hold it; local
    tensors and other values come from the first rank that has the name. A single file holds
    gathered tensors and the values of rank 0. A checkpoint is either complete or absent: a failure
    leaves the previous one in place. When the call returns, on any rank, the checkpoint exists.
    Raises CheckpointError on all ranks if a rank cannot write.
    """
    state = mapped(state_dict, lambda name, value: _plain(value))
    path = Path(checkpoint_id)
    if path.suffix in _FILES:
        _write_file(path, state)
    else:
        write_folder(path, state)


def _plain(value: Any) -> Any:
    return stateful_core(value).state_dict() if is_stateful(value) else value


def _write_file(path: Path, state: Any) -> None:
    whole = mapped(state, lambda name, value: _gathered(value))
    job = ranks_of_job()
    problem = ""
    if job.rank == 0:
        try:
            save_here(whole, path)
        except OSError as error:
            problem = str(error)
    if problem := job.bcast(problem, 0):
        raise CheckpointError(f"rank 0 cannot write {path}: {problem}")


def _gathered(value: Any) -> Any:
    if isinstance(value, Tensor) and value.device.placement is not None:
        return full_tensor(value.detach())
    return value


@no_grad()
def load(state_dict: dict[str, Any], *, checkpoint_id: PathLike, strict: bool = True) -> None:
    """Loads a checkpoint into `state_dict`; every rank of the job must call it.

    Tensors are filled in place. Global tensors take the parts of this rank, whatever number of
    ranks, mesh and sharding they were written with; from a folder, only these bytes are read.
    Objects with `load_state_dict` take their state; that of an optimizer is sharded like its
    parameters. Values that are not tensors, or not in `state_dict` yet, are inserted, tensors as
    local ones. Raises CheckpointError, on all ranks and before anything changes, if the checkpoint
    lacks a name or has one that a module lacks, if a shape differs, if floats would become
    integers, or if a part is missing or damaged. Without `strict`, unmatched names are skipped.
    """
    path = Path(checkpoint_id)
    restoring = Restoring()
    problem: CheckpointError | None = None
    try:
        restoring.plan(state_dict, _source(path))
        if strict:
            restoring.check_names()
    except (CheckpointError, OSError) as error:
        problem = error if isinstance(error, CheckpointError) else CheckpointError(str(error))
    job = ranks_of_job()
    problems = job.allgather("" if problem is None else str(problem))
    if problem is not None:
        raise problem
    for rank, text in enumerate(problems):
        if text:
            raise CheckpointError(f"rank {rank}: {text}")
    restoring.apply()


def _source(path: Path) -> dict[str, Any]:
    """The state with a readable source in place of each tensor."""
    if not path.is_dir():
        whole = serialization.load(path)
        found = mapped(whole, lambda _, x: InMemory(x) if isinstance(x, Tensor) else x)
    else:
        reader = open_sharded(path)
        tensors = reader.tensors
        found = mapped(
            reader.state, lambda name, x: InShards(reader, name) if name in tensors else x
        )
    if not isinstance(found, dict):
        raise CheckpointError(f"{path} has a {type(found).__name__}", fix="use metaop.load(path)")
    return found
