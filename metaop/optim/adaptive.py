"""Optimizers that divide by accumulated squared gradients: Adagrad, Adadelta, RMSprop."""

from __future__ import annotations

from typing import Any

from metaop.elementwise.meta_op import apply
from metaop.errors import GradientError
from metaop.optim.adam import NodeNumbers, Nodes, decayed
from metaop.optim.optimizer import Group
from metaop.optim.update import Numbers, UpdateRule, check
from metaop.unified_graph.node import Node


def decay_number(group: Group) -> Numbers:
    """The weight decay, the number that `decayed` reads."""
    return {"weight_decay": float(group["weight_decay"])}


class Adagrad(UpdateRule):
    """Gradients over the root of the sum of all their squares (Duchi et al. 2011).

    A sparse gradient updates only its rows.
    Raises ArgumentError for settings outside their range, such as a negative `lr`.

    >>> x = metaop.tensor([1.0], requires_grad=True)
    >>> optimizer = metaop.optim.Adagrad([x], lr=0.1)
    >>> (x * x).sum().backward()
    >>> optimizer.step()
    >>> round(x.item(), 2)
    0.9
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-2,
        lr_decay: float = 0,
        weight_decay: float = 0,
        initial_accumulator_value: float = 0,
        eps: float = 1e-10,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        check("learning rate", lr, lr >= 0.0)
        check("lr_decay value", lr_decay, lr_decay >= 0.0)
        check("weight_decay value", weight_decay, weight_decay >= 0.0)
        start = initial_accumulator_value
        check("initial_accumulator_value value", start, start >= 0.0)
        check("epsilon value", eps, eps >= 0.0)
        defaults = {
            "lr": lr,
            "lr_decay": lr_decay,
            "eps": eps,
            "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
            "fused": fused,
        }
        super().__init__(params, defaults)
        for group in self.param_groups:
            for parameter in group["params"]:
                self._begin(parameter, self.state[parameter], group, ("sum",))

    def share_memory(self) -> None:
        """Moves the states to shared memory."""
        for state in self.state.values():
            for value in state.values():
                value.share_memory_()

    def _taken(self, gradient: Any, group: Group) -> Any:
        """The gradient, sparse or dense: rows not in it keep their sums."""
        if gradient.is_sparse and group["weight_decay"]:
            raise GradientError(
                "Adagrad: weight_decay option is not compatible with sparse gradients",
                fix="set weight_decay=0 for the group of this parameter",
            )
        return gradient

    def state_names(self, group: Group) -> tuple[str, ...]:
        return ("sum",)

    def first_value(self, name: str, group: Group) -> float:
        return group["initial_accumulator_value"] if name == "sum" else 0.0

    def advance(
        self, group: Group, counts: tuple[float, ...], fresh: bool
    ) -> tuple[Numbers, tuple[float, ...]]:
        step = counts[0] + 1
        step_size = float(group["lr"]) / (1 + (step - 1) * group["lr_decay"])
        return {**decay_number(group), "step_size": step_size, "eps": group["eps"]}, (step,)

    @staticmethod
    def rule(
        x: Node, gradient: Node, state: Nodes, numbers: NodeNumbers, flags: tuple[str, ...]
    ) -> Nodes:
        """One parameter's step."""
        x, gradient = decayed(x, gradient, numbers, flags)
        total = state[0] + gradient * gradient
        root = apply("sqrt", total) + numbers["eps"]
        return x - gradient / root * numbers["step_size"], total


class Adadelta(UpdateRule):
    """Gradients scaled by the RMS of past steps over the RMS of gradients (Zeiler 2012).

    Raises ArgumentError for settings outside their range, such as a negative `lr`.

    >>> x = metaop.tensor([1.0], requires_grad=True)
    >>> optimizer = metaop.optim.Adadelta([x], lr=1.0, eps=1.0)
    >>> (x * x).sum().backward()
    >>> optimizer.step()
    >>> round(x.item(), 2)
    -0.69
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        capturable: bool = False,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check("learning rate", lr, lr >= 0.0)
        check("rho value", rho, 0.0 <= rho <= 1.0)
        check("epsilon value", eps, eps >= 0.0)
        check("weight_decay value", weight_decay, weight_decay >= 0.0)
        defaults = {
            "lr": lr,
            "rho": rho,
            "eps": eps,
            "weight_decay": weight_decay,
            "maximize": maximize,
            "capturable": capturable,
            "foreach": foreach,
            "differentiable": differentiable,
        }
        super().__init__(params, defaults)

    def state_names(self, group: Group) -> tuple[str, ...]:
        return ("square_avg", "acc_delta")

    def advance(
        self, group: Group, counts: tuple[float, ...], fresh: bool
    ) -> tuple[Numbers, tuple[float, ...]]:
        numbers = {
            **decay_number(group),
            "lr": float(group["lr"]),
            "rho": group["rho"],
            "share": 1 - group["rho"],
            "eps": group["eps"],
        }
        return numbers, (counts[0] + 1,)

    @staticmethod
    def rule(
        x: Node, gradient: Node, state: Nodes, numbers: NodeNumbers, flags: tuple[str, ...]
    ) -> Nodes:
        """One parameter's step."""
        x, gradient = decayed(x, gradient, numbers, flags)
        rho, share, eps = numbers["rho"], numbers["share"], numbers["eps"]
        square = state[0] * rho + gradient * gradient * share
        delta = apply("sqrt", state[1] + eps) / apply("sqrt", square + eps) * gradient
        return x - delta * numbers["lr"], square, state[1] * rho + delta * delta * share


class RMSprop(UpdateRule):
    """Gradients over the root of their running mean square (Hinton 2012).

    `centered` subtracts the square of the running mean; `momentum` accumulates the steps.

    Raises ArgumentError for settings outside their range, such as a negative `lr`.

    >>> x = metaop.tensor([1.0], requires_grad=True)
    >>> optimizer = metaop.optim.RMSprop([x], lr=0.01)
    >>> (x * x).sum().backward()
    >>> optimizer.step()
    >>> round(x.item(), 2)
    0.9
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum: float = 0,
        centered: bool = False,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check("learning rate", lr, lr >= 0.0)
        check("epsilon value", eps, eps >= 0.0)
        check("momentum value", momentum, momentum >= 0.0)
        check("weight_decay value", weight_decay, weight_decay >= 0.0)
        check("alpha value", alpha, alpha >= 0.0)
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "alpha": alpha,
            "eps": eps,
            "centered": centered,
            "weight_decay": weight_decay,
            "capturable": capturable,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
        }
        super().__init__(params, defaults)

    def state_names(self, group: Group) -> tuple[str, ...]:
        names = ["square_avg"]
        if group["momentum"] > 0:
            names.append("momentum_buffer")
        if group["centered"]:
            names.append("grad_avg")
        return tuple(names)

    def flags(self, group: Group) -> tuple[str, ...]:
        names = ("maximize", "weight_decay", "momentum", "centered")
        return tuple(name for name in names if group[name])

    def advance(
        self, group: Group, counts: tuple[float, ...], fresh: bool
    ) -> tuple[Numbers, tuple[float, ...]]:
        numbers = {
            **decay_number(group),
            "lr": float(group["lr"]),
            "alpha": group["alpha"],
            "share": 1 - group["alpha"],
            "eps": group["eps"],
            "momentum": group["momentum"],
        }
        return numbers, (counts[0] + 1,)

    @staticmethod
    def rule(
        x: Node, gradient: Node, state: Nodes, numbers: NodeNumbers, flags: tuple[str, ...]
    ) -> Nodes:
        """One parameter's step."""
        x, gradient = decayed(x, gradient, numbers, flags)
        share = numbers["share"]
        square = state[0] * numbers["alpha"] + gradient * gradient * share
        updated = [square]
        variance = square
        if "centered" in flags:
            mean = state[-1] + (gradient - state[-1]) * share
            updated.append(mean)
            variance = square - mean * mean
        direction = gradient / (apply("sqrt", variance) + numbers["eps"])
        if "momentum" in flags:
            direction = state[1] * numbers["momentum"] + direction
            updated.insert(1, direction)
        return (x - direction * numbers["lr"], *updated)
