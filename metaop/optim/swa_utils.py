"""Averages of weights over training: stochastic weight averaging and exponential averages."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from typing import Any

from metaop.errors import ArgumentError
from metaop.nn.module import Module
from metaop.nn.normalisation import _BatchNorm
from metaop.optim.lr_scheduler.base import LRScheduler, per_group
from metaop.optim.optimizer import Optimizer
from metaop.tensor.core import Tensor
from metaop.tensor.functions.creation import tensor
from metaop.tensor.grad_mode import no_grad

Average = Callable[[Tensor, Tensor, Any], Tensor]


def get_ema_avg_fn(decay: float = 0.999) -> Average:
    """The update rule of an exponential moving average."""
    if not 0.0 <= decay <= 1.0:
        raise ArgumentError(
            f"Invalid decay value {decay} provided. Please provide a value in [0,1]"
        )

    def average(averaged: Tensor, current: Tensor, count: Any) -> Tensor:
        return averaged * decay + current * (1 - decay)

    return average


def get_swa_avg_fn() -> Average:
    """The update rule of an equally weighted average."""

    def average(averaged: Tensor, current: Tensor, count: Any) -> Tensor:
        return averaged + (current - averaged) / (float(count) + 1)

    return average


MultiAverage = Callable[[Sequence[Tensor], Sequence[Tensor], Any], None]


def _for_all(rule: Average) -> MultiAverage:
    """Makes a rule for one tensor one that updates a list of averages in place."""

    @no_grad()
    def update(averages: Sequence[Tensor], values: Sequence[Tensor], count: Any) -> None:
        for average, value in zip(averages, values):
            average.copy_(rule(average.detach(), value.detach(), count))

    return update


def get_ema_multi_avg_fn(decay: float = 0.999) -> MultiAverage:
    """The update rule of an exponential moving average, for all parameters at once."""
    return _for_all(get_ema_avg_fn(decay))


def get_swa_multi_avg_fn() -> MultiAverage:
    """The update rule of an equally weighted average, for all parameters at once."""
    return _for_all(get_swa_avg_fn())


class AveragedModel(Module):
    """A copy of `model` whose parameters are averages over calls of `update_parameters`."""

    def __init__(
        self,
        model: Module,
        device: Any = None,
        avg_fn: Average | None = None,
        multi_avg_fn: MultiAverage | None = None,
        use_buffers: bool = False,
    ) -> None:
        super().__init__()
        if multi_avg_fn is not None and avg_fn is not None:
            raise ArgumentError("Only one of avg_fn and multi_avg_fn should be provided")
        self.module = deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        self.register_buffer("n_averaged", tensor(0, device=device))
        self.avg_fn = avg_fn
        self.multi_avg_fn = multi_avg_fn
        self.use_buffers = use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    def _averaged(self, model: Module) -> list[Tensor]:
        buffers = list(model.buffers()) if self.use_buffers else []
        return [*model.parameters(), *buffers]

    @no_grad()
    def update_parameters(self, model: Module) -> None:
        """Adds the current parameters of `model` to the averages."""
        count = self.n_averaged.item()
        own, other = self._averaged(self.module), self._averaged(model)
        if count == 0:
            for average, value in zip(own, other):
                average.copy_(value)
        elif self.multi_avg_fn is not None:
            self.multi_avg_fn(own, other, self.n_averaged)
        else:
            rule = self.avg_fn or get_swa_avg_fn()
            for average, value in zip(own, other):
                average.copy_(rule(average.detach(), value.detach(), self.n_averaged))
        if not self.use_buffers:
            for average, value in zip(self.module.buffers(), model.buffers()):
                average.copy_(value)
        self.n_averaged.add_(1)


@no_grad()
def update_bn(loader: Iterable[Any], model: Module, device: Any = None) -> None:
    """Recomputes the running statistics of batch normalisation from all batches of `loader`."""
    norms = [module for module in model.modules() if isinstance(module, _BatchNorm)]
    momenta = [norm.momentum for norm in norms]
    if not norms:
        return
    was_training = model.training
    model.train()
    for norm in norms:
        norm.momentum = None
        norm.reset_running_stats()
    for batch in loader:
        input = batch[0] if isinstance(batch, (list, tuple)) else batch
        model(input if device is None else input.to(device))
    for norm, momentum in zip(norms, momenta):
        norm.momentum = momentum
    model.train(was_training)


class SWALR(LRScheduler):
    """Moves the learning rates to `swa_lr` in `anneal_epochs` steps, and keeps them there."""

    def __init__(
        self,
        optimizer: Optimizer,
        swa_lr: float | list[float],
        anneal_epochs: int = 10,
        anneal_strategy: str = "cos",
        last_epoch: int = -1,
    ) -> None:
        if anneal_strategy not in ("cos", "linear"):
            raise ArgumentError(
                f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}"
            )
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise ArgumentError(
                f"anneal_epochs must be equal or greater than 0, got {anneal_epochs}"
            )
        for rate, group in zip(per_group("swa_lr", optimizer, swa_lr), optimizer.param_groups):
            group["swa_lr"] = rate
        self.anneal_epochs = anneal_epochs
        self._anneal_strategy = anneal_strategy
        super().__init__(optimizer, last_epoch)

    def _share(self, step: int) -> float:
        """The progress of the rates after `step` steps, from 0 to 1."""
        part = max(0.0, min(1.0, step / max(1, self.anneal_epochs)))
        return (1 - math.cos(math.pi * part)) / 2 if self._anneal_strategy == "cos" else part

    def get_lr(self) -> list[float]:
        # PyTorch counts the construction as the first step.
        step = self._step_count - 1
        if self.anneal_epochs == 0:
            step = max(1, step)
        before, now = self._share(max(0, step - 1)), self._share(step)
        rates = []
        for group in self.optimizer.param_groups:
            target, rate = group["swa_lr"], group["lr"]
            first = target if before == 1 else (rate - before * target) / (1 - before)
            rates.append(target * now + first * (1 - now))
        return rates
