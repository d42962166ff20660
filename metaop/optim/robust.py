"""Rprop, which uses only signs of gradients, and averaged gradient descent."""

from __future__ import annotations

from typing import Any

from metaop.elementwise.meta_op import apply, where
from metaop.optim.adam import NodeNumbers, Nodes, decayed
from metaop.optim.optimizer import Group
from metaop.optim.update import Numbers, UpdateRule, check
from metaop.unified_graph.node import Node


class Rprop(UpdateRule):
    """Steps that grow while the gradient keeps its sign, else shrink (Riedmiller & Braun 1993).

    Raises ArgumentError for settings outside their range, such as a negative `lr`.

    >>> x = metaop.tensor([1.0], requires_grad=True)
    >>> optimizer = metaop.optim.Rprop([x], lr=0.1)
    >>> (x * x).sum().backward()
    >>> optimizer.step()
    >>> round(x.item(), 2)
    0.9
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-2,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50),
        *,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check("learning rate", lr, lr >= 0.0)
        check(f"eta values: {etas[0]},", etas[1], 0.0 < etas[0] < 1.0 < etas[1])
        defaults = {
            "lr": lr,
            "etas": etas,
            "step_sizes": step_sizes,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
            "capturable": capturable,
        }
        super().__init__(params, defaults)

    def state_names(self, group: Group) -> tuple[str, ...]:
        return ("prev", "step_size")

    def first_value(self, name: str, group: Group) -> float:
        return float(group["lr"]) if name == "step_size" else 0.0

    def advance(
        self, group: Group, counts: tuple[float, ...], fresh: bool
    ) -> tuple[Numbers, tuple[float, ...]]:
        names = ("shrink", "grow", "smallest", "largest")
        values = map(float, (*group["etas"], *group["step_sizes"]))
        return dict(zip(names, values)), (counts[0] + 1,)

    @staticmethod
    def rule(
        x: Node, gradient: Node, state: Nodes, numbers: NodeNumbers, flags: tuple[str, ...]
    ) -> Nodes:
        """One parameter's step."""
        previous, size = state
        agreement = gradient * previous
        turned = agreement < 0
        factor = where(agreement > 0, numbers["grow"], where(turned, numbers["shrink"], 1.0))
        size = apply("maximum", size * factor, numbers["smallest"])
        size = apply("minimum", size, numbers["largest"])
        gradient = where(turned, 0.0, gradient)
        return x - apply("sign", gradient) * size, gradient, size


class ASGD(UpdateRule):
    """SGD that also maintains the average of the parameters (Polyak & Juditsky 1992).

    The averages are the state tensors "ax".

    Raises ArgumentError for settings outside their range.

    >>> metaop.optim.ASGD([nn.Parameter(metaop.ones(1))]).param_groups[0]["lr"]
    0.01
    """

    counters = ("step", "eta", "mu")

    def __init__(
        self,
        params: Any,
        lr: float = 1e-2,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        check("learning rate", lr, lr >= 0.0)
        check("weight_decay value", weight_decay, weight_decay >= 0.0)
        defaults = {
            "lr": lr,
            "lambd": lambd,
            "alpha": alpha,
            "t0": t0,
            "weight_decay": weight_decay,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
            "capturable": capturable,
        }
        super().__init__(params, defaults)

    def state_names(self, group: Group) -> tuple[str, ...]:
        return ("ax",)

    def first_value(self, name: str, group: Group) -> float:
        return {"eta": float(group["lr"]), "mu": 1.0}.get(name, 0.0)

    def advance(
        self, group: Group, counts: tuple[float, ...], fresh: bool
    ) -> tuple[Numbers, tuple[float, ...]]:
        step, eta, mu = counts[0] + 1, counts[1], counts[2]
        lr, lambd = float(group["lr"]), group["lambd"]
        numbers = {
            "weight_decay": float(group["weight_decay"]),
            "keep": 1 - lambd * eta,
            "eta": eta,
            "mu": mu,
        }
        next_eta = lr / (1 + lambd * lr * step) ** group["alpha"]
        return numbers, (step, next_eta, 1 / max(1, step - group["t0"]))

    @staticmethod
    def rule(
        x: Node, gradient: Node, state: Nodes, numbers: NodeNumbers, flags: tuple[str, ...]
    ) -> Nodes:
        """One parameter's step."""
        x, gradient = decayed(x, gradient, numbers, flags)
        x = x * numbers["keep"] - gradient * numbers["eta"]
        average = state[0] + (x - state[0]) * numbers["mu"]
        return x, average
