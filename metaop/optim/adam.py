"""Adam and AdamW, and the base of their variants."""

from __future__ import annotations

import math
from typing import Any

from metaop.elementwise.meta_op import apply
from metaop.optim.optimizer import Group
from metaop.optim.update import Numbers, UpdateRule, check
from metaop.unified_graph.node import Node

Nodes = tuple[Node, ...]
NodeNumbers = dict[str, Node]


def check_settings(lr: float, betas: tuple[float, float], eps: float, weight_decay: float) -> None:
    """Raises ArgumentError unless the settings common to all variants of Adam are valid."""
    check("learning rate", lr, lr >= 0.0)
    check("epsilon value", eps, eps >= 0.0)
    for position, beta in enumerate(betas):
        check(f"beta parameter at index {position}", beta, 0.0 <= beta < 1.0)
    check("weight_decay value", weight_decay, weight_decay >= 0.0)


def means(gradient: Node, state: Nodes, numbers: NodeNumbers) -> tuple[Node, Node]:
    """The running means of the gradient and its square after this step."""
    first, second = state[:2]
    first = first + (gradient - first) * numbers["gradient_share"]
    second = second * numbers["beta2"] + gradient * gradient * numbers["square_share"]
    return first, second


def decayed(
    x: Node, gradient: Node, numbers: NodeNumbers, flags: tuple[str, ...]
) -> tuple[Node, Node]:
    """Parameter and gradient after weight decay, decoupled or added to the gradient."""
    if "weight_decay" not in flags:
        return x, gradient
    if "decoupled_weight_decay" in flags:
        return x * numbers["keep"], gradient
    return x, gradient + x * numbers["weight_decay"]


class Moments(UpdateRule):
    """The base class of Adam and its variants."""

    def state_names(self, group: Group) -> tuple[str, ...]:
        return ("exp_avg", "exp_avg_sq")

    def flags(self, group: Group) -> tuple[str, ...]:
        names = ("maximize", "weight_decay", "decoupled_weight_decay", "amsgrad")
        return tuple(name for name in names if group.get(name))

    def shared_numbers(self, group: Group) -> Numbers:
        """The numbers of `means` and `decayed`."""
        beta1, beta2 = map(float, group["betas"])
        numbers = {
            "gradient_share": 1 - beta1,
            "beta2": beta2,
            "square_share": 1 - beta2,
            "eps": float(group["eps"]),
        }
        if group.get("weight_decay"):
            decay = float(group["weight_decay"])
            if group.get("decoupled_weight_decay"):
                numbers["keep"] = 1 - float(group["lr"]) * decay
            else:
                numbers["weight_decay"] = decay
        return numbers


class Adam(Moments):
    """Steps by the mean gradient over the root of the mean square (Kingma & Ba 2015).

    `amsgrad` divides by the largest mean square so far. `foreach`, `fused`, `capturable` and
    `differentiable` are accepted for compatibility with PyTorch and have no effect.

    Raises ArgumentError for settings outside their range, such as a negative `lr`.

    >>> x = metaop.tensor([1.0], requires_grad=True)
    >>> optimizer = metaop.optim.Adam([x], lr=0.1)
    >>> (x * x).sum().backward()
    >>> optimizer.step()
    >>> round(x.item(), 2)
    0.9
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        decoupled_weight_decay: bool = False,
    ) -> None:
        check_settings(lr, betas, eps, weight_decay)
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "amsgrad": amsgrad,
            "maximize": maximize,
            "foreach": foreach,
            "capturable": capturable,
            "differentiable": differentiable,
            "fused": fused,
            "decoupled_weight_decay": decoupled_weight_decay,
        }
        super().__init__(params, defaults)

    def state_names(self, group: Group) -> tuple[str, ...]:
        names = ("exp_avg", "exp_avg_sq")
        return (*names, "max_exp_avg_sq") if group["amsgrad"] else names

    def advance(
        self, group: Group, counts: tuple[float, ...], fresh: bool
    ) -> tuple[Numbers, tuple[float, ...]]:
        step = counts[0] + 1
        beta1, beta2 = map(float, group["betas"])
        numbers = self.shared_numbers(group)
        numbers["step_size"] = float(group["lr"]) / (1 - beta1**step)
        numbers["root_scale"] = 1 / math.sqrt(1 - beta2**step)
        return numbers, (step,)

    @staticmethod
    def rule(
        x: Node, gradient: Node, state: Nodes, numbers: NodeNumbers, flags: tuple[str, ...]
    ) -> Nodes:
        """One parameter's step."""
        x, gradient = decayed(x, gradient, numbers, flags)
        first, second = means(gradient, state, numbers)
        updated = [first, second]
        if "amsgrad" in flags:
            second = apply("maximum", state[2], second)
            updated.append(second)
        denominator = apply("sqrt", second) * numbers["root_scale"] + numbers["eps"]
        return (x - first / denominator * numbers["step_size"], *updated)


class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov & Hutter 2019).

    Raises ArgumentError for settings outside their range, such as a negative `lr`.

    >>> x = metaop.tensor([1.0], requires_grad=True)
    >>> optimizer = metaop.optim.AdamW([x], lr=0.1)
    >>> (x * x).sum().backward()
    >>> optimizer.step()
    >>> round(x.item(), 2)
    0.9
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        super().__init__(
            params,
            lr,
            betas,
            eps,
            weight_decay,
            amsgrad,
            foreach=foreach,
            maximize=maximize,
            capturable=capturable,
            differentiable=differentiable,
            fused=fused,
            decoupled_weight_decay=True,
        )
