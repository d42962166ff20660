"""The base of learning-rate schedules."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from metaop.errors import ArgumentError, ArgumentTypeError
from metaop.optim.optimizer import Group, Optimizer
from metaop.tensor.core import Tensor
from metaop.unified_graph.tracing import host_side, refuse

EPOCH_WARNING = (
    "The epoch parameter in `scheduler.step()` was not necessary and is being deprecated where "
    "possible. Please use `scheduler.step()` to step the scheduler."
)
_ORDER_WARNING = (
    "Detected call of `lr_scheduler.step()` before `optimizer.step()`. Call them in the opposite "
    "order: `optimizer.step()` before `lr_scheduler.step()`, or the first value of the learning "
    "rate schedule is skipped."
)


_as_host_step = host_side(lambda schedule: schedule.optimizer.param_groups)


class LRScheduler:
    """Sets the learning rates of an optimizer's groups at every `step()`.

    `last_epoch` counts the steps; a subclass defines `get_lr`.

    Raises ArgumentTypeError if `optimizer` is not an optimizer.

    >>> class Falling(metaop.optim.lr_scheduler.LRScheduler):
    ...     def get_lr(self):
    ...         return [rate / (1 + self.last_epoch) for rate in self.base_lrs]
    >>> optimizer = metaop.optim.SGD([nn.Parameter(metaop.ones(1))], lr=1.0)
    >>> schedule = Falling(optimizer)
    >>> rates = []
    >>> for epoch in range(4):
    ...     rates.append(round(optimizer.param_groups[0]["lr"], 4))
    ...     optimizer.step()
    ...     schedule.step()
    >>> rates
    [1.0, 0.5, 0.3333, 0.25]
    """

    _get_lr_called_within_step = False
    _is_initial = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "step" in cls.__dict__:
            cls.step = _as_host_step(cls.step)  # type: ignore[method-assign]

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        check_optimizer(optimizer)
        self.optimizer = optimizer
        for position, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", number_of(group["lr"]))
            elif "initial_lr" not in group:
                raise KeyError(
                    f"param 'initial_lr' is not specified in param_groups[{position}] when "
                    "resuming scheduler with last_epoch >= 0"
                )
        self.base_lrs = [group["initial_lr"] for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        self._initial_step()

    def _initial_step(self) -> None:
        self._step_count = 0
        self._is_initial = True
        try:
            self.step()
        finally:
            self._is_initial = False

    def state_dict(self) -> dict[str, Any]:
        """All attributes except the optimizer."""
        return {name: value for name, value in self.__dict__.items() if name != "optimizer"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores what `state_dict` returned."""
        self.__dict__.update(state_dict)

    def get_last_lr(self) -> list[float]:
        """The last learning rates set, one per group."""
        refuse("it reads the learning rates of a schedule")
        return self._last_lr

    def get_lr(self) -> list[float]:
        """The learning rates for `last_epoch`; called by `step` only."""
        raise NotImplementedError

    @_as_host_step
    def step(self, epoch: int | None = None) -> None:
        """Advances by one epoch (or to `epoch`) and sets the learning rates."""
        if self._step_count == 1 and not getattr(self.optimizer, "_opt_called", False):
            warnings.warn(_ORDER_WARNING, UserWarning, stacklevel=2)
        self._step_count += 1
        if epoch is not None:
            warnings.warn(EPOCH_WARNING, UserWarning, stacklevel=2)
        self._update_lr(epoch)

    def _update_lr(self, epoch: int | None = None) -> None:
        self._get_lr_called_within_step = True
        try:
            if epoch is None:
                self.last_epoch += 1
                values = self.get_lr()
            else:
                self.last_epoch = epoch
                values = self._get_closed_form_lr()
        finally:
            self._get_lr_called_within_step = False
        self._set_rates(values)

    def _get_closed_form_lr(self) -> list[float]:
        return self.get_lr()

    def _set_rates(self, values: list[float]) -> None:
        groups = self.optimizer.param_groups
        if len(values) != len(groups):
            raise ArgumentError(
                f"{type(self).__name__} has {len(values)} rates for {len(groups)} groups",
                fix="create the schedule after adding all groups",
            )
        for group, lr in zip(groups, values):
            set_lr(group, lr)
        self._last_lr = self._current_rates()

    def _current_rates(self) -> list[float]:
        """The current learning rates of the groups."""
        return [number_of(group["lr"]) for group in self.optimizer.param_groups]


class GroupSchedule(LRScheduler):
    """A schedule that treats every group alike.

    `following` computes the next rate from the current one; `closed`, if there is a closed form,
    computes it from the initial one.
    """

    def following(self, lr: float, base_lr: float) -> float:
        """The rate at `last_epoch`, from the previous rate `lr`."""
        raise NotImplementedError

    def get_lr(self) -> list[float]:
        if not self._get_lr_called_within_step:
            warnings.warn(
                "To get the last learning rate computed by the scheduler, please use "
                "`get_last_lr()`.",
                UserWarning,
                stacklevel=2,
            )
        rates = self._current_rates()
        # A group added after the schedule has only its current rate as base.
        bases = [*self.base_lrs, *rates[len(self.base_lrs) :]]
        return [self.following(lr, base) for lr, base in zip(rates, bases)]

    def closed(self, base_lr: float) -> float | None:
        """The rate at `last_epoch` in closed form; None if there is none."""
        return None

    def _get_closed_form_lr(self) -> list[float]:
        values = [self.closed(base) for base in self.base_lrs]
        return self.get_lr() if None in values else values  # type: ignore[return-value]


def number_of(lr: Any) -> float:
    """A learning rate as a number; optimizers also take 0-d tensors."""
    return lr.item() if isinstance(lr, Tensor) else lr


def set_lr(group: Group, lr: float) -> None:
    """Sets the learning rate of a group, in place if it is a tensor."""
    if isinstance(group["lr"], Tensor):
        group["lr"].fill_(lr)
    else:
        group["lr"] = lr


def check_optimizer(optimizer: Any) -> None:
    """Raises ArgumentTypeError unless it is an optimizer."""
    if not isinstance(optimizer, Optimizer):
        raise ArgumentTypeError(f"{type(optimizer).__name__} is not an Optimizer")


def per_group(name: str, optimizer: Optimizer, value: Any) -> list[Any]:
    """One value per group; a list or tuple must have one entry for each."""
    count = len(optimizer.param_groups)
    if not isinstance(value, (list, tuple)):
        return [value] * count
    if len(value) != count:
        raise ArgumentError(
            f"{name} must have the same length as optimizer.param_groups: {name} has "
            f"{len(value)} values, param_groups has {count}",
            fix="give one value per group, or a single one",
        )
    return list(value)


def is_instance_state(function: Callable[..., Any]) -> bool:
    """Whether a callable is an object whose own state must be saved."""
    import types

    return not isinstance(function, types.FunctionType)
