"""Schedules that go up and down: cycles and warm restarts."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from metaop.errors import ArgumentError
from metaop.optim.lr_scheduler.base import (
    LRScheduler,
    check_optimizer,
    is_instance_state,
    per_group,
    set_lr,
)
from metaop.optim.optimizer import Group, Optimizer


class _WithMomentum(LRScheduler):
    """A schedule that moves momentum (or the first beta) inversely to the learning rate."""

    cycle_momentum: bool
    use_beta1: bool

    def _begin_momentum(
        self, optimizer: Optimizer, base: Any, maximum: Any, last_epoch: int
    ) -> tuple[list[float], list[float]]:
        if "momentum" not in optimizer.defaults and "betas" not in optimizer.defaults:
            raise ArgumentError(
                "optimizer must support momentum or beta1 with `cycle_momentum` option enabled",
                fix="pass cycle_momentum=False",
            )
        self.use_beta1 = "betas" in optimizer.defaults
        bases = per_group("base_momentum", optimizer, base)
        maxima = per_group("max_momentum", optimizer, maximum)
        if last_epoch == -1:
            for low, high, group in zip(bases, maxima, optimizer.param_groups):
                self._set_momentum(group, high)
                group["max_momentum"] = high
                group["base_momentum"] = low
        return bases, maxima

    def _set_momentum(self, group: Group, momentum: float) -> None:
        if self.use_beta1:
            group["betas"] = (momentum, *group["betas"][1:])
        else:
            group["momentum"] = momentum


class CyclicLR(_WithMomentum):
    """Cycles linearly between `base_lr` and `max_lr` (Smith 2017).

    `mode` "triangular2" halves the amplitude every cycle, "exp_range" multiplies it by `gamma`
    every step; `scale_fn` overrides both.

    `step_size_up` and `step_size_down` count steps. Raises ArgumentError for another `mode`.

    >>> optimizer = metaop.optim.SGD([nn.Parameter(metaop.ones(1))], lr=1.0)
    >>> schedule = metaop.optim.lr_scheduler.CyclicLR(
    ...     optimizer, 0.1, 0.5, step_size_up=2, cycle_momentum=False
    ... )
    >>> rates = []
    >>> for epoch in range(6):
    ...     rates.append(round(optimizer.param_groups[0]["lr"], 4))
    ...     optimizer.step()
    ...     schedule.step()
    >>> rates
    [0.1, 0.3, 0.5, 0.3, 0.1, 0.3]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: float | list[float],
        max_lr: float | list[float],
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: str = "triangular",
        gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None,
        scale_mode: str = "cycle",
        cycle_momentum: bool = True,
        base_momentum: float | list[float] = 0.8,
        max_momentum: float | list[float] = 0.9,
        last_epoch: int = -1,
    ) -> None:
        check_optimizer(optimizer)
        base_lrs = per_group("base_lr", optimizer, base_lr)
        if last_epoch == -1:
            for lr, group in zip(base_lrs, optimizer.param_groups):
                set_lr(group, lr)
        self.max_lrs = per_group("max_lr", optimizer, max_lr)
        up = float(step_size_up)
        self.total_size = up + (up if step_size_down is None else float(step_size_down))
        self.step_ratio = up / self.total_size
        if mode not in ("triangular", "triangular2", "exp_range") and scale_fn is None:
            raise ArgumentError(
                f"mode {mode!r} is invalid and scale_fn is None",
                fix="use triangular, triangular2 or exp_range",
            )
        self.mode = mode
        self.gamma = gamma
        self._scale_fn_custom = scale_fn
        if scale_fn is None:
            scale_mode = "iterations" if mode == "exp_range" else "cycle"
        self.scale_mode = scale_mode
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            momenta = self._begin_momentum(optimizer, base_momentum, max_momentum, last_epoch)
            self.base_momentums, self.max_momentums = momenta
        super().__init__(optimizer, last_epoch)
        self.base_lrs = base_lrs

    def scale_fn(self, x: float) -> float:
        """The amplitude of cycle (or step) `x`, from 0 to 1."""
        if self._scale_fn_custom is not None:
            return self._scale_fn_custom(x)
        if self.mode == "triangular2":
            return 1 / 2.0 ** (x - 1)
        return self.gamma**x if self.mode == "exp_range" else 1.0

    def get_lr(self) -> list[float]:
        cycle = math.floor(1 + self.last_epoch / self.total_size)
        x = 1.0 + self.last_epoch / self.total_size - cycle
        rising = x <= self.step_ratio
        height = x / self.step_ratio if rising else (x - 1) / (self.step_ratio - 1)
        height *= self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)
        if self.cycle_momentum:
            limits = zip(self.optimizer.param_groups, self.base_momentums, self.max_momentums)
            for group, low, high in limits:
                self._set_momentum(group, high - (high - low) * height)
        return [low + (high - low) * height for low, high in zip(self.base_lrs, self.max_lrs)]

    def state_dict(self) -> dict[str, Any]:
        state = super().state_dict()
        function = state["_scale_fn_custom"]
        keeps = function is not None and is_instance_state(function)
        state["_scale_fn_custom"] = function.__dict__.copy() if keeps else None
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        state = dict(state_dict)
        function = state.pop("_scale_fn_custom")
        super().load_state_dict(state)
        if function is not None and self._scale_fn_custom is not None:
            self._scale_fn_custom.__dict__.update(function)


class OneCycleLR(_WithMomentum):
    """Raises the rate to `max_lr` once, then lowers it to almost 0 (Smith & Topin 2019).

    The cycle takes `total_steps`, or `epochs · steps_per_epoch`; more steps raise ArgumentError.

    >>> optimizer = metaop.optim.SGD([nn.Parameter(metaop.ones(1))], lr=1.0)
    >>> schedule = metaop.optim.lr_scheduler.OneCycleLR(
    ...     optimizer, 1.0, total_steps=6, cycle_momentum=False
    ... )
    >>> rates = []
    >>> for epoch in range(6):
    ...     rates.append(round(optimizer.param_groups[0]["lr"], 4))
    ...     optimizer.step()
    ...     schedule.step()
    >>> rates
    [0.04, 0.9944, 0.8117, 0.4626, 0.1335, 0.0]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float | list[float],
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: float | list[float] = 0.85,
        max_momentum: float | list[float] = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:
        check_optimizer(optimizer)
        self.total_steps = _total_steps(total_steps, epochs, steps_per_epoch)
        if not isinstance(pct_start, float) or not 0 <= pct_start <= 1:
            raise ArgumentError(f"Expected float between 0 and 1 pct_start, but got {pct_start}")
        if anneal_strategy not in ("cos", "linear"):
            raise ArgumentError(
                f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}"
            )
        self._schedule_phases = self._phases(pct_start, three_phase)
        self._anneal_func_type = anneal_strategy
        maxima = per_group("max_lr", optimizer, max_lr)
        if last_epoch == -1:
            for maximum, group in zip(maxima, optimizer.param_groups):
                group["initial_lr"] = maximum / div_factor
                group["max_lr"] = maximum
                group["min_lr"] = group["initial_lr"] / final_div_factor
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self._begin_momentum(optimizer, base_momentum, max_momentum, last_epoch)
        super().__init__(optimizer, last_epoch)

    def _phases(self, pct_start: float, three_phase: bool) -> list[dict[str, Any]]:
        end = self.total_steps - 1
        peak = float(pct_start * self.total_steps) - 1
        corners = [(peak, "max_lr", "base_momentum")]
        if three_phase:
            back = float(2 * pct_start * self.total_steps) - 2
            corners.append((back, "initial_lr", "max_momentum"))
        corners.append((end, "min_lr", "max_momentum"))
        phases = []
        lr, momentum = "initial_lr", "max_momentum"
        for end_step, end_lr, end_momentum in corners:
            phases.append(
                {
                    "end_step": end_step,
                    "start_lr": lr,
                    "end_lr": end_lr,
                    "start_momentum": momentum,
                    "end_momentum": end_momentum,
                }
            )
            lr, momentum = end_lr, end_momentum
        return phases

    def _anneal(self, start: float, end: float, part: float) -> float:
        if self._anneal_func_type == "cos":
            return end + (start - end) / 2.0 * (math.cos(math.pi * part) + 1)
        return (end - start) * part + start

    def get_lr(self) -> list[float]:
        step = self.last_epoch
        if step > self.total_steps:
            raise ArgumentError(
                f"Tried to step {step} times. The specified number of total steps is "
                f"{self.total_steps}",
                fix="pass a larger total_steps, or step once per batch only",
            )
        start = 0.0
        for phase in self._schedule_phases:
            if step <= phase["end_step"] or phase is self._schedule_phases[-1]:
                break
            start = phase["end_step"]
        part = (step - start) / (phase["end_step"] - start)
        groups = self.optimizer.param_groups
        if self.cycle_momentum:
            for group in groups:
                ends = group[phase["start_momentum"]], group[phase["end_momentum"]]
                self._set_momentum(group, self._anneal(*ends, part))
        return [
            self._anneal(group[phase["start_lr"]], group[phase["end_lr"]], part) for group in groups
        ]


def _total_steps(total: int | None, epochs: int | None, per_epoch: int | None) -> int:
    if total is None and (epochs is None or per_epoch is None):
        raise ArgumentError("You must define either total_steps OR (epochs AND steps_per_epoch)")
    named = {"total_steps": total}
    if total is None:
        named = {"epochs": epochs, "steps_per_epoch": per_epoch}
    product = 1
    for name, value in named.items():
        if not isinstance(value, int) or value <= 0:
            raise ArgumentError(f"Expected positive integer {name}, but got {value}")
        product *= value
    return product


class CosineAnnealingWarmRestarts(LRScheduler):
    """Cosine decay to `eta_min` with restarts, each period `T_mult` times the last (SGDR).

    Epochs are calls of `step()`. Raises ArgumentTypeError if `optimizer` is not an optimizer.

    >>> optimizer = metaop.optim.SGD([nn.Parameter(metaop.ones(1))], lr=1.0)
    >>> schedule = metaop.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=2)
    >>> rates = []
    >>> for epoch in range(4):
    ...     rates.append(round(schedule.get_last_lr()[0], 4))
    ...     optimizer.step()
    ...     schedule.step()
    >>> rates
    [1.0, 0.5, 1.0, 0.5]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        T_0: int,
        T_mult: int = 1,
        eta_min: float = 0.0,
        last_epoch: int = -1,
    ) -> None:
        if not isinstance(T_0, int) or T_0 <= 0:
            raise ArgumentError(f"Expected positive integer T_0, but got {T_0}")
        if not isinstance(T_mult, int) or T_mult < 1:
            raise ArgumentError(f"Expected integer T_mult >= 1, but got {T_mult}")
        if not isinstance(eta_min, (int, float)):
            raise ArgumentError(
                f"Expected float or int eta_min, but got {eta_min} of type {type(eta_min)}"
            )
        self.T_0 = T_0
        self.T_i = T_0
        self.T_mult = T_mult
        self.eta_min = eta_min
        self.T_cur: float = last_epoch
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        height = (1 + math.cos(math.pi * self.T_cur / self.T_i)) / 2
        return [self.eta_min + (base - self.eta_min) * height for base in self.base_lrs]

    def step(self, epoch: float | None = None) -> None:
        """Advances by one, or to any (possibly fractional) epoch."""
        if epoch is None and self.last_epoch < 0:
            epoch = 0
        if epoch is None:
            epoch = self.last_epoch + 1
            self.T_cur += 1
            if self.T_cur >= self.T_i:
                self.T_cur %= self.T_i
                self.T_i *= self.T_mult
        else:
            self._jump(epoch)
        self.last_epoch = math.floor(epoch)
        self._set_rates(self.get_lr())

    def _jump(self, epoch: float) -> None:
        if epoch < 0:
            raise ArgumentError(f"Expected non-negative epoch, but got {epoch}")
        self.T_i = self.T_0
        self.T_cur = epoch
        if epoch < self.T_0:
            return
        if self.T_mult == 1:
            self.T_cur = epoch % self.T_0
        else:
            done = int(math.log(epoch / self.T_0 * (self.T_mult - 1) + 1, self.T_mult))
            self.T_cur = epoch - self.T_0 * (self.T_mult**done - 1) / (self.T_mult - 1)
            self.T_i = self.T_0 * self.T_mult**done
