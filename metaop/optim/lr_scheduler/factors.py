"""Schedules that multiply the learning rate, or follow a curve."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from metaop.errors import ArgumentError, ArgumentTypeError
from metaop.optim.lr_scheduler.base import GroupSchedule, is_instance_state
from metaop.optim.optimizer import Optimizer

Factor = Callable[[int], float]


class _Functions(GroupSchedule):
    """The base class of schedules with one function of the epoch per group."""

    def __init__(
        self, optimizer: Optimizer, lr_lambda: Factor | list[Factor], last_epoch: int = -1
    ) -> None:
        count = len(optimizer.param_groups)
        functions = lr_lambda if isinstance(lr_lambda, (list, tuple)) else [lr_lambda] * count
        if len(functions) != count:
            raise ArgumentError(
                f"Expected {count} lr_lambdas, but got {len(functions)}",
                fix="give one function per group",
            )
        for function in functions:
            if not callable(function):
                raise ArgumentTypeError(
                    f"lr_lambda should be a function, but got {type(function).__name__}"
                )
        self.lr_lambdas = list(functions)
        super().__init__(optimizer, last_epoch)

    def state_dict(self) -> dict[str, Any]:
        """All attributes except the optimizer; of the functions only callable objects' state."""
        state = super().state_dict()
        state["lr_lambdas"] = [
            function.__dict__.copy() if is_instance_state(function) else None
            for function in self.lr_lambdas
        ]
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        functions = state_dict["lr_lambdas"]
        self.__dict__.update({k: v for k, v in state_dict.items() if k != "lr_lambdas"})
        for function, state in zip(self.lr_lambdas, functions):
            if state is not None:
                function.__dict__.update(state)


class LambdaLR(_Functions):
    """The initial rate times `lr_lambda(epoch)`.

    Epochs are calls of `step()`. Raises ArgumentTypeError if `optimizer` is not an optimizer.

    >>> optimizer = metaop.optim.SGD([nn.Parameter(metaop.ones(1))], lr=1.0)
    >>> schedule = metaop.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 1 / (1 + epoch))
    >>> rates = []
    >>> for epoch in range(3):
    ...     rates.append(round(schedule.get_last_lr()[0], 4))
    ...     optimizer.step()
    ...     schedule.step()
    >>> rates
    [1.0, 0.5, 0.3333]
    """

    def get_lr(self) -> list[float]:
        return [
            base * function(self.last_epoch)
            for function, base in zip(self.lr_lambdas, self.base_lrs)
        ]


class MultiplicativeLR(_Functions):
    """The current rate times `lr_lambda(epoch)`.

    Epochs are calls of `step()`. Raises ArgumentTypeError if `optimizer` is not an optimizer.

    >>> optimizer = metaop.optim.SGD([nn.Parameter(metaop.ones(1))], lr=1.0)
    >>> schedule = metaop.optim.lr_scheduler.MultiplicativeLR(optimizer, lambda epoch: 0.5)
    >>> rates = []
    >>> for epoch in range(3):
    ...     rates.append(round(schedule.get_last_lr()[0], 4))
    ...     optimizer.step()
    ...     schedule.step()
    >>> rates
    [1.0, 0.5, 0.25]
    """

    def get_lr(self) -> list[float]:
        rates = self._current_rates()
        if self._is_initial:
            return rates
        return [rate * function(self.last_epoch) for function, rate in zip(self.lr_lambdas, rates)]


class StepLR(GroupSchedule):
    """Multiplies the rate by `gamma` every `step_size` epochs.

    Epochs are calls of `step()`. Raises ArgumentTypeError if `optimizer` is not an optimizer.

    >>> optimizer = metaop.optim.SGD([nn.Parameter(metaop.ones(1))], lr=1.0)
    >>> schedule = metaop.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)
    >>> rates = []
    >>> for epoch in range(5):
    ...     rates.append(round(schedule.get_last_lr()[0], 4))
    ...     optimizer.step()
    ...     schedule.step()
    >>> rates
    [1.0, 1.0, 0.5, 0.5, 0.25]
    """

    def __init__(
        self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        self.step_size = step_size
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def following(self, lr: float, base_lr: float) -> float:
        changes = self.last_epoch != 0 and self.last_epoch % self.step_size == 0
        return lr * self.gamma if changes else lr

    def closed(self, base_lr: float) -> float:
        return base_lr * self.gamma ** (self.last_epoch // self.step_size)


class MultiStepLR(GroupSchedule):
    """Multiplies the rate by `gamma` at each milestone.

    Epochs are calls of `step()`. Raises ArgumentTypeError if `optimizer` is not an optimizer.

    >>> optimizer = metaop.optim.SGD([nn.Parameter(metaop.ones(1))], lr=1.0)
    >>> schedule = metaop.optim.lr_scheduler.MultiStepLR(optimizer, [1, 3], gamma=0.5)
    >>> rates = []
    >>> for epoch in range(4):
    ...     rates.append(round(schedule.get_last_lr()[0], 4))
    ...     optimizer.step()
    ...     schedule.step()
    >>> rates
    [1.0, 0.5, 0.5, 0.25]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        milestones: Iterable[int],
        gamma: float = 0.1,
        last_epoch: int = -1,
    ) -> None:
        self.milestones = Counter(milestones)
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def following(self, lr: float, base_lr: float) -> float:
        if self.last_epoch not in self.milestones:
            return lr
        return lr * self.gamma ** self.milestones[self.last_epoch]

    def closed(self, base_lr: float) -> float:
        passed = bisect_right(sorted(self.milestones.elements()), self.last_epoch)
        return base_lr * self.gamma**passed


class ConstantLR(GroupSchedule):
    """Multiplies the rate by `factor` until epoch `total_iters`, then restores it.

    Epochs are calls of `step()`. Raises ArgumentTypeError if `optimizer` is not an optimizer.

    >>> optimizer = metaop.optim.SGD([nn.Parameter(metaop.ones(1))], lr=1.0)
    >>> schedule = metaop.optim.lr_scheduler.ConstantLR(optimizer, 0.5, total_iters=2)
    >>> rates = []
    >>> for epoch in range(4):
    ...     rates.append(round(schedule.get_last_lr()[0], 4))
    ...     optimizer.step()
    ...     schedule.step()
    >>> rates
    [0.5, 0.5, 1.0, 1.0]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        factor: float = 1.0 / 3,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        if not 0 <= factor <= 1:
            raise ArgumentError(
                "Constant multiplicative factor expected to be between 0 and 1.",
                fix=f"change factor={factor}",
            )
        self.factor = factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def following(self, lr: float, base_lr: float) -> float:
        if self.last_epoch == 0:
            return lr * self.factor
        return lr * (1.0 / self.factor) if self.last_epoch == self.total_iters else lr

    def closed(self, base_lr: float) -> float:
        return base_lr * (1 if self.last_epoch >= self.total_iters else self.factor)


class LinearLR(GroupSchedule):
    """Multiplies the rate by a factor from `start_factor` to `end_factor` in `total_iters` epochs.

    Epochs are calls of `step()`. Raises ArgumentTypeError if `optimizer` is not an optimizer.

    >>> optimizer = metaop.optim.SGD([nn.Parameter(metaop.ones(1))], lr=1.0)
    >>> schedule = metaop.optim.lr_scheduler.LinearLR(optimizer, 0.5, total_iters=2)
    >>> rates = []
    >>> for epoch in range(4):
    ...     rates.append(round(schedule.get_last_lr()[0], 4))
    ...     optimizer.step()
    ...     schedule.step()
    >>> rates
    [0.5, 0.75, 1.0, 1.0]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1.0 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        if not 0 < start_factor <= 1:
            raise ArgumentError(
                "Starting multiplicative factor expected to be greater than 0 and less or equal "
                "to 1.",
                fix=f"change start_factor={start_factor}",
            )
        if not 0 <= end_factor <= 1:
            raise ArgumentError(
                "Ending multiplicative factor expected to be between 0 and 1.",
                fix=f"change end_factor={end_factor}",
            )
        self.start_factor = start_factor
        self.end_factor = end_factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def following(self, lr: float, base_lr: float) -> float:
        if self.last_epoch == 0:
            return lr * self.start_factor
        if self._is_initial or self.last_epoch > self.total_iters:
            return lr
        rise = self.end_factor - self.start_factor
        before = self.total_iters * self.start_factor + (self.last_epoch - 1) * rise
        return lr * (1.0 + rise / before)

    def closed(self, base_lr: float) -> float:
        part = min(self.total_iters, self.last_epoch) / self.total_iters
        return base_lr * (self.start_factor + (self.end_factor - self.start_factor) * part)


class ExponentialLR(GroupSchedule):
    """Multiplies the rate by `gamma` every epoch.

    Epochs are calls of `step()`. Raises ArgumentTypeError if `optimizer` is not an optimizer.

    >>> optimizer = metaop.optim.SGD([nn.Parameter(metaop.ones(1))], lr=1.0)
    >>> schedule = metaop.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    >>> rates = []
    >>> for epoch in range(3):
    ...     rates.append(round(schedule.get_last_lr()[0], 4))
    ...     optimizer.step()
    ...     schedule.step()
    >>> rates
    [1.0, 0.5, 0.25]
    """

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def following(self, lr: float, base_lr: float) -> float:
        return lr if self._is_initial else lr * self.gamma

    def closed(self, base_lr: float) -> float:
        return base_lr * self.gamma**self.last_epoch


class PolynomialLR(GroupSchedule):
    """Decays the rate to 0 in `total_iters` epochs, as a power of the remaining fraction.

    Epochs are calls of `step()`. Raises ArgumentTypeError if `optimizer` is not an optimizer.

    >>> optimizer = metaop.optim.SGD([nn.Parameter(metaop.ones(1))], lr=1.0)
    >>> schedule = metaop.optim.lr_scheduler.PolynomialLR(optimizer, total_iters=2)
    >>> rates = []
    >>> for epoch in range(3):
    ...     rates.append(round(schedule.get_last_lr()[0], 4))
    ...     optimizer.step()
    ...     schedule.step()
    >>> rates
    [1.0, 0.5, 0.0]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        total_iters: int = 5,
        power: float = 1.0,
        last_epoch: int = -1,
    ) -> None:
        self.total_iters = total_iters
        self.power = power
        super().__init__(optimizer, last_epoch)

    def following(self, lr: float, base_lr: float) -> float:
        if self._is_initial or self.last_epoch > self.total_iters:
            return lr
        now = 1.0 - self.last_epoch / self.total_iters
        before = 1.0 - (self.last_epoch - 1) / self.total_iters
        return lr * (now / before) ** self.power

    def closed(self, base_lr: float) -> float:
        part = min(self.total_iters, self.last_epoch) / self.total_iters
        return base_lr * (1.0 - part) ** self.power


class CosineAnnealingLR(GroupSchedule):
    """Follows a cosine from the initial rate to `eta_min` in `T_max` epochs, and back.

    Epochs are calls of `step()`. Raises ArgumentTypeError if `optimizer` is not an optimizer.

    >>> optimizer = metaop.optim.SGD([nn.Parameter(metaop.ones(1))], lr=1.0)
    >>> schedule = metaop.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=2)
    >>> rates = []
    >>> for epoch in range(3):
    ...     rates.append(round(schedule.get_last_lr()[0], 4))
    ...     optimizer.step()
    ...     schedule.step()
    >>> rates
    [1.0, 0.5, 0.0]
    """

    def __init__(
        self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1
    ) -> None:
        self.T_max = T_max
        self.eta_min = eta_min
        super().__init__(optimizer, last_epoch)

    def following(self, lr: float, base_lr: float) -> float:
        if self._is_initial:
            return lr
        if self._step_count == 1 and self.last_epoch > 0:
            return self.closed(base_lr)
        if (self.last_epoch - 1 - self.T_max) % (2 * self.T_max) == 0:
            # At the minimum the quotient below would divide by zero.
            return lr + (base_lr - self.eta_min) * (1 - math.cos(math.pi / self.T_max)) / 2
        now, before = (
            1 + math.cos(math.pi * epoch / self.T_max)
            for epoch in (self.last_epoch, self.last_epoch - 1)
        )
        return now / before * (lr - self.eta_min) + self.eta_min

    def closed(self, base_lr: float) -> float:
        height = (1 + math.cos(math.pi * self.last_epoch / self.T_max)) / 2
        return self.eta_min + (base_lr - self.eta_min) * height
