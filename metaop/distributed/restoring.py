"""Loads a checkpoint into the state of a program: tensors in place, and the states of objects."""

from __future__ import annotations

from typing import Any, Protocol

from metaop.dist.placement import Placement
from metaop.distributed.optim import ZeroRedundancyOptimizer
from metaop.errors import CheckpointError
from metaop.nn.module import Module
from metaop.optim.optimizer import Optimizer
from metaop.serialization.sharded_format import below, mapped
from metaop.tensor.core import Tensor
from metaop.tensor.functions.conversion import can_cast
from metaop.tensor.sharded.global_tensor import spread
from metaop.unified_graph.dtype import DType


class Source(Protocol):
    """A tensor of a checkpoint."""

    shape: tuple[int, ...]
    dtype: DType

    def whole(self) -> Tensor:
        """The whole value as a local tensor."""

    def resharded(self, like: Tensor) -> Tensor:
        """Its value, sharded like `like`."""


class InMemory:
    """A tensor that every rank has read as a whole."""

    def __init__(self, value: Tensor) -> None:
        self._value = value
        self.shape = tuple(value.shape)
        self.dtype = value.dtype

    def whole(self) -> Tensor:
        """The whole value as a local tensor."""
        return self._value

    def resharded(self, like: Tensor) -> Tensor:
        """Its value, sharded like `like`."""
        placement: Placement | None = like.device.placement
        if placement is None:
            return self._value
        return spread(self._value, placement, like.sbp)  # type: ignore[attr-defined]


def is_stateful(value: Any) -> bool:
    """Whether an object has a state to save and load."""
    return hasattr(value, "state_dict") and hasattr(value, "load_state_dict")


def stateful_core(value: Any) -> Any:
    """The object whose state is written: for a sharded optimizer, the one that updates blocks."""
    return value.optim if isinstance(value, ZeroRedundancyOptimizer) else value


class Restoring:
    """The changes that a checkpoint makes to a state: all is read first, then all is applied.

    `missing` are names in the state that the checkpoint lacks, `unexpected` names in the checkpoint
    that a module lacks.
    """

    def __init__(self) -> None:
        self.missing: list[str] = []
        self.unexpected: list[str] = []
        self._copies: list[tuple[Tensor, Tensor]] = []
        self._entries: list[tuple[Any, Any, Any]] = []
        self._removed: list[tuple[dict[Any, Any], Any]] = []
        self._objects: list[tuple[Any, dict[str, Any]]] = []
        # By name prefix: the shardings that the states of optimizers get.
        self._likes: dict[str, Tensor] = {}

    def plan(
        self, target: dict[Any, Any], source: dict[Any, Any], where: str = "", owner: Any = None
    ) -> None:
        """Reads what `source` has for `target`, which is the state of `owner` if there is one.

        Raises CheckpointError if a tensor has no tensor there, or one of another shape or kind.
        """
        for key, value in source.items():
            place = below(where, key)
            if key in target:
                self._fill(target, key, value, place, owner)
            elif isinstance(owner, Module):
                self.unexpected.append(place)
            else:
                self._entries.append((target, key, mapped(value, self._made, place)))
        lacking = [key for key in target if key not in source]
        if owner is not None and where.endswith("/state"):
            # An optimizer has no state for the parameters that it has not updated yet.
            self._removed += [(target, key) for key in lacking]
        else:
            self.missing += [below(where, key) for key in lacking]

    def _fill(self, target: Any, key: Any, value: Any, place: str, owner: Any) -> None:
        """Reads `value` for the entry `key`, which `target` has."""
        known = target[key]
        if is_stateful(known) and isinstance(value, dict):
            self._plan_object(known, value, place)
        elif isinstance(value, dict) and isinstance(known, dict):
            self.plan(known, value, place, owner)
        elif _is_source(value) and isinstance(known, Tensor):
            self._copies.append((known, _checked(value, known, place).resharded(known)))
        elif isinstance(value, (list, tuple)) and _has_tensors(known):
            if len(value) != len(known):
                raise _mismatch(place, f"{len(value)} entries", f"{len(known)}")
            for number, inner in enumerate(value):
                self._fill(known, number, inner, below(place, number), owner)
        elif owner is None and (_is_in_place(known) or _is_source(value)):
            raise _mismatch(place, _kind(value), _kind(known))
        else:
            self._entries.append((target, key, mapped(value, self._made, place)))

    def _plan_object(self, known: Any, value: dict[str, Any], place: str) -> None:
        core = stateful_core(known)
        if isinstance(core, Optimizer):
            self._note_parameters(core, value, place)
        state = core.state_dict()
        before = len(self._entries)
        self.plan(state, value, place, core)
        # The tensors of a module are filled in place; other values must be assigned by the module.
        if not isinstance(known, Module) or len(self._entries) > before:
            self._objects.append((known, state))

    def _note_parameters(self, optimizer: Optimizer, value: dict[str, Any], place: str) -> None:
        """Notes the shardings of the states; raises CheckpointError if the parameters differ."""
        here = [len(group["params"]) for group in optimizer.param_groups]
        there = [len(group["params"]) for group in value.get("param_groups", ())]
        if here != there:
            raise _mismatch(place, f"groups of {there} parameters", f"{here}")
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        for number, parameter in enumerate(parameters):
            self._likes[f"{place}/state/{number}"] = parameter

    def _made(self, name: str, value: Any) -> Any:
        """A leaf that `target` does not have yet."""
        if not _is_source(value):
            return value
        like = self._likes.get(name.rpartition("/")[0])
        if like is not None and tuple(like.shape) == value.shape:
            return value.resharded(like)
        return value.whole()

    def check_names(self) -> None:
        """Raises CheckpointError with the unmatched names, if there are any."""
        sides = (("not in the checkpoint", self.missing), ("only there", self.unexpected))
        listed = [f"{', '.join(names)} {side}" for side, names in sides if names]
        if listed:
            raise CheckpointError(
                f"the names differ: {'; '.join(listed)}",
                fix="wrap and build what is loaded as what was saved (a wrapper such as "
                "DistributedDataParallel adds `module.`), or pass strict=False to skip these",
            )

    def apply(self) -> None:
        """Applies all changes."""
        for known, value in self._copies:
            known.copy_(value)  # type: ignore[attr-defined]
        for target, key, value in self._entries:
            target[key] = value
        for target, key in self._removed:
            del target[key]
        for known, state in self._objects:
            known.load_state_dict(state)


def _is_source(value: Any) -> bool:
    return hasattr(value, "resharded")


def _is_in_place(known: Any) -> bool:
    """Whether a value is filled in place rather than replaced."""
    return isinstance(known, (Tensor, dict)) or is_stateful(known) or _has_tensors(known)


def _has_tensors(known: Any) -> bool:
    """Whether a list has tensors, or objects with a state, at any depth."""
    return isinstance(known, (list, tuple)) and any(
        isinstance(inner, Tensor) or is_stateful(inner) or _has_tensors(inner) for inner in known
    )


def _kind(value: Any) -> str:
    return "a tensor" if _is_source(value) else f"a {type(value).__name__}"


def _mismatch(place: str, there: str, here: str) -> CheckpointError:
    return CheckpointError(
        f"{place} has {there} in the checkpoint and {here} here",
        fix="build the model with the sizes of the one that was saved",
    )


def _checked(source: Source, known: Tensor, place: str) -> Source:
    if source.shape != tuple(known.shape):
        raise _mismatch(place, f"shape {list(source.shape)}", f"{list(known.shape)}")
    if not can_cast(source.dtype, known.dtype):
        raise _mismatch(place, f"values of {source.dtype.name}", f"{known.dtype.name}")
    return source
