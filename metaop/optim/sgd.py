"""Stochastic gradient descent."""

from __future__ import annotations

from typing import Any

from metaop.errors import ArgumentError, GradientError
from metaop.optim.optimizer import Group
from metaop.optim.update import Numbers, UpdateRule, check
from metaop.unified_graph.node import Node


class SGD(UpdateRule):
    """Gradient descent, optionally with (Nesterov) momentum.

    `buffer = momentum · buffer + (1 - dampening) · gradient`, `parameter -= lr · buffer`.
    A sparse gradient updates only its rows; with momentum it is converted to a dense one, because
    the momentum of all rows decays. `foreach`, `fused` and `differentiable` are accepted for
    compatibility with PyTorch and have no effect.

    Raises ArgumentError for settings outside their range, such as a negative `lr`.

    >>> x = metaop.tensor([1.0], requires_grad=True)
    >>> optimizer = metaop.optim.SGD([x], lr=0.25)
    >>> (x * x).sum().backward()
    >>> optimizer.step()
    >>> round(x.item(), 2)
    0.5
    """

    counters = ()

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        check("learning rate", lr, lr >= 0.0)
        check("momentum value", momentum, momentum >= 0.0)
        check("weight_decay value", weight_decay, weight_decay >= 0.0)
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ArgumentError(
                "Nesterov momentum requires a momentum and zero dampening",
                fix="pass momentum=0.9, dampening=0",
            )
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "dampening": dampening,
            "weight_decay": weight_decay,
            "nesterov": nesterov,
            "maximize": maximize,
            "foreach": foreach,
            "differentiable": differentiable,
            "fused": fused,
        }
        super().__init__(params, defaults)

    def state_names(self, group: Group) -> tuple[str, ...]:
        return ("momentum_buffer",) if group["momentum"] else ()

    def _taken(self, gradient: Any, group: Group) -> Any:
        """The sparse gradient, or a dense one with momentum, which moves all rows used so far."""
        if not gradient.is_sparse:
            return gradient
        if group["weight_decay"]:
            raise GradientError(
                "SGD: weight_decay changes all rows, so it does not support sparse gradients",
                fix="set weight_decay=0 for the group of this parameter",
            )
        return gradient.to_dense() if group["momentum"] else gradient

    def flags(self, group: Group) -> tuple[str, ...]:
        names = ("maximize", "weight_decay", "momentum", "nesterov")
        return tuple(name for name in names if group[name])

    def advance(
        self, group: Group, counts: tuple[float, ...], fresh: bool
    ) -> tuple[Numbers, tuple[float, ...]]:
        numbers: Numbers = {"lr": float(group["lr"])}
        if group["weight_decay"]:
            numbers["weight_decay"] = float(group["weight_decay"])
        if group["momentum"]:
            numbers["momentum"] = float(group["momentum"])
            # The first gradient initialises the buffer, without dampening.
            numbers["fraction"] = 1.0 if fresh else 1.0 - group["dampening"]
        return numbers, ()

    @staticmethod
    def rule(
        x: Node,
        gradient: Node,
        state: tuple[Node, ...],
        numbers: dict[str, Node],
        flags: tuple[str, ...],
    ) -> tuple[Node, ...]:
        """One parameter's step."""
        if "weight_decay" in flags:
            gradient = gradient + x * numbers["weight_decay"]
        if "momentum" not in flags:
            return (x - gradient * numbers["lr"],)
        buffer = state[0] * numbers["momentum"] + gradient * numbers["fraction"]
        gradient = gradient + buffer * numbers["momentum"] if "nesterov" in flags else buffer
        return x - gradient * numbers["lr"], buffer
