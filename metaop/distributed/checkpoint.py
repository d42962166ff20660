"""Checkpoints of a whole job in one file, which any number of ranks can read.

state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
checkpoint.save(state, checkpoint_id="last.pt")
checkpoint.load(state, checkpoint_id="last.pt")
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from metaop import serialization
from metaop.dist.collectives import MPIWorld, everyone
from metaop.errors import CheckpointError
from metaop.tensor.core import Tensor
from metaop.tensor.global_tensor import full_tensor, spread
from metaop.tensor.gradients import no_grad

Path = str | os.PathLike[str]


def save(state_dict: dict[str, Any], *, checkpoint_id: Path) -> None:
    """Writes nested dicts, lists and tensors; every rank has to call it, rank 0 writes.

    Global tensors are gathered. The file appears when it is complete: who fails in between leaves
    the one before. When the call returns, on any rank, the file is there.
    """
    whole = _mapped(state_dict, _gathered)
    world = MPIWorld(everyone())
    problem = ""
    if world.rank == 0:
        try:
            serialization.save(whole, checkpoint_id)
        except OSError as error:
            problem = str(error)
    if problem := world.communicator.bcast(problem, 0):
        raise CheckpointError(f"rank 0 cannot write {checkpoint_id}: {problem}")


@no_grad()
def load(state_dict: dict[str, Any], *, checkpoint_id: Path) -> None:
    """Puts what a file has into `state_dict`, on all ranks.

    Its tensors are filled in place: global ones take the parts that lie on this rank, whatever
    number of ranks has written the file. What is no tensor, or is not in `state_dict` yet, is put
    there. Raises CheckpointError when a shape differs.
    """
    _fill(state_dict, serialization.load(checkpoint_id), "")


def _fill(target: dict[str, Any], source: dict[str, Any], where: str) -> None:
    for name, value in source.items():
        place = f"{where}{name}"
        known = target.get(name)
        if isinstance(value, dict) and isinstance(known, dict):
            _fill(known, value, f"{place}.")
        elif isinstance(value, Tensor) and isinstance(known, Tensor):
            if tuple(value.shape) != tuple(known.shape):
                raise CheckpointError(
                    f"{place} has shape {list(value.shape)} in the file and {list(known.shape)} "
                    "here",
                    fix="build the model with the sizes of the one that was saved",
                )
            known.copy_(_placed(value, known))  # type: ignore[attr-defined]
        else:
            target[name] = value


def _placed(value: Tensor, like: Tensor) -> Tensor:
    """A whole local value lying as `like` does."""
    if like.device.placement is None:
        return value
    return spread(value, like.device.placement, like.sbp)  # type: ignore[attr-defined]


def _gathered(value: Tensor) -> Tensor:
    return value if value.device.placement is None else full_tensor(value.detach())


def _mapped(value: Any, function: Callable[[Tensor], Tensor]) -> Any:
    """`function` of all tensors in nested dicts, lists and tuples."""
    if isinstance(value, Tensor):
        return function(value)
    if isinstance(value, dict):
        return {name: _mapped(inner, function) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_mapped(inner, function) for inner in value)
    return value
