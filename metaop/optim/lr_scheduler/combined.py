"""Combinations of schedules, and ReduceLROnPlateau."""

from __future__ import annotations

import math
import warnings
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, SupportsFloat

from metaop.errors import ArgumentError, ArgumentTypeError
from metaop.optim.lr_scheduler.base import (
    EPOCH_WARNING,
    LRScheduler,
    check_optimizer,
    number_of,
    per_group,
    set_lr,
)
from metaop.optim.optimizer import Optimizer


class ReduceLROnPlateau(LRScheduler):
    """Multiplies the rate by `factor` after more than `patience` epochs without improvement.

    Call `step(value)`; the `cooldown` epochs after a reduction are not counted.

    Raises ArgumentError for a factor of 1 or more.

    >>> optimizer = metaop.optim.SGD([nn.Parameter(metaop.ones(1))], lr=1.0)
    >>> schedule = metaop.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=1)
    >>> rates = []
    >>> for epoch in range(6):
    ...     rates.append(round(optimizer.param_groups[0]["lr"], 4))
    ...     optimizer.step()
    ...     schedule.step(1.0)
    >>> rates
    [1.0, 1.0, 1.0, 0.1, 0.1, 0.01]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: float | list[float] = 0,
        eps: float = 1e-8,
    ) -> None:
        check_optimizer(optimizer)
        if factor >= 1.0:
            raise ArgumentError(f"Factor should be < 1.0, not {factor}")
        if mode not in ("min", "max"):
            raise ArgumentError(f"mode {mode} is unknown!", fix="use min or max")
        if threshold_mode not in ("rel", "abs"):
            raise ArgumentError(
                f"threshold mode {threshold_mode} is unknown!", fix="use rel or abs"
            )
        self.factor = factor
        self.optimizer = optimizer
        self.default_min_lr = None if isinstance(min_lr, (list, tuple)) else min_lr
        self.min_lrs = per_group("min_lr", optimizer, min_lr)
        self.patience = patience
        self.cooldown = cooldown
        self.eps = eps
        self.last_epoch = 0
        self._last_lr = self._current_rates()
        self.mode = mode
        self.threshold = threshold
        self.threshold_mode = threshold_mode
        self.mode_worse = math.inf if mode == "min" else -math.inf
        self._reset()

    def _reset(self) -> None:
        self.best = self.mode_worse
        self.cooldown_counter = 0
        self.num_bad_epochs = 0

    def step(self, metrics: SupportsFloat, epoch: int | None = None) -> None:  # type: ignore
        """Records a measured value, and reduces the rates if it is time."""
        current = float(metrics)
        if epoch is not None:
            warnings.warn(EPOCH_WARNING, UserWarning, stacklevel=2)
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        if self._is_better(current, self.best):
            self.best = current
            self.num_bad_epochs = 0
        else:
            self.num_bad_epochs += 1
        if self.in_cooldown:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            self._reduce_lr()
            self.cooldown_counter = self.cooldown
            self.num_bad_epochs = 0
        self._last_lr = self._current_rates()

    def _reduce_lr(self) -> None:
        groups = self.optimizer.param_groups
        if len(groups) != len(self.min_lrs):
            if self.default_min_lr is None:
                raise ArgumentError(
                    f"The number of param groups ({len(groups)}) differs from when "
                    f"ReduceLROnPlateau was initialized ({len(self.min_lrs)})",
                    fix="change min_lrs to match",
                )
            self.min_lrs = [self.default_min_lr] * len(groups)
        for group, smallest in zip(groups, self.min_lrs):
            old = float(number_of(group["lr"]))
            new = max(old * self.factor, smallest)
            if old - new > self.eps:
                set_lr(group, new)

    @property
    def in_cooldown(self) -> bool:
        """Whether the last reduction is too recent for another one."""
        return self.cooldown_counter > 0

    def _is_better(self, value: float, best: float) -> bool:
        sign = -1 if self.mode == "min" else 1
        if self.threshold_mode == "rel":
            limit = best * (1.0 + sign * self.threshold)
        else:
            limit = best + sign * self.threshold
        return value * sign > limit * sign


class _Several(LRScheduler):
    """The base class of schedules that combine schedules."""

    _schedulers: list[LRScheduler]

    def _check(self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None) -> Optimizer:
        name = type(self).__name__
        if not schedulers:
            raise ArgumentError(f"{name} expects at least one scheduler, but got no scheduler.")
        for position, scheduler in enumerate(schedulers):
            if not hasattr(scheduler, "optimizer"):
                raise ArgumentTypeError(
                    f"{name} at index {position} should have `optimizer` as its attribute."
                )
            if isinstance(scheduler, ReduceLROnPlateau):
                raise ArgumentError(
                    f"{name} does not support `ReduceLROnPlateau` (at index {position}), which "
                    "needs a value at every step",
                    fix="step it separately",
                )
            optimizer = scheduler.optimizer if optimizer is None else optimizer
            if scheduler.optimizer is not optimizer:
                raise ArgumentError(
                    f"{name} expects all schedulers to belong to the same optimizer, but the one "
                    f"at index {position} has another",
                    fix="build all of them on one optimizer",
                )
        assert optimizer is not None
        return optimizer

    def state_dict(self) -> dict[str, Any]:
        state = super().state_dict()
        state["_schedulers"] = [scheduler.state_dict() for scheduler in self._schedulers]
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.__dict__.update({k: v for k, v in state_dict.items() if k != "_schedulers"})
        for scheduler, state in zip(self._schedulers, state_dict["_schedulers"]):
            scheduler.load_state_dict(state)


class SequentialLR(_Several):
    """Runs schedules one after another; each milestone is the epoch at which the next one starts.

    Raises ArgumentError unless there is one fewer milestone than schedules.

    >>> optimizer = metaop.optim.SGD([nn.Parameter(metaop.ones(1))], lr=1.0)
    >>> schedules = metaop.optim.lr_scheduler
    >>> parts = [schedules.ConstantLR(optimizer, 0.5), schedules.ExponentialLR(optimizer, 0.1)]
    >>> schedule = schedules.SequentialLR(optimizer, parts, milestones=[2])
    >>> rates = []
    >>> for epoch in range(5):
    ...     rates.append(round(optimizer.param_groups[0]["lr"], 4))
    ...     optimizer.step()
    ...     schedule.step()
    >>> rates
    [0.5, 0.5, 1.0, 0.1, 0.01]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        schedulers: list[LRScheduler],
        milestones: list[int],
        last_epoch: int = -1,
    ) -> None:
        self._check(schedulers, optimizer)
        if len(milestones) != len(schedulers) - 1:
            raise ArgumentError(
                "Sequential Schedulers expects number of schedulers provided to be one more than "
                f"the number of milestone points, but got {len(schedulers)} schedulers and "
                f"{len(milestones)} milestones"
            )
        self._schedulers = schedulers
        self._milestones = milestones
        self.last_epoch = last_epoch + 1
        self.optimizer = optimizer
        # Each schedule has taken its first step; only that of the first schedule counts.
        for group in optimizer.param_groups:
            set_lr(group, group["initial_lr"])
        self.recursive_undo()
        first = schedulers[bisect_right(milestones, 0)]
        first._initial_step()
        self._last_lr = first._last_lr

    def recursive_undo(self, sched: Any = None) -> None:
        """Undoes the first step of all nested schedules."""
        schedule = self if sched is None else sched
        if hasattr(schedule, "_schedulers"):
            for inner in schedule._schedulers:
                self.recursive_undo(inner)
        elif hasattr(schedule, "last_epoch"):
            schedule.last_epoch -= 1

    def step(self) -> None:  # type: ignore[override]
        """Advances the current schedule by one."""
        self.last_epoch += 1
        index = bisect_right(self._milestones, self.last_epoch)
        scheduler = self._schedulers[index]
        if index > 0 and self._milestones[index - 1] == self.last_epoch:
            scheduler._update_lr(0)
        else:
            scheduler.step()
        self._last_lr = scheduler._last_lr


class ChainedScheduler(_Several):
    """Applies several schedules at every step.

    Raises ArgumentError for no schedules, or if their optimizers differ.

    >>> optimizer = metaop.optim.SGD([nn.Parameter(metaop.ones(1))], lr=1.0)
    >>> schedules = metaop.optim.lr_scheduler
    >>> parts = [schedules.StepLR(optimizer, 2), schedules.ExponentialLR(optimizer, 0.5)]
    >>> schedule = schedules.ChainedScheduler(parts)
    >>> rates = []
    >>> for epoch in range(5):
    ...     rates.append(round(optimizer.param_groups[0]["lr"], 4))
    ...     optimizer.step()
    ...     schedule.step()
    >>> rates
    [1.0, 0.5, 0.025, 0.0125, 0.0006]
    """

    def __init__(
        self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None
    ) -> None:
        self.optimizer = self._check(schedulers, optimizer)
        self._schedulers = list(schedulers)
        self._last_lr = self._current_rates()

    def step(self) -> None:  # type: ignore[override]
        """Steps all schedules in order."""
        for scheduler in self._schedulers:
            scheduler.step()
        self._last_lr = self._current_rates()
