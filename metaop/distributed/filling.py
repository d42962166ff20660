"""Putting a checkpoint into what a program has: tensors in place, and the states of objects."""

from __future__ import annotations

from typing import Any, Protocol

from metaop.dist.placement import Placement
from metaop.distributed.optim import ZeroRedundancyOptimizer
from metaop.errors import CheckpointError
from metaop.nn.module import Module
from metaop.optim.optimizer import Optimizer
from metaop.serialization.sharded_format import below, mapped
from metaop.tensor.core import Tensor
from metaop.tensor.global_tensor import spread


class Source(Protocol):
    """A tensor of a checkpoint."""

    shape: tuple[int, ...]

    def whole(self) -> Tensor:
        """All of it as a local tensor."""

    def lying_as(self, like: Tensor) -> Tensor:
        """Its value, lying on the ranks as `like` does."""


class InMemory:
    """A tensor that every rank has read as a whole."""

    def __init__(self, value: Tensor) -> None:
        self._value = value
        self.shape = tuple(value.shape)

    def whole(self) -> Tensor:
        """All of it as a local tensor."""
        return self._value

    def lying_as(self, like: Tensor) -> Tensor:
        """Its value, lying on the ranks as `like` does."""
        placement: Placement | None = like.device.placement
        if placement is None:
            return self._value
        return spread(self._value, placement, like.sbp)  # type: ignore[attr-defined]


def is_stateful(value: Any) -> bool:
    """Whether an object stands for its state."""
    return hasattr(value, "state_dict") and hasattr(value, "load_state_dict")


def stateful_core(value: Any) -> Any:
    """The object whose state is written: of a shared-out optimizer the one with the blocks."""
    return value.optim if isinstance(value, ZeroRedundancyOptimizer) else value


class Filling:
    """What a checkpoint changes in a state: all is read first, then all is put there."""

    def __init__(self) -> None:
        self._copies: list[tuple[Tensor, Tensor]] = []
        self._entries: list[tuple[dict[Any, Any], Any, Any]] = []
        self._objects: list[tuple[Any, dict[str, Any]]] = []
        # By the beginnings of names: what the states of optimizers are to lie as.
        self._likes: dict[str, Tensor] = {}

    def plan(self, target: dict[Any, Any], source: dict[Any, Any], where: str = "") -> None:
        """Reads what `source` has for `target`; CheckpointError when a shape differs."""
        for key, value in source.items():
            place, known = below(where, key), target.get(key)
            if is_stateful(known) and isinstance(value, dict):
                self._plan_object(known, value, place)
            elif isinstance(value, dict) and isinstance(known, dict):
                self.plan(known, value, place)
            elif _is_source(value) and isinstance(known, Tensor):
                self._copies.append((known, _checked(value, known, place).lying_as(known)))
            else:
                self._entries.append((target, key, mapped(value, self._made, place)))

    def _plan_object(self, known: Any, value: dict[str, Any], place: str) -> None:
        core = stateful_core(known)
        if isinstance(core, Optimizer):
            parameters = [p for group in core.param_groups for p in group["params"]]
            for number, parameter in enumerate(parameters):
                self._likes[f"{place}/state/{number}"] = parameter
        state = core.state_dict()
        self.plan(state, value, place)
        if not isinstance(known, Module):
            self._objects.append((known, state))

    def _made(self, name: str, value: Any) -> Any:
        """A leaf that `target` does not have yet."""
        if not _is_source(value):
            return value
        like = self._likes.get(name.rpartition("/")[0])
        if like is not None and tuple(like.shape) == value.shape:
            return value.lying_as(like)
        return value.whole()

    def apply(self) -> None:
        """Puts everything where it belongs."""
        for known, value in self._copies:
            known.copy_(value)  # type: ignore[attr-defined]
        for target, key, value in self._entries:
            target[key] = value
        for known, state in self._objects:
            known.load_state_dict(state)


def _is_source(value: Any) -> bool:
    return hasattr(value, "lying_as")


def _checked(source: Source, known: Tensor, place: str) -> Source:
    if source.shape != tuple(known.shape):
        raise CheckpointError(
            f"{place} has shape {list(source.shape)} in the checkpoint and {list(known.shape)} "
            "here",
            fix="build the model with the sizes of the one that was saved",
        )
    return source
