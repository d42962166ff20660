"""Scaling of losses, so that float16 gradients do not vanish."""

from __future__ import annotations

from typing import Any

from metaop.errors import ArgumentError
from metaop.tensor.core import Tensor
from metaop.tensor.functions.creation import tensor
from metaop.tensor.grad_mode import no_grad


class GradScaler:
    """Scales losses up and gradients down, and skips steps whose gradients overflow.

    `growth_interval` counts steps without overflow, after which the scale grows. Raises
    ArgumentError for factors on the wrong side of 1, and for a second `unscale_` before `update`.

    >>> weight = nn.Parameter(metaop.ones(1))
    >>> optimizer = metaop.optim.SGD([weight], lr=0.5)
    >>> scaler = metaop.amp.GradScaler("cpu", init_scale=1024.0)
    >>> scaler.scale(weight.sum()).backward()
    >>> scaler.unscale_(optimizer)  # only to look at the gradients, for example to clip them
    >>> weight.grad.item()
    1.0
    >>> result = scaler.step(optimizer)
    >>> scaler.update()
    >>> weight.item()
    0.5
    """

    def __init__(
        self,
        device: str = "cuda",
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        if enabled and not (growth_factor > 1.0 and backoff_factor < 1.0):
            raise ArgumentError(
                f"growth_factor {growth_factor} has to be above 1, backoff_factor "
                f"{backoff_factor} below"
            )
        self._device = device
        self._enabled = enabled
        self._scale = float(init_scale)
        self._growth_factor = growth_factor
        self._backoff_factor = backoff_factor
        self._growth_interval = growth_interval
        self._growth_tracker = 0
        # By id of the optimizer: whether its unscaled gradients were infinite or NaN.
        self._overflow: dict[int, bool] = {}

    def is_enabled(self) -> bool:
        """Whether anything is scaled."""
        return self._enabled

    def get_scale(self) -> float:
        """The factor of losses."""
        return self._scale if self._enabled else 1.0

    def scale(self, outputs: Any) -> Any:
        """A loss, or a sequence of them, times the scale."""
        if not self._enabled:
            return outputs
        if isinstance(outputs, Tensor):
            return outputs * self._scale
        return type(outputs)(self.scale(output) for output in outputs)

    def unscale_(self, optimizer: Any) -> None:
        """Divides the gradients of an optimizer's parameters by the scale."""
        if not self._enabled:
            return
        if id(optimizer) in self._overflow:
            raise ArgumentError(
                "unscale_() has already been called on this optimizer since the last update().",
                fix="call update() once in every step",
            )
        gradients = [
            parameter.grad._values() if parameter.grad.is_sparse else parameter.grad
            for group in optimizer.param_groups
            for parameter in group["params"]
            if parameter.grad is not None
        ]
        finite: Any = tensor(True)
        with no_grad():
            for gradient in gradients:
                gradient.mul_(1.0 / self._scale)
                finite = finite & gradient.isfinite().all().cpu()
        self._overflow[id(optimizer)] = not bool(finite)

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """`optimizer.step()`, unless a gradient is infinite or NaN."""
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if id(optimizer) not in self._overflow:
            self.unscale_(optimizer)
        if self._overflow[id(optimizer)]:
            return None
        return optimizer.step(*args, **kwargs)

    def update(self, new_scale: Any = None) -> None:
        """Lowers the scale after an overflow; raises it after many steps without."""
        if not self._enabled:
            return
        if new_scale is not None:
            self._scale = float(new_scale)
        elif any(self._overflow.values()):
            self._scale *= self._backoff_factor
            self._growth_tracker = 0
        else:
            self._growth_tracker += 1
            if self._growth_tracker == self._growth_interval:
                self._scale *= self._growth_factor
                self._growth_tracker = 0
        self._overflow.clear()

    def get_growth_factor(self) -> float:
        """The factor by which the scale grows."""
        return self._growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        """Sets the factor by which the scale grows."""
        self._growth_factor = new_factor

    def get_backoff_factor(self) -> float:
        """The factor by which the scale shrinks after an overflow."""
        return self._backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        """Sets the factor by which the scale shrinks after an overflow."""
        self._backoff_factor = new_factor

    def get_growth_interval(self) -> int:
        """The number of steps without overflow after which the scale grows."""
        return self._growth_interval

    def set_growth_interval(self, new_interval: int) -> None:
        """Sets the number of steps without overflow after which the scale grows."""
        self._growth_interval = new_interval

    def state_dict(self) -> dict[str, Any]:
        """Scale, factors and counters; empty when nothing is scaled."""
        if not self._enabled:
            return {}
        return {
            "scale": self._scale,
            "growth_factor": self._growth_factor,
            "backoff_factor": self._backoff_factor,
            "growth_interval": self._growth_interval,
            "_growth_tracker": self._growth_tracker,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continues from what `state_dict` returned."""
        if not self._enabled:
            return
        if not state_dict:
            raise ArgumentError("the state is that of a disabled GradScaler")
        self._scale = float(state_dict["scale"])
        self._growth_factor = state_dict["growth_factor"]
        self._backoff_factor = state_dict["backoff_factor"]
        self._growth_interval = state_dict["growth_interval"]
        self._growth_tracker = state_dict["_growth_tracker"]
